// Package scratch runs the journal engines that write real files on a disk that
// is not real: a simulator hands them in for its own engine, and its disk's
// faults befall them unchanged.
//
// The engine works in a folder of its own under the system's temporary one, and
// the simulated disk is the truth. What the engine finds when it is opened is
// made from that disk; after each call the disk is given what the files gained
// and lost, and whatever the engine synced is synced there, at the moment at
// which the engine did it. So a crash of the simulated disk loses, tears and
// reorders exactly what the engine had not synced, by the simulator's seed; and
// its errors, its damage, its full disk come out of the engine's calls.
//
// Invariants:
//   - the engine's folder is a copy: nothing of it outlives the engine's Close;
//   - nothing is durable on the simulated disk that the engine did not sync;
//   - frames that the engine holds back in memory are not on either disk.
//
// There is no goroutine, no clock and no chance in it: only the names of the
// folders differ between two runs, and they do not come out.
package scratch

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/journal"
	"github.com/tapedeck/tapedeck/disk/record"
)

// Parent is where scratch folders are best made: in memory, where Linux has such
// a place, since syncs cost nothing there.
func Parent() string {
	const memory = "/dev/shm"
	if st, err := os.Stat(memory); err == nil && st.IsDir() {
		return memory
	}
	return os.TempDir()
}

// Factory makes engines of one kind. One goroutine at a time.
type Factory struct {
	// FileBytes is the size at which the engine ends a file, at first 16 KiB: a
	// simulated run writes little, and must see files end.
	FileBytes int
	// Parent is where the engines' folders are made; see Parent.
	Parent string

	name   string // of the engine, as disk/journal has it
	folder string // holds the engines' folders; empty until the first is needed
}

// New is a factory of the engine with the given name: journal.Own or
// journal.Tidwall.
func New(name string) *Factory { return &Factory{FileBytes: 16 << 10, Parent: Parent(), name: name} }

// Name is the engine's.
func (f *Factory) Name() string { return f.name }

// Engine is a journal engine over a folder of a disk, which need not exist yet.
// Close must be called on it when its process dies, too.
func (f *Factory) Engine(truth disk.FS, dir string) record.Engine {
	return &engine{factory: f, truth: truth, dir: dir}
}

// Close removes what is left of the engines' folders.
func (f *Factory) Close() error {
	if f.folder == "" {
		return nil
	}
	folder := f.folder
	f.folder = ""
	return os.RemoveAll(folder)
}

// root makes a folder for one engine.
func (f *Factory) root() (string, error) {
	if f.folder == "" {
		folder, err := os.MkdirTemp(f.Parent, "tapedeck-scratch-")
		if err != nil {
			return "", err
		}
		f.folder = folder
	}
	return os.MkdirTemp(f.folder, "node-")
}

// engine implements record.Engine.
type engine struct {
	factory *Factory
	truth   disk.FS
	dir     string // the journal's folder in truth

	inner *journal.Engine // nil: not begun, or closed
	open  disk.Journal    // of inner; nil: not open
	copy  mirror
}

// begin copies the folder for the inner engine to work in.
func (e *engine) begin() error {
	if e.inner != nil {
		return nil
	}
	root, err := e.factory.root()
	if err != nil {
		return err
	}
	e.copy = mirror{truth: e.truth, dir: e.dir, root: filepath.Join(root, "journal"), seen: map[string]int64{}}
	if err := e.copy.fetch(); err != nil {
		return errors.Join(err, os.RemoveAll(root))
	}
	inner, err := journal.Named(e.factory.name, e.copy.root)
	if err != nil {
		return errors.Join(err, os.RemoveAll(root))
	}
	e.inner = inner.Watched(journal.Watch{FileBytes: e.factory.FileBytes, Synced: e.copy.synced})
	return nil
}

// List implements record.Engine.
func (e *engine) List() ([]record.Found, []string, error) {
	if err := e.begin(); err != nil {
		return nil, nil, err
	}
	return e.inner.List()
}

// Read implements record.Engine.
func (e *engine) Read(f record.File) ([]byte, error) { return e.inner.Read(f) }

// Unwrap implements record.Engine.
func (e *engine) Unwrap(data []byte) (start, end int, ok bool) {
	return (*journal.Engine)(nil).Unwrap(data)
}

// Cut implements record.Engine.
func (e *engine) Cut(g record.Found, f record.File, size int64) error {
	return errors.Join(e.inner.Cut(g, f, size), e.copy.push())
}

// Settle implements record.Engine.
func (e *engine) Settle(g record.Found) error { return errors.Join(e.inner.Settle(g), e.copy.push()) }

// Remove implements record.Engine.
func (e *engine) Remove(g record.Found) error { return errors.Join(e.inner.Remove(g), e.copy.push()) }

// Open implements record.Engine.
func (e *engine) Open() (disk.Journal, error) {
	if err := e.begin(); err != nil {
		return nil, err
	}
	j, err := e.inner.Open()
	if err != nil {
		return nil, err
	}
	e.open = j
	return &written{e, j}, e.copy.push()
}

// Close implements record.Engine. The simulated disk keeps what it has.
func (e *engine) Close() error {
	inner, open := e.inner, e.open
	if inner == nil {
		return nil
	}
	e.inner, e.open = nil, nil
	var err error
	if open != nil {
		err = open.Close()
	}
	return errors.Join(err, inner.Close(), os.RemoveAll(filepath.Dir(e.copy.root)))
}

// written carries over what a journal's calls do.
type written struct {
	e *engine
	j disk.Journal
}

// Append implements disk.Journal. The engine writes when it has gathered enough,
// which the next sync carries over: until then it would be lost anyhow.
func (w *written) Append(frame []byte) error { return w.j.Append(frame) }

// Sync implements disk.Journal.
func (w *written) Sync() error { return w.then(w.j.Sync()) }

// Roll implements disk.Journal.
func (w *written) Roll(next disk.Generation) error { return w.then(w.j.Roll(next)) }

// Drop implements disk.Journal.
func (w *written) Drop(before uint64) error { return w.then(w.j.Drop(before)) }

func (w *written) then(err error) error {
	if err != nil {
		return err
	}
	return w.e.copy.push()
}

// Close implements disk.Journal.
func (w *written) Close() error {
	if w.e.open != w.j {
		return nil
	}
	w.e.open = nil
	return w.j.Close()
}
