package disktest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/osdisk"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// TestFS runs the contract of disk.FS that needs no crash.
func TestFS(t *testing.T) {
	makers := map[string]func(t *testing.T) disk.FS{
		"memory": func(*testing.T) disk.FS { return simdisk.New().FS() },
		"real": func(t *testing.T) disk.FS {
			f, err := osdisk.Open(t.TempDir() + "/made/data")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return f
		},
	}
	cases := map[string]func(t *testing.T, f disk.FS){
		"create, write, read": createWriteRead, "holes and truncation": holesAndTruncation,
		"folders": folders, "rename": rename, "remove": remove, "bad names": badNames, "free": free,
	}
	for fsName, make := range makers {
		for name, run := range cases {
			t.Run(fsName+"/"+name, func(t *testing.T) { run(t, make(t)) })
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want %v", err, target)
	}
}

func write(t *testing.T, f disk.FS, name, text string) {
	t.Helper()
	h, err := f.Create(name)
	must(t, err)
	_, err = h.WriteAt([]byte(text), 0)
	must(t, err)
	must(t, h.Sync())
	must(t, h.Close())
}

func read(t *testing.T, f disk.FS, name string) string {
	t.Helper()
	h, err := f.Open(name)
	must(t, err)
	defer h.Close()
	size, err := h.Size()
	must(t, err)
	b := make([]byte, size)
	if n, err := h.ReadAt(b, 0); n != len(b) {
		t.Fatalf("read %d of %d bytes: %v", n, len(b), err)
	}
	return string(b)
}

func names(t *testing.T, f disk.FS, dir string) string {
	t.Helper()
	infos, err := f.ReadDir(dir)
	must(t, err)
	var out []string
	for _, i := range infos {
		name := i.Name()
		if i.IsDir() {
			name += "/"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func createWriteRead(t *testing.T, f disk.FS) {
	write(t, f, "a", "hello")
	if _, err := f.Create("a"); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second create: %v", err)
	}
	_, err := f.Open("b")
	want(t, err, fs.ErrNotExist)
	h, err := f.Open("a")
	must(t, err)
	_, err = h.WriteAt([]byte("LLO, you"), 2)
	must(t, err)
	b := make([]byte, 3)
	if _, err := h.ReadAt(b, 7); err != nil || string(b) != "you" {
		t.Fatalf("read %q, %v", b, err)
	}
	if n, err := h.ReadAt(b, 9); n != 1 || err != io.EOF {
		t.Fatalf("short read gave %d, %v", n, err)
	}
	if n, err := h.ReadAt(b, 99); n != 0 || err != io.EOF {
		t.Fatalf("read behind the end gave %d, %v", n, err)
	}
	must(t, h.Close())
	if _, err := h.WriteAt(b, 0); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("write after close: %v", err)
	}
	if got := read(t, f, "a"); got != "heLLO, you" {
		t.Fatalf("got %q", got)
	}
}

func holesAndTruncation(t *testing.T, f disk.FS) {
	write(t, f, "a", "abcdef")
	h, err := f.Open("a")
	must(t, err)
	must(t, h.Truncate(3))
	_, err = h.WriteAt([]byte("x"), 5)
	must(t, err)
	must(t, h.Truncate(8))
	size, err := h.Size()
	must(t, err)
	if size != 8 {
		t.Fatalf("size is %d", size)
	}
	must(t, h.Close())
	if got := []byte(read(t, f, "a")); !bytes.Equal(got, []byte("abc\x00\x00x\x00\x00")) {
		t.Fatalf("got %q", got)
	}
}

func folders(t *testing.T, f disk.FS) {
	must(t, f.MkdirAll("p/q/r"))
	must(t, f.MkdirAll("p/q/r"))
	must(t, f.MkdirAll("."))
	write(t, f, "p/z", "")
	write(t, f, "p/a", "12")
	if got := names(t, f, "p"); got != "a q/ z" {
		t.Fatalf("got %q", got)
	}
	if got := names(t, f, "."); got != "p/" {
		t.Fatalf("got %q", got)
	}
	infos, err := f.ReadDir("p")
	must(t, err)
	if infos[0].Size() != 2 {
		t.Fatalf("size in listing is %d", infos[0].Size())
	}
	for _, dir := range []string{".", "p", "p/q/r"} {
		must(t, f.SyncDir(dir))
	}
	_, err = f.ReadDir("nowhere")
	want(t, err, fs.ErrNotExist)
	want(t, f.SyncDir("nowhere"), fs.ErrNotExist)
	_, err = f.Create("nowhere/a")
	want(t, err, fs.ErrNotExist)
	if err := f.MkdirAll("p/a/b"); err == nil {
		t.Fatal("made a folder below a file")
	}
}

func rename(t *testing.T, f disk.FS) {
	must(t, f.MkdirAll("d"))
	write(t, f, "a", "new")
	write(t, f, "b", "old")
	must(t, f.Rename("a", "b"))
	if got := read(t, f, "b"); got != "new" {
		t.Fatalf("got %q", got)
	}
	must(t, f.Rename("b", "d/c"))
	if got := read(t, f, "d/c"); got != "new" {
		t.Fatalf("got %q", got)
	}
	if got := names(t, f, "."); got != "d/" {
		t.Fatalf("got %q", got)
	}
	want(t, f.Rename("a", "b"), fs.ErrNotExist)
}

func remove(t *testing.T, f disk.FS) {
	must(t, f.MkdirAll("d"))
	write(t, f, "d/a", "still readable")
	h, err := f.Open("d/a")
	must(t, err)
	if err := f.Remove("d"); err == nil {
		t.Fatal("removed a folder with a file in it")
	}
	must(t, f.Remove("d/a"))
	b := make([]byte, 5)
	if _, err := h.ReadAt(b, 0); err != nil {
		t.Fatalf("an open file that was removed cannot be read: %v", err)
	}
	must(t, h.Close())
	want(t, f.Remove("d/a"), fs.ErrNotExist)
	must(t, f.Remove("d"))
}

func badNames(t *testing.T, f disk.FS) {
	for _, name := range []string{"", "/a", "../a", "a/", "a//b", "./a"} {
		_, err := f.Create(name)
		want(t, err, fs.ErrInvalid)
		want(t, f.MkdirAll(name), fs.ErrInvalid)
	}
}

func free(t *testing.T, f disk.FS) {
	n, err := f.Free()
	must(t, err)
	if n == 0 {
		t.Fatal("nothing free")
	}
}

// TestLock: two opens of a folder fail, and closing releases it.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	a, err := osdisk.Open(dir)
	must(t, err)
	if _, err := osdisk.Open(dir); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Fatalf("second open: %v", err)
	}
	must(t, a.Close())
	b, err := osdisk.Open(dir)
	must(t, err)
	must(t, b.Close())
}
