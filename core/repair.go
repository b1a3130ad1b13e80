package core

import (
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// Damage to what is stored. A read that meets a batch that is not intact is held
// back: the batch is asked of the other replicas, one after the other, checked,
// put in its place, and the read is tried again. Replicas store equal bytes. Only
// when no other replica has it, or the disk keeps no repair, does the reader hear
// of DATA_LOSS.

// maxRepairs is how often a batch is repaired for one read.
const maxRepairs = 3

// storedRead is a read of segments under way, for the member's machine or, with
// scrubs set, for the scrub.
type storedRead struct {
	member   *member
	id       uint64 // the machine's
	scrubs   bool
	offset   model.Offset
	maxBytes int
	byTime   bool // the first batch of at or later, not the one at offset
	at       model.Wall
	mended   model.Offset // of the batch repaired for it last
	repairs  int          // of that batch
}

// repairing is a damaged batch of a group, and the reads that wait for it.
type repairing struct {
	damage  SegmentDamage
	again   bool
	tried   int    // other replicas asked so far
	ask     uint64 // under way
	from    model.NodeID
	retryAt model.Mono // then the next replica is asked
	waiting []uint64   // ids of effects
}

// damageCount is since the start.
type damageCount struct {
	found, repaired, unrepaired uint64
}

func (s *Shard) read(r storedRead) {
	s.lastRead++
	s.reads[s.lastRead] = r
	s.emitRead(s.lastRead, &r)
}

func (s *Shard) emitRead(id uint64, r *storedRead) {
	if r.byTime {
		s.emit(ReadAt{id, r.member.id, r.at})
		return
	}
	s.emit(Read{id, r.member.id, r.offset, r.maxBytes})
}

func (s *Shard) readDone(ev *ReadDone) {
	r, ok := s.reads[ev.ID]
	if !ok || ev.Damage != nil && s.mayRepair(ev.ID, &r, ev.Damage) {
		return
	}
	s.endRead(ev.ID, ev.Data, ev.Err)
}

// endRead hands a read's result to whoever asked.
func (s *Shard) endRead(id uint64, data []byte, err *model.Error) {
	r := s.reads[id]
	delete(s.reads, id)
	if r.scrubs {
		s.scrubbed(&r, data, err)
		return
	}
	if !r.member.gone {
		r.member.machine.ReadDone(r.member, r.id, data, err)
		s.touch(r.member)
	}
}

// others are the nodes with the other replicas of a group.
func (m *member) others() (out []model.NodeID) {
	for _, r := range m.r.Group().Replicas {
		if r.ID != m.r.Self() {
			out = append(out, r.Node)
		}
	}
	return out
}

// mayRepair holds a read back until its batch is repaired; false: it never will be.
func (s *Shard) mayRepair(id uint64, r *storedRead, d *SegmentDamage) bool {
	m := r.member
	switch {
	case m.gone:
		return false
	case r.repairs >= maxRepairs && r.mended == d.Offset:
		if m.lost == nil || *m.lost != d.Offset {
			m.lost = &d.Offset
			s.damage.unrepaired++
			s.cfg.Probe.Hit(probe.DamageNotRepaired)
			s.note("group %d: offset %d in segment file %s is damaged again after each of %d repairs: "+
				"the disk does not keep what is written; replace it", m.id, d.Offset, d.File, maxRepairs)
		}
		return false
	case m.repair != nil:
		m.repair.waiting = append(m.repair.waiting, id) // meets its own damage when it is tried again
		return true
	}
	again := m.lost != nil && *m.lost == d.Offset // tried before, and told of
	if !again {
		s.damage.found++
		s.cfg.Probe.Hit(probe.DamageFound)
		s.note("group %d: segment file %s is damaged at byte %d, offset %d: %s", m.id, d.File, d.Position, d.Offset, d.Cause)
	}
	m.repair = &repairing{damage: *d, again: again, waiting: []uint64{id}, retryAt: model.Never}
	s.askRepair(m)
	return true
}

// askRepair asks the next replica for the batch, or gives up.
func (s *Shard) askRepair(m *member) {
	p := m.repair
	delete(s.copies, p.ask) // one that got no answer in time
	p.ask = 0
	others := m.others()
	if p.tried >= len(others) {
		s.failRepair(m, model.Errorf(model.DataLoss, "offset %d of this partition is damaged on node %s (segment file %s, "+
			"byte %d), and no other replica could give it", p.damage.Offset, s.cfg.Self, p.damage.File, p.damage.Position))
		return
	}
	p.from = others[p.tried]
	p.tried++
	s.lastCopy++
	p.ask = s.lastCopy | copyAsk
	p.retryAt = s.now.Mono.Add(s.cfg.Timing.TryTimeout)
	s.copies[p.ask] = m
	s.ask(p.from, p.ask, m.id, &call.Read{Offset: p.damage.Offset, MaxBytes: 1})
	s.plan(m)
}

// repairAnswer takes another replica's batch, checks it and has it written.
func (s *Shard) repairAnswer(m *member, from model.NodeID, resp call.Response, err *model.Error) {
	p := m.repair
	r, ok := resp.(*call.ReadResult)
	if err != nil || !ok {
		s.askRepair(m)
		return
	}
	v, perr := batch.Parse(r.Run)
	if perr != nil || v.Base() != p.damage.Offset {
		s.note("group %d: node %s has no intact batch at offset %d either", m.id, from, p.damage.Offset)
		s.askRepair(m)
		return
	}
	p.ask, p.retryAt = 0, model.Never
	s.emit(SegmentRepair{m.id, v})
}

func (s *Shard) repairDone(ev *RepairDone) {
	m := s.byGroup[ev.Group]
	if m == nil || m.repair == nil || m.repair.ask != 0 {
		return
	}
	p := m.repair
	if ev.Err != nil {
		s.failRepair(m, ev.Err)
		return
	}
	s.damage.repaired++
	s.cfg.Probe.Hit(probe.DamageRepaired)
	s.note("group %d: offset %d in segment file %s was repaired with node %s's copy", m.id, p.damage.Offset,
		p.damage.File, p.from)
	m.repair, m.lost = nil, nil
	for _, id := range p.waiting {
		r := s.reads[id]
		if r.mended != p.damage.Offset {
			r.mended, r.repairs = p.damage.Offset, 0
		}
		r.repairs++
		s.reads[id] = r
		s.emitRead(id, &r)
	}
}

// failRepair tells the readers. The next read tries again.
func (s *Shard) failRepair(m *member, err *model.Error) {
	p := m.repair
	m.repair, m.lost = nil, &p.damage.Offset
	if !p.again {
		s.damage.unrepaired++
		s.cfg.Probe.Hit(probe.DamageNotRepaired)
		s.note("group %d: offset %d in segment file %s was not repaired: %v", m.id, p.damage.Offset, p.damage.File, err)
	}
	for _, id := range p.waiting {
		s.endRead(id, nil, err)
	}
}

// dropRepair forgets a repair with its replica; its reads have nobody who waits.
func (s *Shard) dropRepair(m *member) {
	if m.repair == nil {
		return
	}
	waiting := m.repair.waiting
	delete(s.copies, m.repair.ask)
	m.repair = nil
	for _, id := range waiting {
		s.endRead(id, nil, model.Errorf(model.Unavailable, "the replica was removed"))
	}
}
