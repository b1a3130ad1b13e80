package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

const dir = "segments/1024"

// make1 is a stamped batch of count messages, each with a payload of size bytes.
func make1(base model.Offset, at model.Wall, count, size int) batch.View {
	msgs := make([]batch.Message, count)
	for i := range msgs {
		msgs[i] = batch.Message{Key: fmt.Append(nil, "k", i), Payload: bytes.Repeat([]byte{byte(base)}, size)}
	}
	v := batch.Encode(msgs, batch.Options{})
	v.Stamp(base, at)
	return v
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// filled is a store with segments of [0,10), [10,20), [20,30) rolled and
// [30,35) active, one message a batch, append time 100 + 10*offset, all synced.
func filled(t testing.TB) (*simdisk.Disk, *Store) {
	t.Helper()
	d := simdisk.New()
	s, err := open(d.FS(), dir, 0, 0, 300)
	must(t, err)
	for o := model.Offset(0); o < 35; o++ {
		must(t, s.Append(make1(o, at(o), 1, 20)))
		if o%10 == 9 {
			must(t, s.Roll(o+1))
		}
	}
	must(t, s.Sync())
	return d, s
}

func at(o model.Offset) model.Wall { return model.Wall(100 + 10*o) }

// bases lists a run's batches.
func bases(t testing.TB, run []byte) string {
	t.Helper()
	vs, err := batch.Split(run)
	must(t, err)
	var out []string
	for _, v := range vs {
		out = append(out, fmt.Sprint(v.Base()))
	}
	return strings.Join(out, " ")
}

func TestRead(t *testing.T) {
	_, s := filled(t)
	one := len(make1(0, 0, 1, 20))
	for _, c := range []struct {
		offset model.Offset
		max    int
		want   string
	}{
		{0, 1, "0"}, {0, 2*one + 1, "0 1"}, {7, 100 * one, "7 8 9"}, {9, 100 * one, "9"}, {10, one, "10"},
		{33, 100 * one, "33 34"}, {34, 0, "34"}, {35, 1, ""}, {99, 1, ""},
	} {
		run, err := s.Read(c.offset, c.max)
		must(t, err)
		if got := bases(t, run); got != c.want {
			t.Errorf("read %d max %d: %q, want %q", c.offset, c.max, got, c.want)
		}
	}
	for _, c := range []struct {
		at   model.Wall
		want string
	}{
		{0, "0"}, {100, "0"}, {101, "1"}, {190, "9"}, {191, "10"}, {200, "10"}, {440, "34"}, {441, ""}, {-1 << 63, "0"},
	} {
		run, err := s.ReadAt(c.at)
		must(t, err)
		if got := bases(t, run); got != c.want {
			t.Errorf("read at %d: %q, want %q", c.at, got, c.want)
		}
	}
}

// TestReadWithinBatch: the run begins with the batch that contains the offset,
// which may be larger than maxBytes and than the distance of index entries.
func TestReadWithinBatch(t *testing.T) {
	s, err := Open(simdisk.New().FS(), dir, 0, 0)
	must(t, err)
	big := make1(0, 5, 10, 30_000)
	must(t, s.Append(big))
	must(t, s.Append(make1(10, 6, 3, 10)))
	must(t, s.Append(make1(13, 6, 1, 200_000)))
	for _, o := range []model.Offset{0, 4, 9} {
		run, err := s.Read(o, 10)
		must(t, err)
		if !bytes.Equal(run, big) {
			t.Fatalf("read %d gave %d bytes, want the batch of %d", o, len(run), len(big))
		}
	}
	run, err := s.Read(12, 1<<20)
	must(t, err)
	if got := bases(t, run); got != "10 13" {
		t.Fatalf("got %q", got)
	}
}

// TestReadAtWhenTimeWentBack: still the first batch in the log's order.
func TestReadAtWhenTimeWentBack(t *testing.T) {
	s, err := open(simdisk.New().FS(), dir, 0, 0, 1)
	must(t, err)
	times := []model.Wall{10, 30, 20, 5, 40, 35, 40}
	for i, at := range times {
		must(t, s.Append(make1(model.Offset(i), at, 1, 10)))
		if i == 3 {
			must(t, s.Roll(4))
		}
	}
	for at := model.Wall(0); at < 45; at++ {
		want := ""
		for i, have := range times {
			if have >= at {
				want = fmt.Sprint(i)
				break
			}
		}
		run, err := s.ReadAt(at)
		must(t, err)
		if got := bases(t, run); got != want {
			t.Fatalf("at %d: got %q, want %q", at, got, want)
		}
	}
}

func TestDropResetRemove(t *testing.T) {
	d, s := filled(t)
	must(t, s.Drop(19))
	if s.Start() != 10 {
		t.Fatalf("start is %d", s.Start())
	}
	must(t, s.Drop(1000))
	if s.Start() != 30 || s.End() != 35 {
		t.Fatalf("[%d, %d)", s.Start(), s.End())
	}
	if _, err := s.Read(29, 1); !errors.Is(err, ErrBelowStart) {
		t.Fatalf("read below start: %v", err)
	}
	must(t, s.Reset(100))
	if s.Start() != 100 || s.End() != 100 || len(d.Files()) != 0 {
		t.Fatalf("[%d, %d), files %v", s.Start(), s.End(), d.Files())
	}
	if err := s.Append(make1(35, 0, 1, 1)); err == nil {
		t.Fatal("an append that does not begin at End was taken")
	}
	must(t, s.Append(make1(100, 0, 1, 1)))
	must(t, s.Sync())
	must(t, s.Remove())
	d.Crash(simdisk.CrashMode{Keep: simdisk.KeepNone}, nil)
	if infos, err := d.FS().ReadDir("segments"); err != nil || len(infos) != 0 {
		t.Fatalf("left after Remove: %v, %v", infos, err)
	}
	if err := s.Append(make1(101, 0, 1, 1)); err == nil {
		t.Fatal("a removed store took an append")
	}
}

// TestReopen: every pair of marks that a manifest can name gives that interval.
func TestReopen(t *testing.T) {
	d, _ := filled(t)
	for end := model.Offset(0); end <= 35; end++ {
		for _, start := range []model.Offset{0, 5, 10, 25, 35} {
			if start > end {
				continue
			}
			c := d.Clone()
			s, err := open(c.FS(), dir, start, end, 300)
			must(t, err)
			first := start / 10 * 10
			if start == end {
				first = end
			}
			if s.Start() != first || s.End() != end {
				t.Fatalf("opened [%d, %d) as [%d, %d)", start, end, s.Start(), s.End())
			}
			for o := end; o < end+15; o++ {
				must(t, s.Append(make1(o, at(o), 1, 20)))
				if o%10 == 9 {
					must(t, s.Roll(o+1))
				}
			}
			must(t, s.Sync())
			c.Crash(simdisk.CrashMode{Keep: simdisk.KeepNone}, nil)
			s, err = open(c.FS(), dir, start, end+15, 300)
			must(t, err)
			for o := first; o < end+15; o++ {
				run, err := s.Read(o, 1)
				must(t, err)
				if !bytes.Equal(run, make1(o, at(o), 1, 20)) {
					t.Fatalf("marks [%d, %d): offset %d is not what was written", start, end, o)
				}
			}
		}
	}
}

// TestOpenReadsLittle: a store of many rolled segments opens by its footers.
func TestOpenReadsLittle(t *testing.T) {
	d := simdisk.New()
	s, err := Open(d.FS(), dir, 0, 0)
	must(t, err)
	o := model.Offset(0)
	for range 100 {
		for range 4 {
			must(t, s.Append(make1(o, at(o), 1, 20_000)))
			o++
		}
		must(t, s.Roll(o))
	}
	must(t, s.Append(make1(o, at(o), 1, 20_000)))
	must(t, s.Sync())
	f := &countingFS{FS: d.FS()}
	s, err = Open(f, dir, 0, o+1)
	must(t, err)
	if most := 100*footerSize + 21_000; f.read > most {
		t.Fatalf("opening read %d bytes, want at most %d", f.read, most)
	}
	if f.open > 1+openFiles {
		t.Fatalf("%d files stayed open", f.open)
	}
	for i := range o {
		_, err := s.Read(i, 1)
		must(t, err)
	}
	if f.open > 1+openFiles {
		t.Fatalf("%d files stayed open after reading", f.open)
	}
	must(t, s.Close())
	if f.open != 0 {
		t.Fatalf("%d files stayed open after closing", f.open)
	}
}

type countingFS struct {
	disk.FS
	read, open int
}

type countingFile struct {
	disk.File
	fs *countingFS
}

func (f *countingFS) Open(name string) (disk.File, error) {
	h, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	f.open++
	return &countingFile{h, f}, nil
}

func (f *countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.fs.read += n
	return n, err
}

func (f *countingFile) Close() error {
	f.fs.open--
	return f.File.Close()
}

// TestEveryFlip: a flipped bit anywhere in a store's files is refused at open,
// found by a read, or without effect on what is returned.
func TestEveryFlip(t *testing.T) {
	d, _ := filled(t)
	refused, found, harmless := 0, 0, 0
	for _, f := range d.Files() {
		for bit := range f.Size * 8 {
			c := d.Clone()
			must(t, c.FlipBit(f.Name, bit))
			var damage *Damaged
			s, err := open(c.FS(), dir, 0, 35, 300)
			if err != nil {
				if !errors.As(err, &damage) || damage.File != f.Name {
					t.Fatalf("%s bit %d: %v", f.Name, bit, err)
				}
				refused++
				continue
			}
			// The batch with the flip in it, if it is one, and its neighbours.
			bad := 0
			var base model.Offset
			_, err = fmt.Sscanf(f.Name, dir+"/%d", &base)
			must(t, err)
			hit := base + model.Offset(bit/8/int64(len(make1(0, 0, 1, 20))))
			for o := max(base, hit-min(hit, 1)); o < min(hit+2, base+10, 35); o++ {
				run, err := s.Read(o, 1)
				switch {
				case err == nil && !bytes.Equal(run, make1(o, at(o), 1, 20)):
					t.Fatalf("%s bit %d: offset %d is served wrongly", f.Name, bit, o)
				case err != nil && (!errors.As(err, &damage) || damage.File != f.Name):
					t.Fatalf("%s bit %d: offset %d: %v", f.Name, bit, o, err)
				case err != nil:
					bad++
				}
				if run, err := s.ReadAt(at(o)); err == nil && !bytes.Equal(run, make1(o, at(o), 1, 20)) {
					t.Fatalf("%s bit %d: time of offset %d is served wrongly", f.Name, bit, o)
				}
			}
			if hit < base+10 && bad == 0 {
				t.Fatalf("%s bit %d: the flip in offset %d's batch was not found", f.Name, bit, hit)
			}
			if bad > 0 {
				found++
			} else {
				harmless++
			}
		}
	}
	t.Logf("flipped bits: %d refused at open, %d found by reads, %d without effect (footer or index, rebuilt)",
		refused, found, harmless)
	if refused == 0 || found == 0 || harmless == 0 {
		t.Fatal("a kind of outcome did not occur")
	}
}

// TestEveryCut: a file that is cut anywhere is refused if its end is needed.
func TestEveryCut(t *testing.T) {
	d, _ := filled(t)
	for _, f := range d.Files() {
		for size := range f.Size {
			c := d.Clone()
			h, err := c.FS().Open(f.Name)
			must(t, err)
			must(t, h.Truncate(size))
			s, err := open(c.FS(), dir, 0, 35, 300)
			var damage *Damaged
			if err != nil {
				if !errors.As(err, &damage) || damage.File != f.Name {
					t.Fatalf("%s cut at %d: %v", f.Name, size, err)
				}
				continue
			}
			if s.Rebuilt() != 1 {
				t.Fatalf("%s cut at %d went unseen", f.Name, size)
			}
			for o := model.Offset(0); o < 35; o++ {
				run, err := s.Read(o, 1)
				must(t, err)
				if !bytes.Equal(run, make1(o, at(o), 1, 20)) {
					t.Fatalf("%s cut at %d: offset %d is served wrongly", f.Name, size, o)
				}
			}
		}
	}
}

func TestMissingFile(t *testing.T) {
	d, _ := filled(t)
	for _, f := range d.Files() {
		c := d.Clone()
		must(t, c.FS().Remove(f.Name))
		var damage *Damaged
		if _, err := Open(c.FS(), dir, 0, 35); !errors.As(err, &damage) {
			t.Fatalf("without %s: %v", f.Name, err)
		}
	}
}

// TestFakeFooter: a publisher whose payload ends like a footer cannot make an
// active segment look rolled.
func TestFakeFooter(t *testing.T) {
	d := simdisk.New()
	s, err := Open(d.FS(), dir, 0, 0)
	must(t, err)
	must(t, s.Append(make1(0, 5, 1, 10)))
	x := newIndex()
	x.add(make1(0, 5, 1, 10), 0, spacing)
	fake := appendTail(nil, &x, 0, 1, int64(len(make1(0, 5, 1, 10))))
	v := batch.Encode([]batch.Message{{Payload: fake}}, batch.Options{})
	v.Stamp(1, 6)
	must(t, s.Append(v))
	must(t, s.Sync())
	s, err = Open(d.FS(), dir, 0, 2)
	must(t, err)
	if got := s.Segments(); len(got) != 1 || got[0].Rolled || got[0].End != 2 {
		t.Fatalf("opened as %+v", got)
	}
}

// TestDiskFull: a failed append or roll changes nothing and works when tried again.
func TestDiskFull(t *testing.T) {
	for room := uint64(0); room < 400; room += 7 {
		d := simdisk.New()
		s, err := Open(d.FS(), dir, 0, 0)
		must(t, err)
		must(t, s.Append(make1(0, 5, 1, 50)))
		d.SetFree(room)
		failed := 0
		step := func(f func() error) {
			t.Helper()
			err := f()
			if errors.Is(err, disk.ErrNoSpace) {
				failed++
				run, err := s.Read(0, 1000)
				must(t, err)
				if len(run) == 0 || bases(t, run)[0] != '0' {
					t.Fatalf("room %d: what was stored before is not readable", room)
				}
				d.SetFree(1 << 20)
				err = f()
				must(t, err)
				return
			}
			must(t, err)
		}
		step(func() error { return s.Append(make1(1, 6, 1, 50)) })
		step(func() error { return s.Roll(2) })
		step(func() error { return s.Append(make1(2, 7, 1, 50)) })
		must(t, s.Sync())
		d.Crash(simdisk.CrashMode{Keep: simdisk.KeepNone}, nil)
		s, err = Open(d.FS(), dir, 0, 3)
		must(t, err)
		run, err := s.Read(0, 1<<20)
		must(t, err)
		if got := bases(t, run); got != "0 1" {
			t.Fatalf("room %d: %q", room, got)
		}
		if s.Rebuilt() != 0 {
			t.Fatalf("room %d: the footer was not whole", room)
		}
		if room < 300 && failed == 0 {
			t.Fatalf("room %d: the disk was never full", room)
		}
	}
}

// TestRollAfterFailedAppend: what a failed append left in the file does not end
// up behind the footer.
func TestRollAfterFailedAppend(t *testing.T) {
	d := simdisk.New()
	s, err := Open(d.FS(), dir, 0, 0)
	must(t, err)
	must(t, s.Append(make1(0, 5, 1, 50)))
	d.SetFree(5000)
	if err := s.Append(make1(1, 6, 1, 9000)); !errors.Is(err, disk.ErrNoSpace) {
		t.Fatalf("append: %v", err)
	}
	must(t, s.Roll(1))
	must(t, s.Sync())
	s, err = Open(d.FS(), dir, 0, 1)
	must(t, err)
	if s.Rebuilt() != 0 || !s.Segments()[0].Rolled {
		t.Fatal("the footer is not at the file's end")
	}
}

// TestFailedSync: nothing is written any more, reads go on.
func TestFailedSync(t *testing.T) {
	d, s := filled(t)
	must(t, s.Append(make1(35, at(35), 1, 20)))
	d.FailSync(dir, 1)
	first := s.Sync()
	if !errors.Is(first, simdisk.ErrFault) {
		t.Fatalf("sync: %v", first)
	}
	for name, err := range map[string]error{
		"sync": s.Sync(), "append": s.Append(make1(36, at(36), 1, 20)), "roll": s.Roll(36),
	} {
		if err != first {
			t.Fatalf("%s after a failed sync: %v", name, err)
		}
	}
	run, err := s.Read(35, 1)
	must(t, err)
	if bases(t, run) != "35" {
		t.Fatal("offset 35 is not readable")
	}
}

// TestCrashDuringRecovery: recovery that crashes is done again with the same result.
func TestCrashDuringRecovery(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d, s := filled(t)
		for o := model.Offset(35); o < 48; o++ {
			must(t, s.Append(make1(o, at(o), 1, 20)))
			if o%10 == 9 {
				must(t, s.Roll(o+1))
			}
		}
		end := model.Offset(1 + rng.IntN(35))
		for range 4 {
			d.Crash(simdisk.CrashMode{Keep: simdisk.Keep(rng.IntN(3))}, rng)
			s, err := open(d.FS(), dir, 0, end, 300)
			must(t, err)
			for o := end; o < end+model.Offset(rng.IntN(12)); o++ {
				must(t, s.Append(make1(o, at(o)+1, 1, 20)))
				if rng.IntN(4) == 0 {
					must(t, s.Roll(o+1))
				}
			}
			if rng.IntN(3) == 0 {
				must(t, s.Sync())
				end = s.End()
			}
			for o := range s.End() {
				run, err := s.Read(o, 1)
				must(t, err)
				if batch.View(run).Base() != o {
					t.Fatalf("seed %d: offset %d gave %d", seed, o, batch.View(run).Base())
				}
			}
		}
	}
}
