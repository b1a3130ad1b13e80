package sim

import (
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Rate is a chance in 10,000.
type Rate int

// stream is one concern's random source. Draws use integers only, so that
// they are the same on every processor.
type stream struct{ *rand.Rand }

// newStream derives the source of the named concern from the run's seed.
func newStream(seed uint64, name string) *stream {
	return &stream{rand.New(rand.NewPCG(seed, xxhash.Sum64String(name)))}
}

// hit says whether a thing of the given chance happens. It draws even when the
// chance is 0, so that turning a rate off does not shift later draws.
func (s *stream) hit(r Rate) bool { return s.IntN(10_000) < int(r) }

// between draws uniformly from [lo, hi].
func (s *stream) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		s.Uint64()
		return lo
	}
	return lo + time.Duration(s.Int64N(int64(hi-lo)+1))
}

// near draws from [lo, hi], mostly near lo, as delays of real devices do.
func (s *stream) near(lo, hi time.Duration) time.Duration {
	return min(s.between(lo, hi), s.between(lo, hi), s.between(lo, hi))
}

// about draws from [d/2, 3d/2]: an interval of mean d.
func (s *stream) about(d time.Duration) time.Duration { return s.between(d/2, d+d/2) }

// pick draws one of the values.
func pick[T any](s *stream, vs ...T) T { return vs[s.IntN(len(vs))] }
