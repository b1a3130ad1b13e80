package core

import (
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// The scrub reads what is stored, one group after the other, at a bounded rate,
// so that damage is found while another replica can still repair it. Reading is
// checking; what it meets is repaired like what a client's read meets.

// scrubStep is read at a time, in bytes.
const scrubStep = 256 << 10

// scrub is where the reading has come to.
type scrub struct {
	at     model.Mono // of the next step; Never while a read is under way
	group  model.GroupID
	offset model.Offset
	bytes  uint64 // read since the start
	passes uint64
}

// scrubMore reads the next stretch, of the next group that has any.
func (s *Shard) scrubMore() {
	for _, m := range s.members {
		p, ok := m.partition()
		if !ok || m.id < s.scrub.group || m.copying != nil || m.resetAt != nil || m.emptying {
			continue
		}
		if m.id > s.scrub.group {
			s.scrub.group, s.scrub.offset = m.id, 0
		}
		s.scrub.offset = max(s.scrub.offset, p.LogStart())
		if s.scrub.offset >= p.HighWatermark() {
			continue
		}
		s.scrub.at = model.Never
		s.read(storedRead{member: m, scrubs: true, offset: s.scrub.offset, maxBytes: scrubStep})
		return
	}
	s.scrub.group, s.scrub.offset = 0, 0
	s.scrub.passes++
	s.cfg.Probe.Hit(probe.ScrubPassed)
	s.scrub.at = s.now.Mono.Add(s.cfg.Timing.ScrubEvery)
}

// scrubbed goes on after a stretch, when its share of a second is over. What could
// not be read or repaired is passed over with the rest of its group.
func (s *Shard) scrubbed(r *storedRead, data []byte, err *model.Error) {
	next := r.offset
	for run := data; len(run) > 0; {
		v, perr := batch.ParseHeader(run)
		if perr != nil {
			break // the store checked it
		}
		run, next = run[len(v):], v.Next()
	}
	if err != nil || next == r.offset { // the end, or not written yet
		s.scrub.group, s.scrub.offset = r.member.id+1, 0
	} else {
		s.scrub.offset = next
	}
	s.scrub.bytes += uint64(len(data))
	share := time.Duration(len(data)) * time.Second / time.Duration(s.cfg.Limits.ScrubBytes)
	s.scrub.at = s.now.Mono.Add(max(share, time.Millisecond))
}
