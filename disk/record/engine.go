package record

import "github.com/tapedeck/tapedeck/disk"

// File is one file of a generation. A generation's frames are numbered from 1.
type File struct {
	Name  string // within the journal's folder, for people and for the engine
	First uint64 // number of its first frame, as its name says
}

// Found is a generation as its engine found it, files in order.
type Found struct {
	disk.Generation
	Files []File
}

// Engine keeps frames in files. It lets the rule look at them raw, changes
// nothing by itself, and opens for appending only after the rule has judged.
// An Engine is for one Log at a time; after Close it can be opened again.
type Engine interface {
	// List names all generations, sorted, and whatever else is in the folder. A
	// folder that does not exist is empty. It locks the folder, where folders
	// can be locked, until Close.
	List() (found []Found, stray []string, err error)
	// Read returns all bytes of a file.
	Read(f File) ([]byte, error)
	// Unwrap finds the frame whose wrapping data begins with: the interval
	// [start, end) of data. False: no whole wrapping is there. The next frame's
	// wrapping begins at end.
	Unwrap(data []byte) (start, end int, ok bool)
	// Cut shortens a file; durable on return.
	Cut(g Found, f File, size int64) error
	// Settle makes all bytes and folder entries of a generation durable.
	Settle(g Found) error
	// Remove deletes a generation; durable on return.
	Remove(g Found) error
	// Open makes ready for appending; Roll comes next. Existing generations are
	// left alone but for Drop.
	Open() (disk.Journal, error)
	// Close frees locks and handles without writing anything; for a journal that
	// was refused, and after the Journal's own Close.
	Close() error
}
