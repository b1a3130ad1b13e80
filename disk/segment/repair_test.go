package segment

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// contents are the bytes of a disk's files, by name.
func contents(t *testing.T, d *simdisk.Disk) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, f := range d.Files() {
		h, err := d.FS().Open(f.Name)
		must(t, err)
		b := make([]byte, f.Size)
		_, err = h.ReadAt(b, 0)
		must(t, err)
		must(t, h.Close())
		out[f.Name] = b
	}
	return out
}

// TestEveryFlipIsSeenAndMended: whichever byte of an open store has a bit flipped, Verify
// sees it, and after repairs of what reads complained of, and a sync, every file
// is byte for byte what it was.
func TestEveryFlipIsSeenAndMended(t *testing.T) {
	d, _ := filled(t)
	want := contents(t, d)
	repaired, rebuilt := 0, 0
	for _, f := range d.Files() {
		for bit := int64(0); bit < f.Size*8; bit += 7 {
			c := d.Clone()
			s, err := open(c.FS(), dir, 0, 35, 300)
			must(t, err)
			must(t, c.FlipBit(f.Name, bit))
			_, found, err := Verify(c.FS(), dir, 0, 35)
			must(t, err)
			if len(found) == 0 || found[0].File != f.Name {
				t.Fatalf("%s bit %d: not seen: %v", f.Name, bit, found)
			}
			for o := model.Offset(0); o < 35; o++ {
				_, err := s.Read(o, 1)
				var damage *Damaged
				if err == nil {
					continue
				}
				if !errors.As(err, &damage) || damage.Offset > o {
					t.Fatalf("%s bit %d: offset %d: %v", f.Name, bit, o, err)
				}
				must(t, s.Repair(make1(damage.Offset, at(damage.Offset), 1, 20)))
				repaired++
				if _, err := s.Read(o, 1); err != nil {
					t.Fatalf("%s bit %d: still: %v", f.Name, bit, err)
				}
			}
			rebuilt += int(s.Rebuilt())
			must(t, s.Sync())
			must(t, s.Close())
			if s, err = open(c.FS(), dir, 0, 35, 300); err != nil { // a broken footer is seen at open
				t.Fatalf("%s bit %d: %v", f.Name, bit, err)
			}
			must(t, s.Sync())
			if got := contents(t, c); !bytes.Equal(got[f.Name], want[f.Name]) {
				t.Fatalf("%s bit %d: the file is not what it was", f.Name, bit)
			}
		}
	}
	if repaired == 0 || rebuilt == 0 {
		t.Fatalf("%d batches repaired, %d indexes rebuilt", repaired, rebuilt)
	}
}

// TestAWriteThatWasLostIsMended: damage as wide as a sector takes several batches,
// or batches and the index behind them, be it zeros or what belonged elsewhere. As
// long as the footer stands the store opens, and repairs of what reads complain of
// make the file what it was.
func TestAWriteThatWasLostIsMended(t *testing.T) {
	d, _ := filled(t)
	name := dir + "/00000000000000000010.segment"
	want := contents(t, d)[name]
	both := 0
	for from := int64(0); from < int64(len(want))-footerSize; from += 9 {
		c := d.Clone()
		wide := make([]byte, min(512, int64(len(want))-footerSize-from))
		for i := range wide {
			wide[i] = byte(from%2) * byte(i*i+i/7)
		}
		must(t, c.Overwrite(name, from, wide))
		s, err := open(c.FS(), dir, 0, 35, 300)
		must(t, err)
		repaired := 0
		for o := model.Offset(10); o < 20; {
			_, err := s.Read(o, 1)
			var damage *Damaged
			switch {
			case err == nil:
				o++
			case !errors.As(err, &damage) || repaired == 10:
				t.Fatalf("from byte %d: offset %d after %d repairs: %v", from, o, repaired, err)
			default:
				must(t, s.Repair(make1(damage.Offset, at(damage.Offset), 1, 20)))
				repaired++
			}
		}
		if repaired > 0 && s.Rebuilt() > 0 {
			both++
		}
		must(t, s.Sync())
		if !bytes.Equal(contents(t, c)[name], want) {
			t.Fatalf("from byte %d: the file is not what it was", from)
		}
		must(t, s.Close())
	}
	if both == 0 {
		t.Fatal("never both batches and an index")
	}
}

func TestRepairTakesNothingElse(t *testing.T) {
	d, s := filled(t)
	want := contents(t, d)
	broken := slices.Clone(make1(3, at(3), 1, 20))
	broken[len(broken)-1] ^= 1
	for what, b := range map[string][]byte{
		"a damaged batch":      broken,
		"one of another size":  make1(3, at(3), 1, 21),
		"one across the next":  make1(9, at(9), 2, 20),
		"one that is not here": make1(35, at(35), 1, 20),
		"two batches":          append(slices.Clone(make1(3, at(3), 1, 20)), make1(4, at(4), 1, 20)...),
		"the last, too short":  make1(34, at(34), 1, 19),
	} {
		if err := s.Repair(b); err == nil && what != "one of another size" {
			t.Errorf("%s was taken", what)
		} else if err == nil {
			t.Errorf("%s was taken, and wrote into its neighbour", what)
		}
	}
	name := dir + "/00000000000000000000.segment"
	if got := contents(t, d); !bytes.Equal(got[name], want[name]) {
		t.Error("a refused repair changed the file")
	}
}

func TestVerifyGoesOnBehindDamage(t *testing.T) {
	d, _ := filled(t)
	name := dir + "/00000000000000000010.segment"
	size := int64(len(make1(0, 0, 1, 20)))
	must(t, d.FlipBit(name, 8*(size+90)))   // offset 11
	must(t, d.FlipBit(name, 8*(8*size+90))) // offset 18, behind an index entry
	must(t, d.FlipBit(dir+"/00000000000000000030.active", 8*90))
	n, found, err := Verify(d.FS(), dir, 0, 35)
	must(t, err)
	var at []model.Offset
	for _, f := range found {
		at = append(at, f.Offset)
	}
	if !slices.Equal(at, []model.Offset{11, 18, 30}) || n < 20 {
		t.Fatalf("%d batches read, damage found at %v", n, found)
	}
	if n, found, err := Verify(simdisk.New().FS(), dir, 5, 5); n != 0 || found != nil || err != nil {
		t.Fatal(n, found, err)
	}
	if _, found, err := Verify(simdisk.New().FS(), dir, 0, 5); len(found) != 1 || err != nil {
		t.Fatal(found, err)
	}
}
