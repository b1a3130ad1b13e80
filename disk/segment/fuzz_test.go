package segment

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/osdisk"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

func fileBytes(t testing.TB, d *simdisk.Disk, name string) []byte {
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

// FuzzOpen: a file of any content, under either name, is refused, or what is
// read from it are whole batches at the right offsets.
func FuzzOpen(f *testing.F) {
	d, _ := filled(f)
	for i, file := range d.Files() {
		if i == 0 || i == 3 {
			b := fileBytes(f, d, file.Name)
			f.Add(b, i == 0, uint16(5))
			f.Add(b, i == 0, uint16(10))
			f.Add(b[:len(b)-footerSize], i == 0, uint16(10))
		}
	}
	f.Add([]byte{}, true, uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, rolled bool, end uint16) {
		d := simdisk.New()
		must(t, d.FS().MkdirAll(dir))
		h, err := d.FS().Create(dir + "/" + (&part{rolled: rolled}).name())
		must(t, err)
		_, err = h.WriteAt(data, 0)
		must(t, err)
		var damage *Damaged
		s, err := open(d.FS(), dir, 0, model.Offset(end), 300)
		if err != nil {
			if !errors.As(err, &damage) {
				t.Fatal(err)
			}
			return
		}
		for o := range min(s.End(), 40) {
			run, err := s.Read(o, 1000)
			if err != nil {
				if !errors.As(err, &damage) {
					t.Fatal(err)
				}
				continue
			}
			v, err := batch.Parse(run)
			if err != nil || v.Base() > o || v.Next() <= o {
				t.Fatalf("read %d: %v", o, err)
			}
		}
		for _, at := range []model.Wall{math.MinInt64, 0, 150, math.MaxInt64} {
			if _, err := s.ReadAt(at); err != nil && !errors.As(err, &damage) {
				t.Fatal(err)
			}
		}
		next := make1(s.End(), 1, 1, 10)
		must(t, s.Append(next))
		must(t, s.Roll(next.Next()))
	})
}

// FuzzIndex: no index region makes an index that cannot be used.
func FuzzIndex(f *testing.F) {
	x := newIndex()
	for o := range model.Offset(300) {
		x.add(make1(o, at(o), 1, 1), int64(o)*200, 1)
	}
	tail := appendTail(nil, &x, 0, 300, 300*200)
	f.Add(tail[:len(tail)-footerSize], 300)
	f.Add(tail[:100], 1)
	f.Fuzz(func(t *testing.T, data []byte, entries int) {
		if entries < 1 || entries > 1<<16 {
			return
		}
		x, err := parseIndex(data, entries, 300*200, 9)
		if err != nil {
			return
		}
		for _, k := range []uint64{0, 1, 299, math.MaxUint64} {
			if e := x.byOffset(model.Offset(k)); e.position < 0 || e.position >= 300*200 {
				t.Fatalf("%d is at %d", k, e.position)
			}
			_ = x.byTime(model.Wall(k))
		}
	})
}

// TestBesideWriter: reads run beside appends, rolls, drops and removal of the
// files being read. Run with -race, it also shows who touches what.
func TestBesideWriter(t *testing.T) {
	f, err := osdisk.Open(t.TempDir())
	must(t, err)
	defer f.Close()
	s, err := open(f, dir, 0, 0, 200)
	must(t, err)
	var done atomic.Bool
	var reads atomic.Int64
	var wg sync.WaitGroup
	for r := range 3 {
		wg.Go(func() {
			for i := 0; !done.Load(); i++ {
				start, end := s.Start(), s.End()
				if start == end {
					continue
				}
				o := start + model.Offset(i*7+r)%(end-start)
				run, err := s.Read(o, 2000)
				if errors.Is(err, ErrBelowStart) {
					continue // dropped meanwhile
				}
				if err != nil || len(run) == 0 || batch.View(run).Base() > o || batch.View(run).Next() <= o {
					t.Errorf("read %d: %d bytes, %v", o, len(run), err)
					return
				}
				if run, err = s.ReadAt(at(o)); err == nil && len(run) > 0 && batch.View(run).AppendTime() < at(o) {
					t.Errorf("read at %d gave %d", at(o), batch.View(run).AppendTime())
				}
				reads.Add(1)
			}
		})
	}
	for o := model.Offset(0); o < 3000 || reads.Load() < 200; o++ {
		must(t, s.Append(make1(o, at(o), 1, 40)))
		if o%20 == 19 {
			must(t, s.Roll(o+1))
		}
		if o%100 == 99 {
			must(t, s.Drop(max(o, 150)-150))
		}
	}
	done.Store(true)
	wg.Wait()
	must(t, s.Remove())
}

// BenchmarkRead is a run of 1 MiB at random places of a store on the real disk,
// with all that was ever written still in the system's cache.
func BenchmarkRead(b *testing.B) {
	f, err := osdisk.Open(b.TempDir())
	must(b, err)
	defer f.Close()
	s, err := Open(f, dir, 0, 0)
	must(b, err)
	for o := model.Offset(0); o < 4000; o++ {
		must(b, s.Append(make1(o, at(o), 1, 64<<10)))
		if o%1000 == 999 {
			must(b, s.Roll(o+1))
		}
	}
	for _, size := range []int{1, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			o, n := model.Offset(0), int64(0)
			for b.Loop() {
				run, err := s.Read(o, size)
				must(b, err)
				o = (o + 1237) % 4000
				n += int64(len(run))
			}
			b.SetBytes(n / int64(b.N))
		})
	}
}

// BenchmarkAppend is without a sync, as on the way of a publish.
func BenchmarkAppend(b *testing.B) {
	f, err := osdisk.Open(b.TempDir())
	must(b, err)
	defer f.Close()
	s, err := Open(f, dir, 0, 0)
	must(b, err)
	v := make1(0, 0, 64, 1<<10)
	b.SetBytes(int64(len(v)))
	for b.Loop() {
		v.Stamp(s.End(), 1)
		must(b, s.Append(v))
		if s.End()%(64*1000) == 0 {
			must(b, s.Roll(s.End()))
			must(b, s.Drop(s.End()))
		}
	}
}
