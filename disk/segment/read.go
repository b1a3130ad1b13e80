package segment

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// maxRead bounds one read's memory, but for a single batch that is larger.
const maxRead = 16 << 20

// view is a part as one reader sees it; appends meanwhile do not change it.
type view struct {
	*part
	name  string
	end   model.Offset
	bytes int64
	index index
}

// Read returns a run of whole, checked batches, laid end to end, beginning with
// the one that contains offset: about maxBytes, but at least one batch, all of
// one segment. At or behind End the run is empty. Below Start: ErrBelowStart. A
// batch that is not intact: *Damaged, unless intact ones can be returned first.
func (s *Store) Read(offset model.Offset, maxBytes int) (run []byte, err error) {
	v, err := s.take(func(parts []*part) *part {
		i, found := slices.BinarySearchFunc(parts, offset, func(p *part, o model.Offset) int {
			switch {
			case p.end <= o:
				return -1
			case p.base > o:
				return 1
			}
			return 0
		})
		if !found {
			return nil
		}
		return parts[i]
	})
	if err != nil {
		return nil, err
	}
	if v == nil {
		if start := s.Start(); offset < start {
			return nil, fmt.Errorf("read %s at offset %d: %w, %d", s.dir, offset, ErrBelowStart, start)
		}
		return nil, nil
	}
	defer s.give(v)
	return s.run(v, v.index.byOffset(offset), maxBytes, func(b batch.View) bool { return b.Next() > offset })
}

// ReadAt returns the first batch whose append time is at least t, checked, or
// nothing if there is none.
func (s *Store) ReadAt(t model.Wall) (run []byte, err error) {
	v, err := s.take(func(parts []*part) *part {
		for _, p := range parts {
			if p.bytes > 0 && p.maxTime >= t {
				return p
			}
		}
		return nil
	})
	if err != nil || v == nil {
		return nil, err
	}
	defer s.give(v)
	return s.run(v, v.index.byTime(t), 1, func(b batch.View) bool { return b.AppendTime() >= t })
}

// run walks from an index entry to the first batch that matches, and returns it
// with those that follow it within maxBytes.
func (s *Store) run(v *view, from entry, maxBytes int, match func(batch.View) bool) ([]byte, error) {
	maxBytes = min(max(maxBytes, 1), maxRead)
	r := &reader{file: v.file, name: v.name, limit: v.bytes, ahead: maxBytes + int(s.spacing)}
	position, base := from.position, model.Offset(from.key)
	for {
		b, err := r.next(position, base)
		if err != nil {
			return nil, err
		}
		if match(b) {
			break
		}
		position, base = position+int64(len(b)), b.Next()
		if base >= v.end {
			return nil, &Damaged{File: v.name, Position: position, Cause: "no batch is where the index says"}
		}
	}
	first, end := position, position
	for base < v.end {
		size, err := r.peek(end)
		if err != nil || end > first && end+int64(size)-first > int64(maxBytes) {
			break // the first one is intact: what is wrong behind it the next read tells
		}
		// One window must hold the whole run.
		if _, err := r.window(first, int(end-first)+size); err != nil {
			return nil, err
		}
		b, err := r.next(end, base)
		if err != nil {
			break
		}
		end, base = end+int64(len(b)), b.Next()
	}
	return r.window(first, int(end-first))
}

// peek is the size of the batch at position, as its header says.
func (r *reader) peek(position int64) (int, error) {
	if r.limit-position < batch.HeaderSize {
		return 0, errors.New("no batch is here")
	}
	head, err := r.window(position, batch.HeaderSize)
	if err != nil {
		return 0, err
	}
	size, err := batch.SizeOf(head)
	if err == nil && int64(size) > r.limit-position {
		err = errors.New("a batch ends outside its segment")
	}
	return size, err
}

// take finds a part for reading and keeps its file open until give. nil: none.
func (s *Store) take(find func([]*part) *part) (*view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := find(s.parts)
	if p == nil {
		return nil, nil
	}
	name := s.path(p)
	if p.file == nil {
		f, err := s.fs.Open(name)
		if err != nil {
			return nil, fmt.Errorf("open segment file for reading: %w", err)
		}
		p.file = f
	}
	if !p.loaded {
		if err := s.load(p, name); err != nil {
			return nil, err
		}
	}
	p.users++
	if p.rolled {
		s.touch(p)
	}
	return &view{p, name, p.end, p.bytes, p.index}, nil
}

// give ends a read.
func (s *Store) give(v *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.users--
	if v.gone {
		_ = s.release(v.part)
	}
}

// touch marks a rolled part as used last and closes those not used for long.
// Under mu.
func (s *Store) touch(p *part) {
	if i := slices.Index(s.recent, p); i >= 0 {
		s.recent = slices.Delete(s.recent, i, i+1)
	}
	s.recent = append(s.recent, p)
	for i := 0; len(s.recent) > openFiles && i < len(s.recent)-1; {
		old := s.recent[i]
		if old.users > 0 {
			i++
			continue
		}
		if old.file != nil {
			_ = old.file.Close() // opened for reading
			old.file = nil
		}
		old.loaded, old.index = false, index{}
		s.recent = slices.Delete(s.recent, i, i+1)
	}
}

// load reads a rolled part's index, or rebuilds it from the batches. If one of
// these is broken, too, what is before it is all there is to an index for now: so
// much a reader gets, and Repair its place; the part does not count as loaded.
// Under mu: a file's index is small, and rebuilding is rare.
func (s *Store) load(p *part, name string) error {
	size, err := p.file.Size()
	if err != nil {
		return fmt.Errorf("read segment file %s: %w", name, err)
	}
	tail := size - p.bytes - footerSize
	if entries := indexEntries(tail); tail > 0 && entries > 0 {
		buf := make([]byte, tail)
		if n, err := p.file.ReadAt(buf, p.bytes); err != nil && n < len(buf) {
			return fmt.Errorf("read the index of segment file %s: %w", name, err)
		}
		if x, err := parseIndex(buf, entries, p.bytes, p.maxTime); err == nil {
			p.index, p.loaded = x, true
			return nil
		}
	}
	r := &reader{file: p.file, name: name, limit: p.bytes, ahead: scanAhead}
	x, err := scan(r, p.base, p.end, s.spacing)
	var damaged *Damaged
	switch {
	case errors.As(err, &damaged):
		if p.index = x.index; len(p.index.offsets) == 0 {
			p.index.begin(p.base)
		}
		return nil
	case err != nil:
		return err
	}
	p.index, p.loaded, p.reseal = x.index, true, true
	s.rebuilt++
	return nil
}

// indexEntries is the inverse of indexSize; 0: no count has that size.
func indexEntries(size int64) int {
	half := size / 2
	blocks := (half + blockHead + blockEntries*entrySize - 1) / (blockHead + blockEntries*entrySize)
	entries := (half - blocks*blockHead) / entrySize
	if entries <= 0 || indexSize(entries) != size {
		return 0
	}
	return int(entries)
}
