package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/wal"

	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scratch is a folder whose syncs cost nothing, if there is one.
func scratch(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "journal")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// engines are both ways of writing.
var engines = map[string]func(dir string) *Engine{"direct": New, "tidwall": NewTidwall}

// open opens with the library's engine.
func open(t testing.TB, dir string) (*record.Log, []record.Record) {
	t.Helper()
	return openWith(t, NewTidwall(dir))
}

func openWith(t testing.TB, e *Engine) (*record.Log, []record.Record) {
	t.Helper()
	l, got, err := record.Open(e, 0, record.Mark{}, 77)
	must(t, err)
	return l, got
}

func refused(t testing.TB, dir, part string) {
	t.Helper()
	var r *record.Refused
	_, _, err := record.Open(NewTidwall(dir), 0, record.Mark{}, 78)
	if !errors.As(err, &r) || !strings.Contains(err.Error(), part) {
		t.Fatalf("want a refusal with %q, got %v", part, err)
	}
}

// files of the journal, in order.
func files(t testing.TB, dir string) (out []string) {
	t.Helper()
	found, stray, err := (&Engine{dir: dir}).list()
	must(t, err)
	if len(stray) > 0 {
		t.Fatalf("stray files %v", stray)
	}
	for _, g := range found {
		for _, f := range g.Files {
			out = append(out, filepath.Join(dir, f.Name))
		}
	}
	return out
}

// fill appends n records of the given size, with a sync after each.
func fill(t testing.TB, l *record.Log, n, size int) {
	t.Helper()
	for i := range n {
		_, err := l.Append(record.Record{Type: 1, Payload: bytes.Repeat([]byte{byte(i + 1)}, size)})
		must(t, err)
		must(t, l.Sync())
	}
}

// TestTrapZeroedTail: the library takes zeros for empty entries.
func TestTrapZeroedTail(t *testing.T) {
	dir := scratch(t)
	l, _ := open(t, dir)
	fill(t, l, 3, 10)
	must(t, l.Close())
	f := files(t, dir)[0]
	data, err := os.ReadFile(f)
	must(t, err)
	must(t, os.WriteFile(f, append(data, make([]byte, 500)...), 0o640))
	w, err := wal.Open(filepath.Dir(f), nil)
	must(t, err)
	if n, _ := w.LastIndex(); n != 4+500 {
		t.Fatalf("the library finds %d entries; this trap is gone", n)
	}
	must(t, w.Close())
	l, got := open(t, dir)
	if len(got) != 3 {
		t.Fatalf("%d records", len(got))
	}
	must(t, l.Close())
	// After the cut the library agrees with the rule.
	w, err = wal.Open(filepath.Dir(f), nil)
	must(t, err)
	if n, _ := w.LastIndex(); n != 1+3 {
		t.Fatalf("the library finds %d entries", n)
	}
	must(t, w.Close())
}

// TestTrapMiddleFile: the library opens, and panics when reading.
func TestTrapMiddleFile(t *testing.T) {
	dir := scratch(t)
	l, _ := open(t, dir)
	fill(t, l, 6, 3<<20)
	must(t, l.Close())
	all := files(t, dir)
	if len(all) != 4 {
		t.Fatalf("%d files", len(all))
	}
	middle, err := os.ReadFile(all[1])
	must(t, err)
	must(t, os.Remove(all[1]))
	refused(t, dir, "begins with frame")
	must(t, os.WriteFile(all[1], middle[:len(middle)-(3<<20)-64], 0o640)) // short by one frame
	refused(t, dir, "begins with frame")
	must(t, os.WriteFile(all[1], middle[:len(middle)-100], 0o640)) // short by a torn frame
	refused(t, dir, "later files follow")
	must(t, os.WriteFile(all[1], middle, 0o640))
	l, got := open(t, dir)
	if len(got) != 6 {
		t.Fatalf("%d records", len(got))
	}
	must(t, l.Close())
}

// TestTrapFailedSync: the library's next sync succeeds.
func TestTrapFailedSync(t *testing.T) {
	dir := scratch(t)
	e := NewTidwall(dir)
	l, _, err := record.Open(e, 0, record.Mark{}, 1)
	must(t, err)
	fill(t, l, 2, 10)
	// The library's own handle is closed below it: its sync fails.
	w := e.log
	must(t, w.Close())
	_, err = l.Append(record.Record{Type: 1})
	must(t, err)
	err = l.Sync()
	if err == nil {
		t.Fatal("the sync did not fail")
	}
	if again := l.Sync(); again != err {
		t.Fatalf("the next sync: %v", again)
	}
	if _, again := l.Append(record.Record{Type: 1}); again != err {
		t.Fatalf("the next append: %v", again)
	}
	if l.Durable() != 2 {
		t.Fatalf("durable is %d", l.Durable())
	}
	_ = l.Close()
	l, got := open(t, dir)
	if len(got) != 2 {
		t.Fatalf("%d records", len(got))
	}
	must(t, l.Close())
}

// TestTrapPanic: a panic of the library is an error, and stays.
func TestTrapPanic(t *testing.T) {
	e := NewTidwall(scratch(t))
	j, err := e.Open()
	must(t, err)
	must(t, j.Roll(disk.Generation{Number: 1, ID: 1}))
	must(t, e.log.Close())
	e.log = &wal.Log{}
	must(t, j.Append([]byte("x")))
	err = j.Sync()
	if err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Fatalf("sync: %v", err)
	}
	if again := j.Append([]byte("y")); again != err {
		t.Fatalf("append: %v", again)
	}
	e.log = nil
	must(t, e.Close())
}

// TestTrapTwoOpens: the second one of a folder fails.
func TestTrapTwoOpens(t *testing.T) {
	dir := scratch(t)
	l, _ := open(t, dir)
	if _, _, err := record.Open(New(dir), 0, record.Mark{}, 2); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("second open: %v", err)
	}
	must(t, l.Close())
	l, _ = open(t, dir)
	must(t, l.Close())
	must(t, os.WriteFile(filepath.Join(dir, "stray"), nil, 0o640))
	refused(t, dir, "do not belong")
	must(t, os.Remove(filepath.Join(dir, "stray")))
	l, _ = open(t, dir) // the refused open released the lock
	must(t, l.Close())
}

// TestFiles: frames of all sizes, many or one to a file, come back, and the
// engine knows of every file that the library begins.
func TestFiles(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) { testFiles(t, engine) })
	}
}

func testFiles(t *testing.T, engine func(dir string) *Engine) {
	dir := scratch(t)
	l, _ := openWith(t, engine(dir))
	var want []int
	sizes := []int{0, 100, flushBytes - record.HeaderSize - 1, flushBytes, 5 << 20,
		127 - record.HeaderSize, 128 - record.HeaderSize, 300_000, 3 << 20, 9 << 20}
	for i := range 60 {
		n := sizes[(i*7)%len(sizes)]
		if i%11 == 0 {
			n = fileBytes - record.HeaderSize - 4 - i
		}
		_, err := l.Append(record.Record{Type: 1, Payload: make([]byte, n)})
		must(t, err)
		want = append(want, n)
		if i%5 == 0 {
			must(t, l.Sync())
		}
	}
	must(t, l.Sync())
	must(t, l.Close())
	if n := len(files(t, dir)); n < 6 {
		t.Fatalf("only %d files", n)
	}
	l, got := openWith(t, engine(dir))
	var have []int
	for _, r := range got {
		have = append(have, len(r.Payload))
	}
	if !slices.Equal(have, want) {
		t.Fatalf("got %v, want %v", have, want)
	}
	must(t, l.Close())
}

// TestDropInSteps: one file goes with each sync.
func TestDropInSteps(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) { testDropInSteps(t, engine) })
	}
}

func testDropInSteps(t *testing.T, engine func(dir string) *Engine) {
	dir := scratch(t)
	l, _ := openWith(t, engine(dir))
	fill(t, l, 20, 3<<20)
	old := len(files(t, dir))
	must(t, l.Roll(2, 2))
	must(t, l.Drop(2))
	if n := len(files(t, dir)); n != old {
		t.Fatalf("%d files after the drop, want %d of the old and 1 new", n, old-1)
	}
	for i := range old - 1 {
		must(t, l.Sync())
		if n := len(files(t, dir)); n != old-1-i {
			t.Fatalf("%d files after %d syncs", n, i+1)
		}
	}
	must(t, l.Sync())
	must(t, l.Sync())
	found, _, err := (&Engine{dir: dir}).list()
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("%d generations are left", len(found))
	}
	must(t, l.Close())
}

// BenchmarkAppendSync is one record and one sync, on the folder's real disk.
func BenchmarkAppendSync(b *testing.B) {
	for _, size := range []int{300, 4 << 10, 64 << 10, 1 << 20} {
		for name, engine := range engines {
			b.Run(fmt.Sprint(name, "/", size), func(b *testing.B) { benchAppendSync(b, engine, size) })
		}
	}
}

func benchAppendSync(b *testing.B, engine func(dir string) *Engine, size int) {
	l, _ := openWith(b, engine(b.TempDir()))
	b.SetBytes(int64(size))
	payload := make([]byte, size)
	for b.Loop() {
		if _, err := l.Append(record.Record{Type: 1, Payload: payload}); err != nil {
			b.Fatal(err)
		}
		if err := l.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	_ = l.Close()
}

// TestEnginesTakeTurns: a folder written by one is gone on with by the other.
func TestEnginesTakeTurns(t *testing.T) {
	dir := scratch(t)
	for i := range 6 {
		engine := New
		if i%2 == 1 {
			engine = NewTidwall
		}
		l, got := openWith(t, engine(dir))
		if len(got) != 3*i {
			t.Fatalf("opening %d finds %d records, want %d", i, len(got), 3*i)
		}
		fill(t, l, 3, 100)
		must(t, l.Close())
	}
}

// TestDirectFailsForGood: after a failed write nothing is written any more.
func TestDirectFailsForGood(t *testing.T) {
	dir := scratch(t)
	e := New(dir)
	j, err := e.Open()
	must(t, err)
	must(t, j.Roll(disk.Generation{Number: 1, ID: 1}))
	must(t, j.(*direct).file.Close()) // below it: its writes fail
	must(t, j.Append([]byte("x")))
	if err = j.Sync(); err == nil {
		t.Fatal("the sync did not fail")
	}
	for _, again := range []error{j.Sync(), j.Append([]byte("y")), j.Roll(disk.Generation{Number: 2, ID: 2}), j.Drop(1)} {
		if again != err {
			t.Errorf("a later call gave %v, want %v", again, err)
		}
	}
	must(t, e.Close())
}

// TestFullDiskIsSaid: either way of writing says when it was for want of space.
func TestFullDiskIsSaid(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		c := chain{}
		err := c.fail(&os.PathError{Op: "write", Path: "f", Err: cause})
		if !errors.Is(err, disk.ErrNoSpace) || !errors.Is(err, cause) || c.fail(errors.New("later")) != err {
			t.Errorf("%v became %v", cause, err)
		}
	}
	if err := full(syscall.EIO); errors.Is(err, disk.ErrNoSpace) {
		t.Error(err)
	}
}
