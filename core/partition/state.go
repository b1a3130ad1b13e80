package partition

import (
	"cmp"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// Segment is one of a partition's segments: offsets [Base, next segment's Base).
type Segment struct {
	Base                model.Offset
	FirstTime, LastTime model.Wall // append times; meaningless while it is empty
	LastAged            model.Wall // age clock at its last batch
	Bytes               uint64     // of its batches; 0 while it is empty
	Created             model.Wall // log time at which it was begun
}

// settings are the topic's, as far as apply reads them.
type settings struct {
	version        uint64 // of the map they were taken from; 0: none came yet
	retentionTime  time.Duration
	retentionBytes uint64 // 0: unbounded
}

// state is what every replica derives from the log alone.
type state struct {
	next       model.Offset // also the high watermark
	lastAppend model.Wall   // append time of the last batch
	clock      logClock
	settings   settings
	segments   []Segment // never empty; the last is active
	bytes      uint64    // of all segments
	producers  producers
}

// logClock is the replicated time. time is the greatest time in the log, at
// least the last append time. aged is what ages are reckoned by: it runs as time
// does, but stands still after an entry whose time could not be trusted. The
// step from there, which may set time right by days, is no age of what was
// written before: nothing is deleted early because a leader's clock was off.
type logClock struct {
	time, aged model.Wall
	untrusted  bool // the last entry's time was
}

// move takes an entry's time in.
func (c *logClock) move(at model.Wall, untrusted bool) {
	if at > c.time {
		if !c.untrusted {
			c.aged += at - c.time
		}
		c.time = at
	}
	c.untrusted = untrusted
}

func newState() state { return state{segments: []Segment{{}}} }

// logStart is the first offset still there, or next when nothing is.
func (s *state) logStart() model.Offset { return s.segments[0].Base }

func (s *state) active() *Segment { return &s.segments[len(s.segments)-1] }

// standing is what is known of a producer.
func (s *state) standing(id model.ProducerID) standing {
	if p := s.producers.get(id); p != nil {
		return standing{true, p.epoch, p.next}
	}
	return standing{}
}

// acceptBatch gives a stamped batch its offsets, if its stamp and sequence
// continue the log. Otherwise nothing changes.
func (s *state) acceptBatch(v batch.View) bool {
	if v.Base() != s.next || v.AppendTime() < s.clock.time {
		return false
	}
	if id := v.Producer(); id != 0 {
		if fitOf(s.standing(id), v, v.StampFlags()&batch.StampStart != 0) != fits {
			return false
		}
	}
	s.clock.move(v.AppendTime(), v.StampFlags()&batch.StampUntrusted != 0)
	if v.Producer() != 0 {
		s.remember(v)
	}
	a := s.active()
	if a.Bytes == 0 {
		a.FirstTime = v.AppendTime()
	}
	a.LastTime, a.LastAged = v.AppendTime(), s.clock.aged
	a.Bytes += uint64(len(v))
	s.bytes += uint64(len(v))
	s.next = v.Next()
	s.lastAppend = v.AppendTime()
	return true
}

func (s *state) remember(v batch.View) {
	p := s.producers.touch(v.Producer(), s.clock.aged)
	if p.epoch != v.Epoch() {
		p.begin(v.Epoch(), v.Sequence())
	}
	p.remember(remembered{v.Sequence(), v.Count(), v.Base(), v.AppendTime()})
}

// fence bars epochs older than the given one. A fence that is no news changes nothing.
func (s *state) fence(id model.ProducerID, epoch model.Epoch) {
	if p := s.producers.get(id); p != nil && p.epoch >= epoch {
		return
	}
	s.producers.touch(id, s.clock.aged).begin(epoch, 0)
}

// roll closes the active segment, unless it is empty or the log went on meanwhile.
func (s *state) roll(at model.Offset) bool {
	if at != s.next || s.active().Bytes == 0 {
		return false
	}
	s.segments = append(s.segments, Segment{Base: at, Created: s.clock.time})
	return true
}

// trim moves the log start to a segment's base, if retention allows it by now.
func (s *state) trim(before model.Offset) bool {
	if before <= s.logStart() || before > s.trimBound(s.clock.aged) {
		return false
	}
	i, ok := slices.BinarySearchFunc(s.segments, before,
		func(g Segment, o model.Offset) int { return cmp.Compare(g.Base, o) })
	if !ok {
		return false
	}
	for _, g := range s.segments[:i] {
		s.bytes -= g.Bytes
	}
	s.segments = slices.Delete(s.segments, 0, i)
	return true
}

// trimBound is where the log start may move when the age clock shows aged: past whole closed
// segments whose last batch is older than the retention time, and past those
// without which the bytes kept still reach the retention's. Without settings
// nothing goes.
func (s *state) trimBound(aged model.Wall) model.Offset {
	bound, left := s.logStart(), s.bytes
	if s.settings.version == 0 {
		return bound
	}
	for i := range s.segments[:len(s.segments)-1] {
		g := &s.segments[i]
		old := g.LastAged <= minus(aged, s.settings.retentionTime)
		much := s.settings.retentionBytes > 0 && left-g.Bytes >= s.settings.retentionBytes
		if !old && !much {
			break
		}
		left -= g.Bytes
		bound = s.segments[i+1].Base
	}
	return bound
}

// segmentOf returns the segment that holds the offset, which must be in [logStart, next).
func (s *state) segmentOf(o model.Offset) *Segment {
	i, ok := slices.BinarySearchFunc(s.segments, o,
		func(g Segment, o model.Offset) int { return cmp.Compare(g.Base, o) })
	if !ok {
		i--
	}
	return &s.segments[i]
}
