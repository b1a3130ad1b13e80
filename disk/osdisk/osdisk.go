// Package osdisk is disk.FS over a folder of the real file system. It owns the
// folder's lock, so that no two processes, and no two parts of one, use the same
// data folder at a time.
package osdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tapedeck/tapedeck/disk"
)

// LockFile is the lock in the folder itself; hidden from ReadDir.
const LockFile = "LOCK"

// FS is an open, locked folder.
type FS struct {
	dir  string
	lock *os.File
}

// HasLock says that a folder was opened here once: whether it is now only Open
// can tell.
func HasLock(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, LockFile))
	return err == nil
}

// Open makes the folder if it is not there, and locks it. A folder that is
// already open fails at once, with a message that says by whom.
func Open(dir string) (*FS, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	if err := makeDurable(dir); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open the data folder's lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer lock.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock data folder %s: %w", dir, err)
		}
		by := ""
		if pid, err := os.ReadFile(lock.Name()); err == nil && len(pid) > 0 {
			by = " (process " + strings.TrimSpace(string(pid)) + ")"
		}
		return nil, fmt.Errorf("data folder %s is in use%s: stop that node, or give this one a folder of its own", dir, by)
	}
	// For the message above only; nothing depends on it.
	if err := lock.Truncate(0); err == nil {
		_, _ = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &FS{dir: dir, lock: lock}, nil
}

// makeDurable makes a folder and syncs every parent that got a new entry.
func makeDurable(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDurable(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(parent)
}

// Dir is the folder's absolute path.
func (f *FS) Dir() string { return f.dir }

// Close releases the folder. Files that are still open stay usable.
func (f *FS) Close() error { return f.lock.Close() }

// path turns a name into a path; names must be valid as io/fs says.
func (f *FS) path(op, name string) (string, error) {
	if !fs.ValidPath(name) || name == LockFile {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return filepath.Join(f.dir, filepath.FromSlash(name)), nil
}

// Create implements disk.FS.
func (f *FS) Create(name string) (disk.File, error) {
	return f.open("create", name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// Open implements disk.FS.
func (f *FS) Open(name string) (disk.File, error) { return f.open("open", name, os.O_RDWR) }

func (f *FS) open(op, name string, flag int) (disk.File, error) {
	p, err := f.path(op, name)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(p, flag, 0o640)
	if err != nil {
		return nil, full(err)
	}
	return &osFile{file}, nil
}

// Remove implements disk.FS.
func (f *FS) Remove(name string) error {
	p, err := f.path("remove", name)
	if err != nil {
		return err
	}
	return os.Remove(p)
}

// Rename implements disk.FS.
func (f *FS) Rename(from, to string) error {
	a, err := f.path("rename", from)
	if err != nil {
		return err
	}
	b, err := f.path("rename", to)
	if err != nil {
		return err
	}
	return full(os.Rename(a, b))
}

// MkdirAll implements disk.FS.
func (f *FS) MkdirAll(dir string) error {
	p, err := f.path("mkdir", dir)
	if err != nil {
		return err
	}
	return full(os.MkdirAll(p, 0o750))
}

// ReadDir implements disk.FS.
func (f *FS) ReadDir(dir string) ([]fs.FileInfo, error) {
	p, err := f.path("readdir", dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p)
	if err != nil {
		return nil, err
	}
	out := make([]fs.FileInfo, 0, len(entries))
	for _, e := range entries {
		if dir == "." && e.Name() == LockFile {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

// SyncDir implements disk.FS.
func (f *FS) SyncDir(dir string) error {
	p, err := f.path("syncdir", dir)
	if err != nil {
		return err
	}
	return full(syncFolder(p))
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Free implements disk.FS: what an ordinary user may still write.
func (f *FS) Free() (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(f.dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", f.dir, err)
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}

// osFile is a file whose errors say when the disk is full.
type osFile struct{ *os.File }

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	return n, full(err)
}

func (f *osFile) Truncate(size int64) error { return full(f.File.Truncate(size)) }

func (f *osFile) Sync() error { return full(f.File.Sync()) }

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// full wraps an error of a full disk, or of a used-up quota, as disk.ErrNoSpace.
func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", disk.ErrNoSpace, err)
	}
	return err
}
