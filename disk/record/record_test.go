package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(d *simdisk.Disk, from, mark, id uint64) (*record.Log, []record.Record, error) {
	return record.Open(simdisk.NewEngine(d.FS(), "journal"), from, record.Mark{Sequence: mark}, id)
}

func add(t testing.TB, l *record.Log, payload string) uint64 {
	t.Helper()
	seq, err := l.Append(record.Record{Type: 1, Payload: []byte(payload)})
	must(t, err)
	return seq
}

func bytesOf(t testing.TB, d *simdisk.Disk, name string) []byte {
	t.Helper()
	h, err := d.FS().Open(name)
	must(t, err)
	size, err := h.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = h.ReadAt(b, 0)
	must(t, err)
	return b
}

func setBytes(t testing.TB, d *simdisk.Disk, name string, b []byte) {
	t.Helper()
	h, err := d.FS().Open(name)
	must(t, err)
	must(t, h.Truncate(0))
	_, err = h.WriteAt(b, 0)
	must(t, err)
}

// three is a journal of three generations with a record each, all durable.
func three(t testing.TB) *simdisk.Disk {
	t.Helper()
	d := simdisk.New()
	l, _, err := open(d, 0, 0, 1)
	must(t, err)
	add(t, l, "one")
	must(t, l.Roll(2, 2))
	add(t, l, "two")
	must(t, l.Roll(3, 3))
	add(t, l, "three")
	must(t, l.Sync())
	must(t, l.Close())
	return d
}

// TestManifestAndJournal: what of the two may go together.
func TestManifestAndJournal(t *testing.T) {
	whole := three(t)
	drop := func(numbers string) func(d *simdisk.Disk) {
		return func(d *simdisk.Disk) {
			for _, f := range d.Files() {
				if strings.Contains(numbers, f.Name[len("journal/000000000000000"):][:1]) {
					must(t, d.FS().Remove(f.Name))
				}
			}
		}
	}
	for _, c := range []struct {
		what       string
		harm       func(d *simdisk.Disk)
		from, mark uint64
		want       int    // records
		refused    string // part of the cause
	}{
		{"whole", drop(""), 0, 0, 3, ""},
		{"whole, first generation named", drop(""), 1, 3, 3, ""},
		{"second named", drop(""), 2, 3, 2, ""},
		{"second named, first gone", drop("1"), 2, 3, 2, ""},
		{"third named, others gone", drop("12"), 3, 3, 1, ""},
		{"a later one named", drop(""), 4, 3, 0, "generation 4, which the manifest names, is missing"},
		{"mark above the end", drop(""), 0, 4, 0, "ends at record 3; record 4 was durable"},
		{"first gone, manifest names it", drop("1"), 1, 3, 0, "the manifest names generation 1"},
		{"first gone, no manifest", drop("1"), 0, 0, 0, "the manifest names generation 1"},
		{"middle gone", drop("2"), 1, 3, 0, "follows record 2, but the one before ends at 1"},
		{"last gone", drop("3"), 1, 3, 0, "ends at record 2; record 3 was durable"},
		{"last gone, unknown", drop("3"), 1, 2, 2, ""},
		{"all gone", drop("123"), 1, 3, 0, "is missing"},
		{"all gone, no manifest", drop("123"), 0, 0, 0, ""},
		{"stray file", func(d *simdisk.Disk) {
			_, err := d.FS().Create("journal/notes.txt")
			must(t, err)
		}, 0, 0, 0, "do not belong"},
		{"generation under another's name", func(d *simdisk.Disk) {
			f := d.Files()[2].Name
			must(t, d.FS().Rename(f, strings.Replace(f, "3.", "4.", 1)))
		}, 0, 0, 0, "the start says generation 3.0"},
		{"named one without start", func(d *simdisk.Disk) {
			setBytes(t, d, d.Files()[1].Name, nil)
		}, 2, 2, 0, "start is missing"},
	} {
		d := whole.Clone()
		c.harm(d)
		before := fmt.Sprint(d.Files())
		l, got, err := open(d, c.from, c.mark, 9)
		var refused *record.Refused
		switch {
		case c.refused == "" && (err != nil || len(got) != c.want):
			t.Errorf("%s: %d records, %v", c.what, len(got), err)
		case c.refused != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v", c.what, err)
		case c.refused != "" && before != fmt.Sprint(d.Files()):
			t.Errorf("%s: files were changed", c.what)
		case err == nil:
			for _, f := range d.Files() {
				if g, _ := record.ParseGenerationName(f.Name[len("journal/"):]); g.Number < c.from {
					t.Errorf("%s: %s is left", c.what, f.Name)
				}
			}
			must(t, l.Close())
		}
	}
}

// TestFramesInPayload: a publisher may send a journal's bytes as a message. They
// are neither records nor witnesses.
func TestFramesInPayload(t *testing.T) {
	other := simdisk.New()
	l, _, err := open(other, 0, 0, 0xbad)
	must(t, err)
	for range 50 {
		add(t, l, "x")
		must(t, l.Sync())
	}
	foreign := bytesOf(t, other, other.Files()[0].Name)
	d := simdisk.New()
	l, _, err = open(d, 0, 0, 0x600d)
	must(t, err)
	add(t, l, "kept")
	must(t, l.Sync())
	add(t, l, string(foreign)) // never synced, and torn
	name := d.Files()[0].Name
	whole := bytesOf(t, d, name)
	for _, cut := range []int{1, len(foreign) / 2, len(foreign)} {
		setBytes(t, d, name, whole[:len(whole)-cut])
		l, got, err := open(d.Clone(), 0, 1, 3)
		must(t, err)
		if len(got) != 1 || string(got[0].Payload) != "kept" {
			t.Fatalf("cut %d: %d records", cut, len(got))
		}
		must(t, l.Close())
	}
	// The same frames behind the last good one, as a file system that shows old
	// blocks would: cut as well.
	setBytes(t, d, name, append(bytes.Clone(whole[:len(whole)-len(foreign)-64]), foreign[64:]...))
	_, got, err := open(d, 0, 1, 3)
	must(t, err)
	if len(got) != 1 {
		t.Fatalf("%d records", len(got))
	}
}

// TestPoison: after the first error every call returns it, and only opening
// again, through the rule, tells what is there.
func TestPoison(t *testing.T) {
	for _, op := range []simdisk.Op{simdisk.OpSync, simdisk.OpWrite} {
		d := simdisk.New()
		l, _, err := open(d, 0, 0, 1)
		must(t, err)
		add(t, l, "durable")
		must(t, l.Sync())
		d.Fail(op, "journal", 1)
		_, err = l.Append(record.Record{Type: 1, Payload: []byte("doubtful")})
		if op == simdisk.OpSync {
			must(t, err)
			err = l.Sync()
		}
		if !errors.Is(err, simdisk.ErrFault) || l.Err() != err {
			t.Fatalf("got %v, poisoned with %v", err, l.Err())
		}
		_, again := l.Append(record.Record{Type: 1})
		for what, e := range map[string]error{
			"append": again, "sync": l.Sync(), "roll": l.Roll(2, 2), "drop": l.Drop(1),
		} {
			if e != err {
				t.Fatalf("%s after the error: %v", what, e)
			}
		}
		if l.Durable() != 1 {
			t.Fatalf("durable is %d", l.Durable())
		}
		d.Crash(simdisk.CrashMode{Keep: simdisk.KeepNone}, nil)
		_, got, err := open(d, 0, 1, 2)
		must(t, err)
		if len(got) != 1 {
			t.Fatalf("%d records", len(got))
		}
	}
}

func TestMisuse(t *testing.T) {
	for what, f := range map[string]func(l *record.Log) error{
		"reserved type":  func(l *record.Log) error { _, err := l.Append(record.Record{}); return err },
		"same number":    func(l *record.Log) error { return l.Roll(1, 5) },
		"no id":          func(l *record.Log) error { return l.Roll(2, 0) },
		"drop current":   func(l *record.Log) error { return l.Drop(2) },
		"closed already": func(l *record.Log) error { must(t, l.Close()); must(t, l.Close()); return l.Sync() },
	} {
		l, _, err := open(simdisk.New(), 0, 0, 1)
		must(t, err)
		if err := f(l); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, _, err := open(simdisk.New(), 0, 0, 0); err == nil {
		t.Error("opened with id 0")
	}
}

func TestGenerationName(t *testing.T) {
	g := disk.Generation{Number: 12, Part: 3, ID: 0xabc}
	name := record.GenerationName(g)
	if got, ok := record.ParseGenerationName(name); !ok || got != g {
		t.Fatalf("%s parsed as %+v", name, got)
	}
	for _, bad := range []string{"", "LOCK", name + "x", "x" + name, name[1:],
		record.GenerationName(disk.Generation{ID: 1}),
		record.GenerationName(disk.Generation{Number: 1}), strings.ToUpper(name)} {
		if _, ok := record.ParseGenerationName(bad); ok {
			t.Errorf("%q was taken for a name", bad)
		}
	}
}

// FuzzScan: a newest file of any content is refused or opened; what opening
// returns, opening again returns, too.
func FuzzScan(f *testing.F) {
	d := simdisk.New()
	l, _, err := open(d, 0, 0, 7)
	must(f, err)
	name := d.Files()[0].Name
	f.Add(bytesOf(f, d, name))
	for i := range 4 {
		add(f, l, strings.Repeat("p", 5*i))
		if i%2 == 1 {
			must(f, l.Sync())
		}
		f.Add(bytesOf(f, d, name))
	}
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := simdisk.New()
		must(t, d.FS().MkdirAll("journal"))
		_, err := d.FS().Create(name)
		must(t, err)
		setBytes(t, d, name, data)
		l, got, err := open(d, 0, 0, 8)
		if err != nil {
			var refused *record.Refused
			if !errors.As(err, &refused) || !bytes.Equal(bytesOf(t, d, name), data) {
				t.Fatal(err)
			}
			return
		}
		if uint64(len(got)) != l.Durable() {
			t.Fatalf("%d records, durable is %d", len(got), l.Durable())
		}
		must(t, l.Close())
		_, again, err := open(d, 0, l.Durable(), 9)
		must(t, err)
		if len(again) != len(got) {
			t.Fatalf("%d records, then %d", len(got), len(again))
		}
	})
}
