package simdisk

import (
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/disk"
)

// fileSystem is the disk during one epoch.
type fileSystem struct {
	d     *Disk
	epoch uint64
}

func (f *fileSystem) alive(op, name string) error {
	if f.epoch != f.d.epoch {
		return &fs.PathError{Op: op, Path: name, Err: ErrCrashed}
	}
	return nil
}

func (f *fileSystem) Create(name string) (disk.File, error) {
	if err := f.alive("create", name); err != nil {
		return nil, err
	}
	dir, base, err := f.d.parent("create", name)
	if err != nil {
		return nil, err
	}
	if dir.entries[base] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	if f.d.free() == 0 {
		return nil, noSpace("create", name)
	}
	n := &node{}
	dir.edit(change{base, n})
	return &file{f, n, name, false}, nil
}

func (f *fileSystem) Open(name string) (disk.File, error) {
	if err := f.alive("open", name); err != nil {
		return nil, err
	}
	n, err := f.d.find("open", name)
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return &file{f, n, name, false}, nil
}

func (f *fileSystem) Remove(name string) error {
	if err := f.alive("remove", name); err != nil {
		return err
	}
	dir, base, err := f.d.parent("remove", name)
	if err != nil {
		return err
	}
	n := dir.entries[base]
	switch {
	case n == nil:
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	case n.dir && len(n.entries) > 0:
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrExist}
	}
	dir.edit(change{base, nil})
	f.d.unlink(n)
	return nil
}

func (f *fileSystem) Rename(from, to string) error {
	if err := f.alive("rename", from); err != nil {
		return err
	}
	a, baseA, err := f.d.parent("rename", from)
	if err != nil {
		return err
	}
	b, baseB, err := f.d.parent("rename", to)
	if err != nil {
		return err
	}
	n, target := a.entries[baseA], b.entries[baseB]
	switch {
	case n == nil:
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	case n.dir || target != nil && target.dir:
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrInvalid}
	case n == target:
		return nil
	}
	if a == b {
		a.edit(change{baseA, nil}, change{baseB, n})
	} else {
		// Each folder's half becomes durable on its own.
		b.edit(change{baseB, n})
		a.edit(change{baseA, nil})
	}
	f.d.unlink(target)
	return nil
}

func (f *fileSystem) MkdirAll(dir string) error {
	if err := f.alive("mkdir", dir); err != nil {
		return err
	}
	if !fs.ValidPath(dir) {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrInvalid}
	}
	for i := 0; i <= len(dir) && dir != "."; i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		parent, base, err := f.d.parent("mkdir", dir[:i])
		if err != nil {
			return err
		}
		switch n := parent.entries[base]; {
		case n == nil:
			parent.edit(change{base, newFolder()})
		case !n.dir:
			return &fs.PathError{Op: "mkdir", Path: dir[:i], Err: fs.ErrExist}
		}
	}
	return nil
}

func (f *fileSystem) ReadDir(dir string) ([]fs.FileInfo, error) {
	if err := f.alive("readdir", dir); err != nil {
		return nil, err
	}
	n, err := f.d.find("readdir", dir)
	if err != nil {
		return nil, err
	}
	if !n.dir {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: fs.ErrInvalid}
	}
	out := make([]fs.FileInfo, 0, len(n.entries))
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		c := n.entries[name]
		out = append(out, info{name, int64(len(c.data)), c.dir})
	}
	return out, nil
}

func (f *fileSystem) SyncDir(dir string) error {
	if err := f.alive("syncdir", dir); err != nil {
		return err
	}
	n, err := f.d.find("syncdir", dir)
	if err != nil {
		return err
	}
	if err := f.d.fail(OpSync, dir); err != nil {
		n.broken = true
		return err
	}
	if !n.broken {
		for _, changes := range n.edits {
			for _, c := range changes {
				if c.to == nil {
					delete(n.kept, c.name)
				} else {
					n.kept[c.name] = c.to
				}
			}
		}
		n.edits = n.edits[:0]
	}
	return nil
}

func (f *fileSystem) Free() (uint64, error) {
	if err := f.alive("free", "."); err != nil {
		return 0, err
	}
	return f.d.free(), nil
}

// file is an open file.
type file struct {
	fs     *fileSystem
	n      *node
	name   string
	closed bool
}

func (f *file) alive(op string) error {
	if f.closed {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	return f.fs.alive(op, f.name)
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.alive("read"); err != nil {
		return 0, err
	}
	if err := f.fs.d.fail(OpRead, f.name); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if err := f.alive("write"); err != nil {
		return 0, err
	}
	if err := f.fs.d.fail(OpWrite, f.name); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrInvalid}
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, size, end := f.n, int64(len(f.n.data)), off+int64(len(p))
	u := undo{size: size, off: off}
	if off < size {
		u.old = slices.Clone(n.data[off:min(end, size)])
	}
	reached := max(size, end)
	if end > size {
		reached = f.fs.d.resize(n, end)
	}
	n.undo = append(n.undo, u)
	wrote := 0
	if off < reached {
		wrote = copy(n.data[off:reached], p)
	}
	if wrote < len(p) {
		return wrote, noSpace("write", f.name)
	}
	return wrote, nil
}

func (f *file) Truncate(size int64) error {
	if err := f.alive("truncate"); err != nil {
		return err
	}
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: f.name, Err: fs.ErrInvalid}
	}
	n, have := f.n, int64(len(f.n.data))
	u := undo{size: have, off: min(size, have)}
	u.old = slices.Clone(n.data[u.off:])
	n.undo = append(n.undo, u)
	if f.fs.d.resize(n, size) < size {
		return noSpace("truncate", f.name)
	}
	return nil
}

func (f *file) Sync() error {
	if err := f.alive("sync"); err != nil {
		return err
	}
	if err := f.fs.d.fail(OpSync, f.name); err != nil {
		f.n.broken = true
		return err
	}
	if !f.n.broken {
		clear(f.n.undo)
		f.n.undo = f.n.undo[:0]
	}
	return nil
}

func (f *file) Size() (int64, error) {
	if err := f.alive("size"); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

func (f *file) Close() error {
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	return nil
}

// info describes a folder's entry.
type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string { return i.name }
func (i info) Size() int64  { return i.size }
func (i info) IsDir() bool  { return i.dir }
func (i info) Sys() any     { return nil }

// ModTime is always zero: there is no clock here.
func (i info) ModTime() time.Time { return time.Time{} }

func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o750
	}
	return 0o640
}
