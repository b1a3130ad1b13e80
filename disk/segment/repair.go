package segment

import (
	"fmt"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// Repair puts an intact copy of a stored batch, from another replica, in its
// place; durable on return. All replicas store the same bytes, so it fits exactly,
// or it is refused. The writer's to call; reads may run meanwhile, and may see the
// damage, or half of it mended, and say so.
func (s *Store) Repair(b []byte) error {
	if s.broken != nil {
		return s.broken
	}
	v, err := batch.Parse(b)
	if err != nil || len(v) != len(b) {
		return fmt.Errorf("repair %s: one intact batch is needed, not %d bytes: %w", s.dir, len(b), err)
	}
	p, err := s.take(func(parts []*part) *part {
		for _, p := range parts {
			if p.base <= v.Base() && v.Next() <= p.end {
				return p
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if p == nil {
		return fmt.Errorf("repair %s: no segment holds [%d, %d)", s.dir, v.Base(), v.Next())
	}
	defer s.give(p)
	position, err := s.place(p, v.Base())
	if err != nil {
		return err
	}
	if !fits(p, v, position) {
		return fmt.Errorf("repair segment file %s: a batch of [%d, %d) with %d bytes does not fit at byte %d of %d",
			p.name, v.Base(), v.Next(), len(v), position, p.bytes)
	}
	if _, err := p.file.WriteAt(v, position); err != nil {
		return fmt.Errorf("repair segment file %s: %w", p.name, err)
	}
	return s.sync(p.part, p.name)
}

// fits says that nothing around a place contradicts a batch there: the next one's
// stamp, or else an intact head of another batch. With nothing intact on either
// side the batch is taken: what was there is the same bytes.
func fits(p *view, v batch.View, position int64) bool {
	end := position + int64(len(v))
	if end > p.bytes || (end == p.bytes) != (v.Next() == p.end) {
		return false
	}
	if end == p.bytes {
		return true
	}
	var head [batch.HeaderSize]byte
	if n, err := p.file.ReadAt(head[:batch.StampSize], end); err == nil || n == batch.StampSize {
		if base, ok := batch.StampOf(head[:]); ok {
			return base == v.Next()
		}
	}
	if n, err := p.file.ReadAt(head[:], position); err != nil && n < len(head) {
		return true
	}
	size, checksum, err := batch.HeadOf(head[:])
	_, stamped := batch.StampOf(head[:])
	_, want, _ := batch.HeadOf(v)
	return err != nil || !stamped || size == len(v) || checksum == want
}

// place is the byte at which the batch with the given base has to be. Those
// before it, from the last indexed one on, must be intact.
func (s *Store) place(p *view, base model.Offset) (int64, error) {
	from := p.index.byOffset(base)
	position, at := from.position, model.Offset(from.key)
	r := &reader{file: p.file, name: p.name, limit: p.bytes, ahead: int(s.spacing)}
	for at < base {
		v, err := r.next(position, at)
		if err != nil {
			return 0, err
		}
		position, at = position+int64(len(v)), v.Next()
	}
	if at != base {
		return 0, fmt.Errorf("repair segment file %s: no batch begins with offset %d", p.name, base)
	}
	return position, nil
}

// mend writes anew the indexes that were found broken.
func (s *Store) mend() error {
	for {
		p, err := s.take(func(parts []*part) *part {
			for _, p := range parts {
				if p.reseal {
					return p
				}
			}
			return nil
		})
		if err != nil || p == nil {
			return err
		}
		s.mu.Lock()
		whole := p.loaded // else batches broke since then: who reads them next has the index made again
		s.mu.Unlock()
		if whole {
			err = s.seal(p.part, p.name)
		}
		s.mu.Lock()
		p.reseal = err != nil
		s.mu.Unlock()
		s.give(p)
		if err != nil {
			return err
		}
	}
}
