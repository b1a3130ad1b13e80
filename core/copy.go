package core

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/partition"
	"github.com/tapedeck/tapedeck/core/probe"
)

// Copy, then snapshot. A partition's snapshot is small: it names offsets, but
// the messages below them live in segments. A replica that is sent one first
// copies what it lacks from the sender's segments, syncs it, and only then steps
// the message into raft. Until then its raft state is untouched: it votes with
// the log it has, and acknowledges nothing it does not hold. A crash meanwhile
// costs the copy, nothing else.

// copyAsk marks the asks of copies among this node's asks.
const copyAsk = 1 << 63

const copyBytes = 1 << 20

// copying is a snapshot whose content is being fetched.
type copying struct {
	msg     *pb.Message
	from    model.NodeID
	at      model.Offset // copied so far, exclusive; written to the store
	end     model.Offset // the snapshot's high watermark
	rolls   []model.Offset
	ask     uint64 // under way; 0: none
	retryAt model.Mono
	waiting bool   // for the journal or for the final sync
	sync    uint64 // the final sync under way; 0: none
}

// mayInstall says whether a snapshot's message may be stepped now; otherwise it
// starts, or redirects, the copy of what it names.
func (s *Shard) mayInstall(m *member, msg *pb.Message) bool {
	if msg.GetSnapshot().GetMetadata().GetIndex() <= m.r.Applied() || msg.GetTerm() < m.r.View().Term {
		return true
	}
	trial := s.blank(m.g.group)
	if err := trial.Restore(msg.GetSnapshot().GetData()); err != nil {
		s.note("group %d: a snapshot from the leader does not decode: %v", m.id, err)
		return false
	}
	own, ok := m.partition()
	if !ok {
		return true
	}
	p := trial.(*partition.Machine)
	c := m.copying
	node, ok := m.r.NodeOf(msg.GetFrom())
	if !ok {
		return false
	}
	switch {
	case c == nil:
		s.cfg.Probe.Hit(probe.CopyBegun)
	case c.from != node:
		s.cfg.Probe.Hit(probe.CopyRedirected)
	}
	if c == nil {
		c = &copying{at: own.HighWatermark()}
		if m.resetAt != nil {
			c.at = *m.resetAt
		}
		if m.storedTo > c.at {
			c.at = m.storedTo
		}
		m.copying = c
	}
	c.msg, c.from, c.end = msg, node, p.HighWatermark()
	c.rolls = c.rolls[:0]
	for _, seg := range p.Segments() {
		c.rolls = append(c.rolls, seg.Base)
	}
	if p.LogStart() > c.at {
		s.resetStore(m, p.LogStart())
		return false
	}
	if c.ask == 0 && !c.waiting {
		s.copyMore(m)
	}
	return false
}

// resetStore empties the store, since the leader has nothing to close the gap
// with. The journal learns of it first: recovery must not miss what is gone.
func (s *Shard) resetStore(m *member, at model.Offset) {
	if m.emptying {
		return // a later message says how far to go
	}
	s.cfg.Probe.Hit(probe.StoreEmptied)
	c := m.copying
	delete(s.copies, c.ask)
	c.waiting, c.at, c.ask, c.sync = true, at, 0, 0
	c.retryAt = model.Never
	m.emptying = true
	rec := JournalRecord{Type: RecordReset, Group: m.id, Index: uint64(at)}
	s.append(rec, true, nil, func() {
		if m.gone {
			return
		}
		m.emptying, m.resetAt, m.storedTo = false, &at, at
		s.emit(SegmentReset{Group: m.id, At: at})
		m.copying.waiting = false
		s.copyMore(m)
	})
}

// copyMore asks the sender for the next stretch, or finishes.
func (s *Shard) copyMore(m *member) {
	c := m.copying
	if c.waiting {
		c.retryAt = model.Never
		return
	}
	if s.behind {
		c.retryAt = s.now.Mono.Add(helloInterval)
		s.plan(m)
		return
	}
	if c.at >= c.end {
		c.waiting = true
		c.retryAt = model.Never
		s.lastSync++
		c.sync = s.lastSync
		s.syncs[s.lastSync] = m
		s.emit(SegmentSync{s.lastSync, m.id})
		return
	}
	delete(s.copies, c.ask) // one that got no answer in time
	s.lastCopy++
	c.ask = s.lastCopy | copyAsk
	c.retryAt = s.now.Mono.Add(s.cfg.Timing.TryTimeout)
	s.copies[c.ask] = m
	s.ask(c.from, c.ask, m.id, &call.Read{Offset: c.at, MaxBytes: copyBytes})
	s.plan(m)
}

// copied takes a stretch. Batches are checked before they are kept.
func (s *Shard) copied(ask uint64, from model.NodeID, resp call.Response, err *model.Error) {
	m := s.copies[ask]
	delete(s.copies, ask)
	if m != nil && m.repair != nil && m.repair.ask == ask {
		s.repairAnswer(m, from, resp, err)
		return
	}
	if m == nil || m.gone || m.copying == nil || m.copying.ask != ask {
		return
	}
	c := m.copying
	c.ask = 0
	was := c.at
	r, ok := resp.(*call.ReadResult)
	if err != nil || !ok {
		c.retryAt = s.now.Mono.Add(helloInterval)
		s.plan(m)
		return
	}
	for run := r.Run; len(run) > 0; {
		v, perr := batch.Parse(run)
		if perr != nil {
			s.note("group %d: node %s sent a damaged batch at offset %d: %v", m.id, c.from, c.at, perr)
			break
		}
		run = run[len(v):]
		if v.Base() == c.at && v.Next() <= c.end {
			if slices.Contains(c.rolls, v.Base()) {
				s.emit(SegmentRoll{m.id, v.Base()})
			}
			s.emit(SegmentAppend{m.id, v})
			c.at = v.Next()
			m.storedTo = c.at
			if s.cfg.Choice.Rare(choice.CopyEndsEarly) {
				break
			}
		}
	}
	if c.at == was { // it has nothing to give at the moment
		c.retryAt = s.now.Mono.Add(helloInterval)
		s.plan(m)
		return
	}
	s.copyMore(m)
}

// segmentDone ends a copy: what the snapshot names is on disk.
func (s *Shard) segmentDone(ev SegmentDone) {
	m := s.syncs[ev.ID]
	delete(s.syncs, ev.ID)
	if m == nil || m.gone || m.copying == nil || m.copying.sync != ev.ID {
		return
	}
	c := m.copying
	c.waiting, c.sync = false, 0
	if ev.Err != nil || c.at < c.end { // the target may have moved on meanwhile
		c.retryAt = s.now.Mono.Add(helloInterval)
		s.plan(m)
		return
	}
	m.copying = nil
	m.r.Install(c.msg)
	s.touch(m)
}

func (m *member) partition() (*partition.Machine, bool) {
	p, ok := m.machine.(*partition.Machine)
	return p, ok
}

// markOf is where the stored segments begin and end for certain: with what the
// state names, or higher up if they were emptied to begin there.
func markOf(g model.GroupID, p *partition.Machine, reset *model.Offset) SegmentMark {
	if reset != nil {
		return SegmentMark{g, *reset, max(*reset, p.HighWatermark())}
	}
	return SegmentMark{g, p.LogStart(), p.HighWatermark()}
}

// settleReset ends a reset that the state accounts for: the log's start may come
// up to it by entries, too, when another leader still had them.
func (m *member) settleReset() {
	if m.resetAt == nil {
		return
	}
	if p, ok := m.partition(); ok && p.LogStart() >= *m.resetAt {
		m.resetAt = nil
	}
}
