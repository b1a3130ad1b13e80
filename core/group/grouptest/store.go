package grouptest

import (
	"fmt"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// Store keeps a partition's batches as segments would.
type Store struct {
	Batches []batch.View
	Rolls   []model.Offset // bases of all segments but the first ever, rising
	Hidden  int            // newest batches a read does not see yet: writes lag behind
}

// StoreRead is a Read (by offset) or a ReadAt (by time).
type StoreRead struct {
	ID       uint64
	Offset   model.Offset
	MaxBytes int
	ByTime   bool
	Time     model.Wall
}

// Next is the offset after the last stored batch, 0 when there is none.
func (s *Store) Next() model.Offset {
	if len(s.Batches) == 0 {
		return 0
	}
	return s.Batches[len(s.Batches)-1].Next()
}

func (s *Store) append(b []byte) {
	v, err := batch.Parse(b)
	if err != nil {
		panic("grouptest: SegmentAppend of a bad batch: " + err.Error())
	}
	if len(s.Batches) > 0 && v.Base() != s.Next() {
		panic(fmt.Sprintf("grouptest: batch at %d appended after %d", v.Base(), s.Next()))
	}
	s.Batches = append(s.Batches, v)
}

func (s *Store) roll(at model.Offset) {
	if len(s.Batches) > 0 && at != s.Next() {
		panic(fmt.Sprintf("grouptest: roll at %d while the end is %d", at, s.Next()))
	}
	s.Rolls = append(s.Rolls, at)
}

// drop removes whole segments below before: those whose end is at or below it.
func (s *Store) drop(before model.Offset) {
	var cut model.Offset
	for _, r := range s.Rolls {
		if r <= before {
			cut = r
		}
	}
	for len(s.Batches) > 0 && s.Batches[0].Base() < cut {
		s.Batches = s.Batches[1:]
	}
}

// Serve answers a read from the batches that are not hidden.
func (s *Store) Serve(r StoreRead) []byte {
	var run []byte
	for _, v := range s.Batches[:max(0, len(s.Batches)-s.Hidden)] {
		if r.ByTime {
			if v.AppendTime() >= r.Time {
				return v
			}
			continue
		}
		if v.Next() <= r.Offset {
			continue
		}
		if len(run) > 0 && len(run)+len(v) > r.MaxBytes {
			break
		}
		run = append(run, v...)
	}
	return run
}
