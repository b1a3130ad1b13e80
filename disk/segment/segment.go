package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
)

// openFiles is how many rolled files, with their indexes, a store keeps open.
const openFiles = 4

// ErrBelowStart is wrapped by reads of offsets that are no longer stored.
var ErrBelowStart = errors.New("offset is below the first stored one")

var errClosed = errors.New("segment store is closed")

// Store is one partition's segments: [Start, End), all of it readable.
type Store struct {
	fs      disk.FS
	dir     string
	spacing int64

	// The writer's alone.
	madeDir bool     // the folder exists
	newDir  bool     // … and its way from the root is not durable yet
	entries bool     // folder entries changed since the last SyncDir
	trash   []string // names of files to remove
	tail    []byte   // scratch
	broken  error    // a sync failed: no more writes

	mu      sync.Mutex // guards what follows, and the fields of part that say so
	parts   []*part
	end     model.Offset
	recent  []*part // rolled parts with open files, last used last
	rebuilt uint64
}

// part is one segment. Fields but file and users change under Store.mu, by the
// writer only, who may therefore read them without it.
type part struct {
	base, end model.Offset
	bytes     int64 // of batches
	maxTime   model.Wall
	rolled    bool
	loaded    bool // index is there
	index     index
	dirty     bool // not synced; the writer's alone
	reseal    bool // under mu: the index in the file is broken, the one here is not

	file  disk.File // under mu; nil: closed
	users int       // under mu: reads under way
	gone  bool      // under mu: the last user closes the file
}

func (p *part) name() string {
	if p.rolled {
		return fmt.Sprintf("%020d%s", p.base, rolledSuffix)
	}
	return fmt.Sprintf("%020d%s", p.base, activeSuffix)
}

const (
	activeSuffix = ".active"
	rolledSuffix = ".segment"
)

func (s *Store) path(p *part) string { return path.Join(s.dir, p.name()) }

// active is the part being appended to, or nil.
func (s *Store) active() *part {
	if n := len(s.parts); n > 0 && !s.parts[n-1].rolled {
		return s.parts[n-1]
	}
	return nil
}

// Start is the first stored offset; End if there is none.
func (s *Store) Start() model.Offset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start()
}

func (s *Store) start() model.Offset {
	if len(s.parts) == 0 {
		return s.end
	}
	return s.parts[0].base
}

// End is the offset that the next batch must begin with.
func (s *Store) End() model.Offset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// Info describes a segment.
type Info struct {
	Start, End model.Offset
	Bytes      int64 // of batches
	Rolled     bool
}

// Segments lists the segments in order.
func (s *Store) Segments() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Info, len(s.parts))
	for i, p := range s.parts {
		out[i] = Info{p.base, p.end, p.bytes, p.rolled}
	}
	return out
}

// Rebuilt counts broken footers and indexes that were rebuilt from batches.
func (s *Store) Rebuilt() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rebuilt
}

// Append adds a stamped batch; its base must be End. On an error nothing is
// changed, and the same append may be tried again unless a sync failed before.
func (s *Store) Append(b []byte) error {
	if s.broken != nil {
		return s.broken
	}
	v, err := batch.Parse(b)
	if err != nil {
		return fmt.Errorf("append to %s: %w", s.dir, err)
	}
	if len(v) != len(b) || v.Base() != s.end {
		return fmt.Errorf("append to %s: %d bytes with a batch of %d bytes at offset %d; one batch at offset %d is next",
			s.dir, len(b), len(v), v.Base(), s.end)
	}
	p := s.active()
	if p == nil {
		if p, err = s.begin(); err != nil {
			return fmt.Errorf("begin a segment in %s: %w", s.dir, err)
		}
	}
	p.dirty = true
	if _, err := p.file.WriteAt(b, p.bytes); err != nil {
		return fmt.Errorf("append to segment file %s: %w", s.path(p), err)
	}
	s.mu.Lock()
	p.index.add(v, p.bytes, s.spacing)
	p.bytes += int64(len(b))
	p.end, p.maxTime = v.Next(), p.index.maxTime
	s.end = p.end
	s.mu.Unlock()
	return nil
}

// begin creates the next active file, with nothing in it.
func (s *Store) begin() (*part, error) {
	if err := s.sweep(); err != nil {
		return nil, err
	}
	if !s.madeDir {
		if err := s.fs.MkdirAll(s.dir); err != nil {
			return nil, err
		}
		s.madeDir, s.newDir = true, true
	}
	p := &part{base: s.end, end: s.end, index: newIndex(), loaded: true, maxTime: newIndex().maxTime}
	f, err := s.fs.Create(s.path(p))
	if err != nil {
		return nil, err
	}
	p.file, s.entries = f, true
	s.mu.Lock()
	s.parts = append(s.parts, p)
	s.mu.Unlock()
	return p, nil
}

// Roll completes the active segment, which must end at the given offset, with
// its indexes and footer, and makes it durable but for its folder's entry. The
// next append begins a new one. Without an active segment it does nothing.
func (s *Store) Roll(at model.Offset) error {
	if s.broken != nil {
		return s.broken
	}
	if at != s.end {
		return fmt.Errorf("roll %s at offset %d; its end is %d", s.dir, at, s.end)
	}
	p := s.active()
	if p == nil || p.bytes == 0 {
		return nil
	}
	if err := s.seal(p, s.path(p)); err != nil {
		return err
	}
	s.mu.Lock()
	p.rolled = true
	s.touch(p)
	s.mu.Unlock()
	return nil
}

// seal writes a part's tail, syncs it and renames its file, whose present path
// is from, to that of a rolled one.
func (s *Store) seal(p *part, from string) error {
	s.tail = appendTail(s.tail[:0], &p.index, p.base, p.end, p.bytes)
	if _, err := p.file.WriteAt(s.tail, p.bytes); err != nil {
		return fmt.Errorf("write the index of segment file %s: %w", from, err)
	}
	// A failed write may have left more behind the batches than the tail covers.
	if err := p.file.Truncate(p.bytes + int64(len(s.tail))); err != nil {
		return fmt.Errorf("write the index of segment file %s: %w", from, err)
	}
	if err := s.sync(p, from); err != nil {
		return err
	}
	to := path.Join(s.dir, (&part{base: p.base, rolled: true}).name())
	if from == to {
		return nil
	}
	if err := s.fs.Rename(from, to); err != nil {
		return fmt.Errorf("roll segment file %s: %w", from, err)
	}
	s.entries = true
	return nil
}

func (s *Store) sync(p *part, name string) error {
	if err := p.file.Sync(); err != nil {
		s.broken = fmt.Errorf("sync segment file %s: %w", name, err)
		return s.broken
	}
	p.dirty = false
	return nil
}

// Sync makes everything appended durable. Once it failed, all writes fail.
func (s *Store) Sync() error {
	if s.broken != nil {
		return s.broken
	}
	if err := s.sweep(); err != nil {
		return err
	}
	if err := s.mend(); err != nil && !errors.Is(err, disk.ErrNoSpace) {
		return err // without space an index waits: the batches are there without it
	}
	if p := s.active(); p != nil && p.dirty {
		if err := s.sync(p, s.path(p)); err != nil {
			return err
		}
	}
	if s.entries {
		if err := s.syncDir(s.dir); err != nil {
			return err
		}
		s.entries = false
	}
	if s.newDir {
		for dir := s.dir; dir != "."; {
			dir = path.Dir(dir)
			if err := s.syncDir(dir); err != nil {
				return err
			}
		}
		s.newDir = false
	}
	return nil
}

func (s *Store) syncDir(dir string) error {
	if err := s.fs.SyncDir(dir); err != nil {
		s.broken = fmt.Errorf("sync folder %s: %w", dir, err)
		return s.broken
	}
	return nil
}

// Drop removes rolled segments that end at or below the given offset. They are
// gone at once: a durable manifest must say start >= before already, or recovery
// would miss them.
func (s *Store) Drop(before model.Offset) error {
	s.mu.Lock()
	for len(s.parts) > 0 && s.parts[0].rolled && s.parts[0].end <= before {
		s.discard(s.parts[0])
		s.parts = s.parts[1:]
	}
	s.mu.Unlock()
	return s.sweep()
}

// Reset removes everything; the next append begins at the given offset. As with
// Drop, a durable manifest must not name what goes.
func (s *Store) Reset(at model.Offset) error {
	s.mu.Lock()
	for _, p := range s.parts {
		s.discard(p)
	}
	s.parts, s.end = nil, at
	s.mu.Unlock()
	return s.sweep()
}

// Remove removes everything and the folder. The store is closed then.
func (s *Store) Remove() error {
	if err := s.Reset(s.end); err != nil {
		return err
	}
	s.broken = errClosed
	if !s.madeDir {
		return nil
	}
	if err := s.fs.Remove(s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove segment folder: %w", err)
	}
	if err := s.fs.SyncDir(path.Dir(s.dir)); err != nil {
		return fmt.Errorf("remove segment folder %s: %w", s.dir, err)
	}
	return nil
}

// Close closes all files without syncing them.
func (s *Store) Close() error {
	if s.broken == nil {
		s.broken = errClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, p := range s.parts {
		errs = append(errs, s.release(p))
	}
	s.parts, s.recent = nil, nil
	return errors.Join(errs...)
}

// discard marks a part's file for removal. Under mu.
func (s *Store) discard(p *part) {
	s.trash = append(s.trash, p.name())
	s.recent = slices.DeleteFunc(s.recent, func(o *part) bool { return o == p })
	_ = s.release(p) // its content is not wanted any more
}

// release closes a part's file now, or once its last reader is done. Under mu.
func (s *Store) release(p *part) error {
	p.gone = true
	if p.users > 0 || p.file == nil {
		return nil
	}
	f := p.file
	p.file = nil
	return f.Close()
}

// sweep removes files that are marked; what cannot be removed stays marked.
func (s *Store) sweep() error {
	for len(s.trash) > 0 {
		name := path.Join(s.dir, s.trash[0])
		if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove segment file: %w", err)
		}
		s.trash = s.trash[1:]
		s.entries = true
	}
	return nil
}
