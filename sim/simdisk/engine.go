package simdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
)

// Engine is a journal engine over a disk.FS: one file per generation, named by
// it, of frames laid end to end, each behind its length.
//
//	length u32, little-endian | frame
type Engine struct {
	fs  disk.FS
	dir string
}

const wrapping = 4

// NewEngine is an engine over a folder, which need not exist yet.
func NewEngine(fsys disk.FS, dir string) *Engine { return &Engine{fsys, dir} }

// List implements record.Engine.
func (e *Engine) List() (found []record.Found, stray []string, err error) {
	infos, err := e.fs.ReadDir(e.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, info := range infos {
		g, ok := record.ParseGenerationName(info.Name())
		if !ok || info.IsDir() {
			stray = append(stray, info.Name())
			continue
		}
		found = append(found, record.Found{Generation: g, Files: []record.File{{Name: info.Name(), First: 1}}})
	}
	slices.SortFunc(found, func(a, b record.Found) int { return a.Compare(b.Generation) })
	return found, stray, nil
}

// Read implements record.Engine.
func (e *Engine) Read(f record.File) ([]byte, error) {
	h, err := e.fs.Open(path.Join(e.dir, f.Name))
	if err != nil {
		return nil, err
	}
	defer h.Close()
	size, err := h.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if n, err := h.ReadAt(data, 0); err != nil && n < len(data) {
		return nil, err
	}
	return data, nil
}

// Unwrap implements record.Engine.
func (e *Engine) Unwrap(data []byte) (start, end int, ok bool) {
	if len(data) < wrapping {
		return 0, 0, false
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if n == 0 || n > uint64(len(data)-wrapping) {
		return 0, 0, false
	}
	return wrapping, wrapping + int(n), true
}

// Cut implements record.Engine.
func (e *Engine) Cut(_ record.Found, f record.File, size int64) error {
	h, err := e.fs.Open(path.Join(e.dir, f.Name))
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Truncate(size); err != nil {
		return err
	}
	return errors.Join(h.Sync(), e.fs.SyncDir(e.dir))
}

// Settle implements record.Engine.
func (e *Engine) Settle(g record.Found) error {
	for _, f := range g.Files {
		h, err := e.fs.Open(path.Join(e.dir, f.Name))
		if err != nil {
			return err
		}
		if err := errors.Join(h.Sync(), h.Close()); err != nil {
			return err
		}
	}
	return e.syncDirs()
}

// syncDirs makes the folder and its way from the root durable.
func (e *Engine) syncDirs() error {
	for dir := e.dir; ; dir = path.Dir(dir) {
		if err := e.fs.SyncDir(dir); err != nil {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}

// Remove implements record.Engine.
func (e *Engine) Remove(g record.Found) error {
	return errors.Join(e.fs.Remove(path.Join(e.dir, record.GenerationName(g.Generation))), e.fs.SyncDir(e.dir))
}

// Open implements record.Engine.
func (e *Engine) Open() (disk.Journal, error) {
	if err := e.fs.MkdirAll(e.dir); err != nil {
		return nil, err
	}
	return &journal{e: e}, nil
}

// Close implements record.Engine; nothing is held between calls.
func (e *Engine) Close() error { return nil }

// journal appends to the newest generation's file.
type journal struct {
	e    *Engine
	file disk.File
	size int64
	buf  []byte
}

func (j *journal) Append(frame []byte) error {
	if j.file == nil {
		return errors.New("append before the first roll")
	}
	j.buf = binary.LittleEndian.AppendUint32(j.buf[:0], uint32(len(frame)))
	j.buf = append(j.buf, frame...)
	if _, err := j.file.WriteAt(j.buf, j.size); err != nil {
		return err
	}
	j.size += int64(len(j.buf))
	return nil
}

func (j *journal) Sync() error {
	if j.file == nil {
		return errors.New("sync before the first roll")
	}
	return j.file.Sync()
}

func (j *journal) Roll(next disk.Generation) error {
	if j.file != nil {
		if err := errors.Join(j.file.Sync(), j.file.Close()); err != nil {
			return err
		}
		j.file = nil
	}
	f, err := j.e.fs.Create(path.Join(j.e.dir, record.GenerationName(next)))
	if err != nil {
		return fmt.Errorf("create generation %d.%d: %w", next.Number, next.Part, err)
	}
	j.file, j.size = f, 0
	return j.e.syncDirs()
}

func (j *journal) Drop(before uint64) error {
	found, _, err := j.e.List()
	if err != nil {
		return err
	}
	for _, g := range found {
		if g.Number < before {
			if err := j.e.Remove(g); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *journal) Close() error {
	if j.file == nil {
		return nil
	}
	f := j.file
	j.file = nil
	return f.Close()
}
