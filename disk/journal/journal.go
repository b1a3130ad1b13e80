// Package journal keeps a journal in files: two engines over one format, that of
// github.com/tidwall/wal v1.2.1.
//
// Every generation is a folder named by it, which is removed whole. A file is
// named by the number of its first frame, in 20 decimal digits, and holds frames
// laid end to end, each behind its length as an unsigned varint. What is in a
// journal is read by disk/record's rule, straight from the files: the library's
// own recovery, its reads and its truncation are never run.
//
// New writes the files by itself: what came since the last sync goes out in one
// write, from one buffer. NewTidwall has the library write them, which copies
// each frame three times more and keeps the newest files in memory; it is there
// to hold the other one against. Since format and rule are one, a folder that the
// one wrote is gone on with by the other.
//
// Duties of both:
//   - a folder's entry is durable before anything is written to the file behind
//     it, and a file is before the next one begins;
//   - the first error, or panic, ends an engine for good;
//   - a lock file keeps a second process out;
//   - generations that are dropped go file by file, one at each sync: removing
//     much at once stalls everybody's syncs.
//
// What the library's engine guards against, all seen in that version:
//   - its log may only be synced, not asked what is durable: NoSync, and Sync by
//     the caller;
//   - it starts a file without making the folder's entry durable, and two such
//     entries can be lost in any order: the folder is synced before the next
//     append whenever a file appeared;
//   - after a failed write or sync it goes on as if nothing had happened;
//   - two opens of one folder both succeed;
//   - it holds about two files in memory: files are small.
package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/tidwall/wal"

	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
)

const (
	fileBytes  = 4 << 20 // the library's file ends with the frame that reaches this
	flushBytes = 1 << 20 // frames held back for one write; less than a file
	lockName   = "LOCK"
	nameDigits = 20
	folderMode = 0o750
	fileMode   = 0o640
)

// Engine is a journal's folder.
type Engine struct {
	dir     string
	library bool
	watch   Watch
	lock    *os.File
	log     *wal.Log // of the open generation, if the library writes it
}

// Watch is for whoever plays crashes on an engine. Set it before the first use.
type Watch struct {
	// FileBytes, if not 0, is the size at which files end, in place of the
	// engine's own: with few bytes written there are many files.
	FileBytes int
	// Synced is called after a file or a folder was made durable, with its path;
	// its error counts as the sync's.
	Synced func(path string) error
}

// Watched is the engine itself, watched from now on.
func (e *Engine) Watched(w Watch) *Engine {
	e.watch = w
	return e
}

// sizes are those of files and of what is held back for one write, in bytes. A
// write is smaller than a file.
func (e *Engine) sizes(file int) (fileSize, flushSize int) {
	if n := e.watch.FileBytes; n > 0 {
		return n, min(flushBytes, n/4)
	}
	return file, flushBytes
}

// synced tells the watch.
func (e *Engine) synced(path string) error {
	if e.watch.Synced == nil {
		return nil
	}
	return e.watch.Synced(path)
}

// Names of the engines, as a configuration gives them.
const (
	Own     = "own"     // New
	Tidwall = "tidwall" // NewTidwall
)

// Named is the engine of a name over a folder, which need not exist yet.
func Named(name, dir string) (*Engine, error) {
	switch name {
	case Own:
		return New(dir), nil
	case Tidwall:
		return NewTidwall(dir), nil
	}
	return nil, fmt.Errorf("there is no journal engine %q; choose %s or %s", name, Own, Tidwall)
}

// New is an engine over a folder, which need not exist yet. It writes the files
// by itself.
func New(dir string) *Engine { return &Engine{dir: dir} }

// NewTidwall is New, but tidwall/wal writes the files. The format is the same,
// so a folder can be opened by the one after the other.
func NewTidwall(dir string) *Engine { return &Engine{dir: dir, library: true} }

// take locks the folder, if it is there.
func (e *Engine) take() error {
	if e.lock != nil {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(e.dir, lockName), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return fmt.Errorf("journal folder %s is in use by another process or node: %w", e.dir, err)
	}
	e.lock = f
	return nil
}

// List implements record.Engine.
func (e *Engine) List() (found []record.Found, stray []string, err error) {
	err = e.take()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return e.list()
}

func (e *Engine) list() (found []record.Found, stray []string, err error) {
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == lockName {
			continue
		}
		g, ok := record.ParseGenerationName(name)
		if !ok || !entry.IsDir() {
			stray = append(stray, name)
			continue
		}
		files, err := os.ReadDir(filepath.Join(e.dir, name))
		if err != nil {
			return nil, nil, err
		}
		f := record.Found{Generation: g}
		for _, file := range files {
			first, err := strconv.ParseUint(file.Name(), 10, 64)
			full := filepath.Join(name, file.Name())
			if err != nil || len(file.Name()) != nameDigits || file.IsDir() {
				stray = append(stray, full)
				continue
			}
			f.Files = append(f.Files, record.File{Name: full, First: first})
		}
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b record.Found) int { return a.Compare(b.Generation) })
	return found, stray, nil
}

// Read implements record.Engine.
func (e *Engine) Read(f record.File) ([]byte, error) {
	return os.ReadFile(filepath.Join(e.dir, f.Name))
}

// Unwrap implements record.Engine.
func (e *Engine) Unwrap(data []byte) (start, end int, ok bool) {
	n, size := uvarint(data)
	if size <= 0 || n == 0 || n > uint64(len(data)-size) {
		return 0, 0, false
	}
	return size, size + int(n), true
}

// Cut implements record.Engine.
func (e *Engine) Cut(g record.Found, f record.File, size int64) error {
	h, err := os.OpenFile(filepath.Join(e.dir, f.Name), os.O_RDWR, fileMode)
	if err != nil {
		return err
	}
	if err := errors.Join(h.Truncate(size), h.Sync(), h.Close()); err != nil {
		return err
	}
	if err := e.synced(h.Name()); err != nil {
		return err
	}
	return e.syncFolder(e.folder(g.Generation))
}

// Settle implements record.Engine.
func (e *Engine) Settle(g record.Found) error {
	for _, f := range g.Files {
		h, err := os.OpenFile(filepath.Join(e.dir, f.Name), os.O_RDWR, fileMode)
		if err != nil {
			return err
		}
		if err := errors.Join(h.Sync(), h.Close(), e.synced(h.Name())); err != nil {
			return err
		}
	}
	return e.syncAll(e.folder(g.Generation))
}

// syncAll makes a generation's folder and its way from the data folder durable.
func (e *Engine) syncAll(folder string) error {
	return errors.Join(e.syncFolder(folder), e.syncFolder(e.dir), e.syncFolder(filepath.Dir(e.dir)))
}

// Remove implements record.Engine.
func (e *Engine) Remove(g record.Found) error {
	for _, f := range g.Files {
		if err := os.Remove(filepath.Join(e.dir, f.Name)); err != nil {
			return err
		}
	}
	return errors.Join(os.Remove(e.folder(g.Generation)), e.syncFolder(e.dir))
}

// Open implements record.Engine.
func (e *Engine) Open() (disk.Journal, error) {
	if err := os.MkdirAll(e.dir, folderMode); err != nil {
		return nil, full(err)
	}
	if err := e.take(); err != nil {
		return nil, full(err)
	}
	if e.library {
		j := &journal{chain: chain{e: e}}
		j.fileSize, j.flushSize = e.sizes(fileBytes)
		return j, nil
	}
	j := &direct{chain: chain{e: e}}
	j.fileSize, j.flushSize = e.sizes(directFileBytes)
	return j, nil
}

// Close implements record.Engine.
func (e *Engine) Close() error {
	log, lock := e.log, e.lock
	e.log, e.lock = nil, nil
	var err error
	if log != nil {
		err = guard("close", log.Close)
	}
	if lock != nil {
		err = errors.Join(err, lock.Close())
	}
	return err
}

func (e *Engine) folder(g disk.Generation) string {
	return filepath.Join(e.dir, record.GenerationName(g))
}

func (e *Engine) syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return err
	}
	return e.synced(path)
}

// guard turns a panic of the library into an error.
func guard(doing string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("tidwall/wal panicked in %s: %v", doing, p)
		}
	}()
	return f()
}
