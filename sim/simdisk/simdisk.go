// Package simdisk is disk.FS in memory, with the crash semantics that disk.FS
// documents, and a journal engine over any disk.FS.
//
// A Disk remembers, beside what its files and folders look like, what of it a
// crash would keep for certain. Crash throws away a seeded share of the rest.
// Faults (a full disk, failing syncs, flipped bits) are switched on by whoever
// holds the Disk. Everything is decided by the given random source: the same
// calls give the same bytes. Not for concurrent use.
package simdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/tapedeck/tapedeck/disk"
)

// ErrCrashed is what handles and file systems from before a crash return.
var ErrCrashed = errors.New("the machine crashed")

// ErrFault is wrapped by every injected error.
var ErrFault = errors.New("injected fault")

// Disk is one machine's disk.
type Disk struct {
	root     *node
	epoch    uint64 // counts crashes; handles of an older one are dead
	limited  bool   // capacity counts
	capacity uint64 // bytes
	used     uint64 // bytes in linked files
	faults   []fault
}

// node is a file or a folder.
type node struct {
	dir bool

	// Of a folder: what it shows, what a crash keeps, and the edits between.
	// The kept entries with all edits applied in order are the shown ones.
	entries, kept map[string]*node
	edits         [][]change

	// Of a file: its bytes, and how to undo what was not synced, oldest first.
	data    []byte
	undo    []undo
	broken  bool // a sync failed: nothing from then on ever becomes durable
	removed bool
}

// change sets an entry of a folder; to == nil removes it.
type change struct {
	name string
	to   *node
}

// undo gives a file back its size, and the old bytes at off.
type undo struct {
	size, off int64
	old       []byte
}

// Op is a kind of call that can be made to fail.
type Op uint8

// Kinds of calls.
const (
	OpSync  Op = 1 // File.Sync and FS.SyncDir
	OpWrite Op = 2
	OpRead  Op = 3
)

type fault struct {
	op     Op
	prefix string
	times  int
}

func newFolder() *node {
	return &node{dir: true, entries: map[string]*node{}, kept: map[string]*node{}}
}

// New makes an empty disk of unlimited size.
func New() *Disk { return &Disk{root: newFolder()} }

// FS is the disk as its machine sees it, until the next crash.
func (d *Disk) FS() disk.FS { return &fileSystem{d, d.epoch} }

// SetFree sets how many more bytes can be written; removing files gives more.
// A write that does not fit is made in part and fails with disk.ErrNoSpace.
func (d *Disk) SetFree(bytes uint64) { d.limited, d.capacity = true, d.used+bytes }

func (d *Disk) free() uint64 {
	switch {
	case !d.limited:
		return 1 << 62
	case d.capacity < d.used:
		return 0
	}
	return d.capacity - d.used
}

// Fail makes the next so many calls of a kind on names with the prefix fail.
// After a failed sync nothing written to that file ever becomes durable, though
// later syncs succeed: this is what real systems do.
func (d *Disk) Fail(op Op, prefix string, times int) {
	d.faults = append(d.faults, fault{op, prefix, times})
}

// FailSync is Fail for syncs.
func (d *Disk) FailSync(prefix string, times int) { d.Fail(OpSync, prefix, times) }

func (d *Disk) fail(op Op, name string) error {
	for i := range d.faults {
		f := &d.faults[i]
		if f.op != op || !strings.HasPrefix(name, f.prefix) {
			continue
		}
		if f.times--; f.times <= 0 {
			d.faults = slices.Delete(d.faults, i, i+1)
		}
		return &fs.PathError{Op: [...]string{OpSync: "sync", OpWrite: "write", OpRead: "read"}[op], Path: name, Err: ErrFault}
	}
	return nil
}

// FlipBit turns one bit of a file over, on the disk itself.
func (d *Disk) FlipBit(name string, bit int64) error {
	n, err := d.find("flip", name)
	if err != nil {
		return err
	}
	if n.dir || bit < 0 || bit/8 >= int64(len(n.data)) {
		return &fs.PathError{Op: "flip", Path: name, Err: fs.ErrInvalid}
	}
	n.data[bit/8] ^= 1 << (bit % 8)
	return nil
}

// Stat is a file's name and size in bytes.
type Stat struct {
	Name string
	Size int64
}

// Files lists all files, sorted by name.
func (d *Disk) Files() []Stat {
	var out []Stat
	var walk func(prefix string, n *node)
	walk = func(prefix string, n *node) {
		for _, name := range slices.Sorted(maps.Keys(n.entries)) {
			if c := n.entries[name]; c.dir {
				walk(prefix+name+"/", c)
			} else {
				out = append(out, Stat{prefix + name, int64(len(c.data))})
			}
		}
	}
	walk("", d.root)
	slices.SortFunc(out, func(a, b Stat) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// find walks to a name.
func (d *Disk) find(op, name string) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n := d.root
	if name == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if n = n.entries[part]; n == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// parent walks to a name's folder.
func (d *Disk) parent(op, name string) (*node, string, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	dir, base := ".", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		dir, base = name[:i], name[i+1:]
	}
	n, err := d.find(op, dir)
	if err == nil && !n.dir {
		err = &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return n, base, err
}

// edit changes a folder's entries, as one step for a crash.
func (n *node) edit(changes ...change) {
	n.apply(changes)
	n.edits = append(n.edits, changes)
}

func (n *node) apply(changes []change) {
	for _, c := range changes {
		if c.to == nil {
			delete(n.entries, c.name)
		} else {
			n.entries[c.name] = c.to
		}
	}
}

// unlink accounts for a file that is no longer in any folder.
func (d *Disk) unlink(n *node) {
	if n != nil && !n.dir && !n.removed {
		n.removed = true
		d.used -= uint64(len(n.data))
	}
}

// resize sets a file's length, with zeros for new bytes, within the free space.
// It returns the length reached.
func (d *Disk) resize(n *node, size int64) int64 {
	have := int64(len(n.data))
	switch {
	case size > have:
		if !n.removed {
			size = have + int64(min(uint64(size-have), d.free()))
			d.used += uint64(size - have)
		}
		n.data = slices.Grow(n.data, int(size-have))[:size]
		clear(n.data[have:])
	case size < have:
		if !n.removed {
			d.used -= uint64(have - size)
		}
		n.data = n.data[:size]
	}
	return size
}

func noSpace(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("simulated: %w", disk.ErrNoSpace)}
}
