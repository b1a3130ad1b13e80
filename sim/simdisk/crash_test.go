package simdisk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/disk"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, h disk.File, text string, off int64) {
	t.Helper()
	_, err := h.WriteAt([]byte(text), off)
	must(t, err)
}

// dump is a disk's whole content.
func dump(d *Disk) string {
	var b strings.Builder
	for _, f := range d.Files() {
		n, err := d.find("dump", f.Name)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "%s=%q ", f.Name, n.data)
	}
	return b.String()
}

// unsettled is a disk with something of every kind that is not synced yet.
func unsettled(t *testing.T) *Disk {
	t.Helper()
	d := New()
	f := d.FS()
	must(t, f.MkdirAll("d"))
	h, err := f.Create("a")
	must(t, err)
	put(t, h, "aaaaaa", 0)
	must(t, h.Sync())
	must(t, f.SyncDir("."))
	put(t, h, "XXXX", 4)
	must(t, h.Truncate(7))
	g, err := f.Create("d/b")
	must(t, err)
	put(t, g, "bbbb", 0)
	must(t, g.Sync()) // its folder's entry is not
	must(t, f.Rename("a", "c"))
	return d
}

func TestCrashKeeps(t *testing.T) {
	d := unsettled(t)
	none, all := d.Clone(), d.Clone()
	none.Crash(CrashMode{KeepNone}, nil)
	if got, want := dump(none), `a="aaaaaa" `; got != want {
		t.Errorf("kept none: %s, want %s", got, want)
	}
	all.Crash(CrashMode{KeepAll}, nil)
	if got, want := dump(all), `c="aaaaXXX" d/b="bbbb" `; got != want {
		t.Errorf("kept all: %s, want %s", got, want)
	}
	seen := map[string]bool{}
	for seed := range uint64(500) {
		a, b := d.Clone(), d.Clone()
		a.Crash(CrashMode{}, rand.New(rand.NewPCG(seed, 1)))
		b.Crash(CrashMode{}, rand.New(rand.NewPCG(seed, 1)))
		if dump(a) != dump(b) {
			t.Fatalf("seed %d: %s and %s", seed, dump(a), dump(b))
		}
		seen[dump(a)] = true
		before := dump(a)
		a.Crash(CrashMode{KeepNone}, nil)
		if dump(a) != before {
			t.Fatalf("seed %d: what a crash left was not durable: %s, then %s", seed, before, dump(a))
		}
	}
	for _, want := range []string{`a="aaaaaa" `, `c="aaaaXXX" d/b="bbbb" `, `c="aaaaaa" `, `a="aaaaaa" d/b="bbbb" `} {
		if !seen[want] {
			t.Errorf("never seen: %s of %d", want, len(seen))
		}
	}
	if len(seen) < 8 {
		t.Errorf("only %d pictures", len(seen))
	}
}

// TestCrashNeverTouchesSynced: bytes that were synced and not written since stay.
func TestCrashNeverTouchesSynced(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		d := New()
		h, err := d.FS().Create("f")
		must(t, err)
		must(t, d.FS().SyncDir("."))
		var synced, now []byte
		touched := map[int]bool{}
		for range 30 {
			off, n := rng.IntN(4000), rng.IntN(2000)
			b := bytes.Repeat([]byte{byte(1 + rng.IntN(200))}, n)
			put(t, h, string(b), int64(off))
			if grow := off + n - len(now); n > 0 && grow > 0 {
				now = append(now, make([]byte, grow)...)
			}
			copy(now[min(off, len(now)):], b)
			for i := range n {
				touched[off+i] = true
			}
			if rng.IntN(3) == 0 {
				must(t, h.Sync())
				synced = bytes.Clone(now)
				clear(touched)
			}
		}
		d.Crash(CrashMode{}, rng)
		n, err := d.find("", "f")
		must(t, err)
		if len(n.data) < len(synced) || len(n.data) > len(now) {
			t.Fatalf("seed %d: size %d, synced %d, now %d", seed, len(n.data), len(synced), len(now))
		}
		for i := range synced {
			if !touched[i] && n.data[i] != synced[i] {
				t.Fatalf("seed %d: synced byte %d is %d, was %d", seed, i, n.data[i], synced[i])
			}
		}
	}
}

func TestHandlesDieInACrash(t *testing.T) {
	d := New()
	f := d.FS()
	h, err := f.Create("a")
	must(t, err)
	must(t, f.SyncDir("."))
	d.Crash(CrashMode{KeepAll}, nil)
	_, create := f.Create("b")
	_, read := h.ReadAt(make([]byte, 1), 0)
	_, write := h.WriteAt([]byte("x"), 0)
	_, size := h.Size()
	for what, err := range map[string]error{
		"create": create, "read": read, "write": write, "size": size, "sync": h.Sync(), "syncdir": f.SyncDir("."),
		"rename": f.Rename("a", "b"), "remove": f.Remove("a"),
	} {
		if !errors.Is(err, ErrCrashed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := d.FS().Open("a"); err != nil {
		t.Errorf("after the crash: %v", err)
	}
}

func TestFull(t *testing.T) {
	d := New()
	f := d.FS()
	h, err := f.Create("a")
	must(t, err)
	d.SetFree(10)
	put(t, h, "12345678", 0)
	n, err := h.WriteAt([]byte("abcdef"), 8)
	if n != 2 || !errors.Is(err, disk.ErrNoSpace) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	put(t, h, "xx", 0) // what is there can be overwritten
	if _, err := f.Create("b"); !errors.Is(err, disk.ErrNoSpace) {
		t.Fatalf("create: %v", err)
	}
	must(t, h.Truncate(4))
	if free, _ := f.Free(); free != 6 {
		t.Fatalf("free is %d", free)
	}
	must(t, h.Sync())
	must(t, f.SyncDir("."))
	must(t, f.Remove("a"))
	if free, _ := f.Free(); free != 10 {
		t.Fatalf("free is %d", free)
	}
	d.Crash(CrashMode{KeepNone}, nil)
	if free, _ := d.FS().Free(); free != 6 {
		t.Fatalf("the removal was lost; free is %d", free)
	}
}

// TestFailedSync: the next one succeeds, and makes nothing durable.
func TestFailedSync(t *testing.T) {
	d := New()
	f := d.FS()
	h, err := f.Create("a")
	must(t, err)
	put(t, h, "old", 0)
	must(t, h.Sync())
	must(t, f.SyncDir("."))
	put(t, h, "new", 0)
	d.FailSync("a", 1)
	if err := h.Sync(); !errors.Is(err, ErrFault) {
		t.Fatalf("sync: %v", err)
	}
	must(t, h.Sync())
	d.Crash(CrashMode{KeepNone}, nil)
	if got := dump(d); got != `a="old" ` {
		t.Fatal(got)
	}
}

func TestFlipBit(t *testing.T) {
	d := unsettled(t)
	must(t, d.FlipBit("c", 9))
	if got := dump(d); !strings.Contains(got, `c="acaaXXX"`) {
		t.Fatal(got)
	}
	if d.FlipBit("c", 7*8) == nil || d.FlipBit("nowhere", 0) == nil || d.FlipBit("d", 0) == nil {
		t.Fatal("flipped a bit that is not there")
	}
}

// TestClone: the copy and the original do not share anything.
func TestClone(t *testing.T) {
	d := unsettled(t)
	before := dump(d)
	c := d.Clone()
	h, err := c.FS().Open("c")
	must(t, err)
	put(t, h, "zzzzzzzzzz", 0)
	must(t, c.FS().Remove("d/b"))
	c.Crash(CrashMode{KeepNone}, nil)
	if dump(d) != before {
		t.Fatalf("the original changed to %s", dump(d))
	}
}

// BenchmarkAppend is the simulator's cost of one journal record.
func BenchmarkAppend(b *testing.B) {
	d := New()
	h, err := d.FS().Create("a")
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 300)
	for i := range b.N {
		if _, err := h.WriteAt(buf, int64(i)*300); err != nil {
			b.Fatal(err)
		}
		if i%4 == 3 {
			_ = h.Sync()
		}
	}
}
