package disktest

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/disk/record"
)

// small writes a journal of two generations, one of them in two parts, whose
// last record is a sync mark. It returns how many records are durable.
func small(t *testing.T, w world) (durable uint64) {
	t.Helper()
	add := func(l *record.Log, kind uint8, size int) {
		t.Helper()
		_, err := l.Append(record.Record{Type: kind, Group: 9, Index: 5, Term: 2, Payload: bytes.Repeat([]byte{7}, size)})
		must(t, err)
	}
	l, _, err := record.Open(w.engine(), 0, record.Mark{}, 0x1111111111111111)
	must(t, err)
	add(l, 1, 10)
	add(l, 1, 0)
	must(t, l.Sync())
	must(t, l.Roll(2, 0x2222222222222222))
	add(l, 5, 20)
	must(t, l.Sync())
	must(t, l.Close())
	l, _, err = record.Open(w.engine(), 0, record.Mark{}, 0x3333333333333333)
	must(t, err)
	for i := range 4 {
		add(l, 1, 8*i)
		if i%2 == 1 {
			must(t, l.Sync())
		}
	}
	add(l, record.TypeMark, 0)
	must(t, l.Sync())
	durable = l.Durable()
	must(t, l.Close())
	return durable
}

// outcome is what became of a damaged journal.
type outcome struct{ refused, onlyMark, intact, unseen int }

// judge opens a damaged journal of the given number of durable records, the last
// of them a sync mark, and says what became of it.
func (o *outcome) judge(t *testing.T, w world, mark, durable uint64, what string) {
	t.Helper()
	l, got, err := record.Open(w.engine(), 0, record.Mark{Sequence: mark}, 0x4444444444444444)
	if err != nil {
		var refused *record.Refused
		if !errors.As(err, &refused) || refused.File == "" || refused.Cause == "" || refused.Advice == "" {
			t.Fatalf("%s: %v", what, err)
		}
		o.refused++
		return
	}
	defer l.Close()
	for i, r := range got {
		if r.Sequence != uint64(i)+1 || r.Group != 9 && r.Type != record.TypeMark {
			t.Fatalf("%s: record %d is %+v", what, i, r)
		}
	}
	switch uint64(len(got)) {
	case durable:
		o.intact++
	case durable - 1:
		o.onlyMark++
	default:
		o.unseen++
	}
}

// TestEveryFlip: with a sync mark at its end, a journal with one flipped bit is
// refused, or nothing but that mark is cut.
func TestEveryFlip(t *testing.T) {
	for name, make := range worlds() {
		if strings.Contains(name, "real files") {
			continue // the same engine as in memory
		}
		t.Run(name, func(t *testing.T) {
			w := make(t)
			durable := small(t, w)
			var o outcome
			for _, f := range w.files() {
				data := w.load(f)
				for bit := range 8 * len(data) {
					bad := bytes.Clone(data)
					bad[bit/8] ^= 1 << (bit % 8)
					before := w.files()
					w.store(f, bad)
					o.judge(t, w, 0, durable, f)
					restore(w, before, f, data)
				}
			}
			t.Logf("flipped bits: %d refused, %d cut only the sync mark itself, %d lost a durable record unseen",
				o.refused, o.onlyMark, o.unseen)
			if o.unseen != 0 || o.intact != 0 || o.refused == 0 {
				t.Fatalf("%+v", o)
			}
		})
	}
}

// restore undoes what damage and opening did.
func restore(w world, before []string, damaged string, data []byte) {
	for _, f := range w.files() {
		if !strings.Contains(strings.Join(before, "\n"), f) {
			w.remove(f)
			if r, ok := w.(*real); ok && !strings.HasSuffix(f, "LOCK") {
				r.remove(f[:strings.LastIndexByte(f, '/')])
			}
		}
	}
	w.store(damaged, data)
}

// TestEveryCut: a journal whose newest file is cut is the picture of a torn
// write, unless the manifest knows better: then it is refused. An older file
// that is cut is always refused.
func TestEveryCut(t *testing.T) {
	for name, make := range worlds() {
		if strings.Contains(name, "real files") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := make(t)
			durable := small(t, w)
			files := w.files()
			var old, known, unknown outcome
			for i, f := range files {
				data := w.load(f)
				for size := range data {
					before := w.files()
					w.store(f, data[:size])
					if i < len(files)-1 {
						old.judge(t, w, 0, durable, f)
					} else {
						known.judge(t, w, durable-1, durable, f)
						restore(w, before, f, data)
						w.store(f, data[:size])
						unknown.judge(t, w, 0, durable, f)
					}
					restore(w, before, f, data)
				}
			}
			t.Logf("cuts of older files: %d refused", old.refused)
			t.Logf("cuts of the newest file, manifest knows the bound: %d refused, %d cut only the sync mark",
				known.refused, known.onlyMark)
			t.Logf("cuts of the newest file, nobody knows the bound: %d cut only the sync mark, "+
				"%d lost durable records that no rule can see", unknown.onlyMark, unknown.unseen)
			if old.unseen+old.onlyMark+old.intact+known.unseen+known.intact+unknown.refused != 0 ||
				old.refused == 0 || known.refused == 0 || known.onlyMark == 0 {
				t.Fatalf("%+v %+v %+v", old, known, unknown)
			}
		})
	}
}

// TestTornTail: whatever is left of records that were never synced, nothing
// durable is lost and nothing is refused, zeros and garbage included.
func TestTornTail(t *testing.T) {
	for name, make := range worlds() {
		if strings.Contains(name, "real files") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := make(t)
			l, _, err := record.Open(w.engine(), 0, record.Mark{}, 1)
			must(t, err)
			add := func(n int) {
				for i := range n {
					_, err := l.Append(record.Record{Type: 1, Payload: bytes.Repeat([]byte{7}, 9*i)})
					must(t, err)
				}
				must(t, l.Sync())
			}
			add(3)
			durable := l.Durable()
			f := w.files()[0]
			data := w.load(f)
			add(5) // their bytes are those of records never synced: synced says 3
			must(t, l.Close())
			tail := w.load(f)
			for size := len(data); size <= len(tail); size++ {
				for _, fill := range []string{"cut", "zeros", "hole"} {
					torn := bytes.Clone(tail)
					switch fill {
					case "cut":
						torn = torn[:size]
					case "zeros":
						clear(torn[size:])
					case "hole":
						clear(torn[size:min(size+16, len(torn))])
					}
					before := w.files()
					w.store(f, torn)
					l, got, err := record.Open(w.engine(), 0, record.Mark{Sequence: durable}, 5)
					if err != nil {
						t.Fatalf("%s at %d: %v", fill, size, err)
					}
					if uint64(len(got)) < durable {
						t.Fatalf("%s at %d: %d records are left of %d durable ones", fill, size, len(got), durable)
					}
					must(t, l.Close())
					restore(w, before, f, data)
				}
			}
		})
	}
}
