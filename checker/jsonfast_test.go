package checker

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// slowly reads a line as encoding/json does.
func slowly(text []byte) (l line, err error) {
	l = line{Op: Op{Return: Open}}
	err = json.Unmarshal(text, &l)
	return l, err
}

// sameAsJSON holds what the fast reader makes of a line to what encoding/json does,
// and says whether it was fast.
func sameAsJSON(t *testing.T, f *fast, text []byte) bool {
	t.Helper()
	var op Op
	var log FinalLog
	isOp := f.operation(text, &op)
	isLog := f.log(text, &log)
	if !isOp && !isLog {
		return false
	}
	l, err := slowly(text)
	switch {
	case err != nil:
		t.Errorf("%s is read, although %v", text, err)
	case isOp && !reflect.DeepEqual(l.Op, op):
		t.Errorf("%s is read as %+v, not %+v", text, op, l.Op)
	case isLog && (l.Log == nil || !reflect.DeepEqual(*l.Log, log)):
		t.Errorf("%s is read as %+v, not %+v", text, log, l.Log)
	}
	return true
}

// Whatever the planted histories hold is read alike, most of it fast.
func TestFastReadsAsJSON(t *testing.T) {
	f := &fast{names: map[string]string{}}
	quick, all := 0, 0
	for _, c := range planted {
		b := c.make()
		var file bytes.Buffer
		if err := Write(&file, &b.h, b.final); err != nil {
			t.Fatal(err)
		}
		for text := range bytes.Lines(file.Bytes()) {
			all++
			if sameAsJSON(t, f, slices.Clone(text)) {
				quick++
			}
		}
	}
	if quick < all*8/10 {
		t.Errorf("%d of %d lines are read fast; recorders' usual lines should be", quick, all)
	}
}

func TestFastGivesUp(t *testing.T) {
	const good = `{"client":1,"call":5,"return":9,"outcome":"ok","ack":{"subscription":"t/s","member":"m"}}`
	f := &fast{names: map[string]string{}}
	if !sameAsJSON(t, f, []byte(good)) {
		t.Fatal("the plain line is not read")
	}
	for from, to := range map[string]string{
		`"m"`:       `"m\n"`,       // an escape
		`:5`:        `:5.0`,        // a fraction
		`:1,`:       `:01,`,        // not JSON
		`:9`:        `:-9`,         // a sign
		`1,`:        `4294967296,`, // too large
		`"member"`:  `"Member"`,    // encoding/json takes that
		`}}`:        `}} x`,        // more
		`"ok",`:     `"ok",,`,      // not JSON
		`"outcome"`: `"other"`,     // unknown
		`"call":5,`: `"ack":{},`,   // twice
		`{"client"`: `["client"`,   // not an object
	} {
		var op Op
		if text := strings.Replace(good, from, to, 1); f.operation([]byte(text), &op) {
			t.Errorf("%s is taken as %+v", text, op)
		}
	}
}

func FuzzFast(f *testing.F) {
	for _, c := range planted {
		b := c.make()
		var file bytes.Buffer
		if err := Write(&file, &b.h, b.final); err != nil {
			f.Fatal(err)
		}
		for text := range bytes.Lines(file.Bytes()) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) { sameAsJSON(t, &fast{names: map[string]string{}}, text) })
}
