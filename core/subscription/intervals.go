package subscription

import (
	"fmt"
	"slices"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// interval is [from, to).
type interval struct{ from, to model.Offset }

// intervals are ascending, not empty, and do not touch each other.
type intervals []interval

// at finds the first interval that ends above an offset.
func (s intervals) at(o model.Offset) int {
	i, _ := slices.BinarySearchFunc(s, o, func(x interval, o model.Offset) int {
		if x.to <= o {
			return -1
		}
		return 1
	})
	return i
}

// has says whether an offset lies in one of them.
func (s intervals) has(o model.Offset) bool {
	i := s.at(o)
	return i < len(s) && s[i].from <= o
}

// free is the first offset at or above o that lies in none.
func (s intervals) free(o model.Offset) model.Offset {
	if i := s.at(o); i < len(s) && s[i].from <= o {
		return s[i].to
	}
	return o
}

// add takes one in and joins what touches it then.
func (s *intervals) add(x interval) {
	if x.from >= x.to {
		return
	}
	first, _ := slices.BinarySearchFunc(*s, x.from, func(y interval, o model.Offset) int {
		if y.to < o {
			return -1
		}
		return 1
	})
	last := first
	for last < len(*s) && (*s)[last].from <= x.to {
		x.from, x.to = min(x.from, (*s)[last].from), max(x.to, (*s)[last].to)
		last++
	}
	*s = slices.Replace(*s, first, last, x)
}

// dropBelow forgets what lies below an offset.
func (s *intervals) dropBelow(o model.Offset) {
	i := s.at(o)
	*s = slices.Delete(*s, 0, i)
	if len(*s) > 0 {
		(*s)[0].from = max((*s)[0].from, o)
	}
}

// holes are the parts of [from, to) in none of them, ascending.
func (s intervals) holes(from, to model.Offset) (out []interval) {
	for i := s.at(from); from < to; i++ {
		if i == len(s) || s[i].from >= to {
			return append(out, interval{from, to})
		}
		if from < s[i].from {
			out = append(out, interval{from, s[i].from})
		}
		from = s[i].to
	}
	return out
}

// within counts the offsets of [from, to) in them.
func (s intervals) within(from, to model.Offset) (n uint64) {
	for i := s.at(from); from < to && i < len(s) && s[i].from < to; i++ {
		n += uint64(min(s[i].to, to) - max(s[i].from, from))
	}
	return n
}

// check says what breaks the invariant; all must lie above the offset.
func (s intervals) check(above model.Offset) error {
	for _, x := range s {
		if x.from <= above || x.from >= x.to {
			return fmt.Errorf("[%d, %d) follows %d", x.from, x.to, above)
		}
		above = x.to
	}
	return nil
}

// codeIntervals codes each as its distance from the one before and its length.
func codeIntervals(c *wire.Codec, s *intervals) {
	last := model.Offset(0)
	wire.Slice(c, (*[]interval)(s), func(c *wire.Codec, x *interval) {
		gap, length := x.from-last, x.to-x.from
		wire.Uint(c, &gap)
		wire.Uint(c, &length)
		if c.Decoding {
			x.from = last + gap
			x.to = x.from + length
		}
		last = x.to
	})
}
