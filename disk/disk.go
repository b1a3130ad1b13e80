// Package disk is the border to durable storage: what the host may ask of a
// file system, a journal engine and a blob store, and what it may rely on after
// a crash. Implementations: disk/osdisk (real files), sim/simdisk (in memory,
// with crash semantics), disk/journal (our own writer and tidwall/wal, over one
// format).
package disk

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
)

// ErrNoSpace is wrapped by every write that failed because the disk is full.
var ErrNoSpace = errors.New("no space left on the disk")

// FS is a folder tree. Names are slash-separated and relative, as io/fs says.
//
// Durability contract. A crash keeps:
//   - of a file's bytes, all written before its last successful Sync; of later
//     writes any part, torn and in any order;
//   - of a folder's entries (create, rename, remove), all done before the last
//     successful SyncDir of that folder; of later ones any subset. A file that
//     is synced but whose folder is not may be gone.
//
// Rename replaces its target atomically. After a failed Sync nothing about the
// file is known and it must not be written again.
type FS interface {
	Create(name string) (File, error) // fails with fs.ErrExist
	Open(name string) (File, error)   // for reading and writing; fs.ErrNotExist
	Remove(name string) error
	Rename(from, to string) error
	MkdirAll(dir string) error
	ReadDir(dir string) ([]fs.FileInfo, error) // sorted by name
	SyncDir(dir string) error
	// Free is the number of bytes that can still be written.
	Free() (uint64, error)
}

// File is an open file. ReadAt may run beside one writer.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Size() (int64, error)
}

// Generation names one piece of a journal's chain. The core counts numbers; a
// number has one part per time the journal was opened while it was the newest.
type Generation struct {
	Number uint64 // from 1
	Part   uint32 // from 0
	ID     uint64 // random, never 0; every frame carries it
}

// Compare orders generations by number, then part.
func (g Generation) Compare(o Generation) int {
	return cmp.Or(cmp.Compare(g.Number, o.Number), cmp.Compare(g.Part, o.Part))
}

// Journal is an engine under disk/record: a chain of generations, each a list
// of opaque frames. Called by one goroutine. It is only ever written; what is
// in it is read before it is opened, by disk/record's rule.
//
// Durability contract: a crash keeps every frame appended before the last
// successful Sync, and of later ones any part, torn and in any order. A
// generation is either there or not; Roll makes its existence durable. After
// any error the engine must not be used again: the caller poisons it.
type Journal interface {
	// Append adds a frame to the current generation. The engine copies it.
	Append(frame []byte) error
	Sync() error
	// Roll syncs the current generation, if any, and starts the next, which is
	// greater. The first call after opening is always Roll.
	Roll(next Generation) error
	// Drop removes generations with a lower number, in small steps that may take
	// place in later calls of Sync.
	Drop(before uint64) error
	Close() error
}
