package subscription

import (
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// serveDeliver first moves cursors over what the log has lost, then makes sure
// that this replica still leads: a deposed leader would hand out again what the
// new one saw acked. A committed skip shows it, a ReadIndex does otherwise.
func (m *Machine) serveDeliver(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.Deliver) {
	if st.shared() {
		m.serveLease(h, w, st, ls, req)
		return
	}
	ls.renew(req.Member, h.Now())
	c := &skipCommand{id: st.id}
	for _, skip := range req.Skips {
		if err := st.inRange(skip.Partition); err != nil {
			m.finish(h, w, nil, err)
			return
		}
		part := &st.partitions[skip.Partition]
		if skip.To > part.cursor && st.accepts(req.Member, req.Generation, skip.Partition) {
			c.to = append(c.to, place{skip.Partition, skip.To})
		}
	}
	for _, r := range slices.Concat(req.Ranges, req.Filtered) {
		if err := st.inRange(r.Partition); err != nil {
			m.finish(h, w, nil, err)
			return
		}
	}
	m.hold(w)
	var cmd command = c
	if passes := st.passes(req); len(passes) > 0 {
		cmd = &passCommand{skip: *c, passes: passes, limit: uint32(m.config.MaxAhead)}
	} else if len(c.to) == 0 {
		h.ReadIndex(w.ref)
		return
	}
	m.proposeFor(h, cmd, w)
}

func (m *Machine) skipApplied(h group.Host, p *proposal, id model.SubscriptionID, out outcome) {
	st, ls := m.state.subscriptions[id], m.lead.subscription(id)
	if st != nil {
		for _, r := range out.skipped {
			mem := ls.at(st, r.Partition)
			if mem.skipped {
				r.From = min(r.From, mem.skip.From)
			}
			mem.skipped, mem.told, mem.skip = true, false, r
		}
	}
	for _, w := range p.waits {
		if w.gone {
			continue
		}
		if st == nil {
			m.finish(h, w, nil, gone(id))
			continue
		}
		m.finishDeliver(h, w, st, ls, w.req.(*call.Deliver))
	}
	m.advance(h, id)
}

// finishDeliver records what goes out, and says so.
func (m *Machine) finishDeliver(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.Deliver) {
	if st.shared() {
		m.finishReplay(h, w, st, ls, req)
		return
	}
	s := ls.sessions[req.Member]
	resp := &call.Delivered{Generation: st.generation}
	if s == nil || ls.leavingNow(req.Member) {
		m.finish(h, w, resp, nil) // its session ended: nothing may go out
		return
	}
	var err *model.Error
	switch {
	case req.PullSequence != 0 && req.PullSequence != s.run.sequence:
		err = outOfTurn()
	case req.PullSequence != 0 && s.run.recorded:
		resp.Ranges, err = s.run.again(st, req)
	default:
		t := m.terms(h, st.id)
		resp.Ranges = ls.deliver(st, s, req, h.Now(), &t)
		m.noteLeases(h, ls, &t)
	}
	if err != nil {
		m.finish(h, w, nil, err)
		return
	}
	owned := ls.ownedBy(st, req.Member)
	resp.Skipped = ls.skips(st, owned)
	for _, p := range owned {
		if mem := ls.at(st, p); mem.skipped {
			mem.told, mem.toldIn = true, req.PullSequence
		}
	}
	m.finish(h, w, resp, nil)
}

// outOfTurn refuses a delivery that another one for the same sequence, or a
// failover, has overtaken. To let it out could skip messages: the next pull
// confirms what is recorded, not what this one carries.
func outOfTurn() *model.Error {
	return model.Errorf(model.Unavailable,
		"this pull was overtaken by another one of its member; pull again with the same pull_sequence")
}

// deliver takes the ranges that may go out into memory.
func (ls *leadSubscription) deliver(
	st *subscription, s *session, req *call.Deliver, now model.Mono, t *terms,
) (out []call.Range) {
	room := ls.room(st, req.Member, t)
	reach := make(map[model.Partition]model.Offset, len(req.Ranges))
	for _, r := range req.Ranges {
		part, mem := &st.partitions[r.Partition], ls.at(st, r.Partition)
		// What is acked meanwhile need not go out. What begins above the place
		// where this run stands was granted to an earlier one, and leaves a gap.
		from, on := reach[r.Partition]
		if from = max(from, part.cursor); !on && req.PullSequence != 0 {
			from = max(from, mem.position)
		}
		if r.From > part.acked.free(from) || mem.revoking || !st.accepts(req.Member, req.Generation, r.Partition) {
			continue
		}
		r.From = part.acked.free(max(r.From, part.cursor))
		r.To = min(r.To, mem.bound(part, r.From, room, now, t))
		reach[r.Partition] = max(from, r.To)
		if r.From >= r.To {
			continue
		}
		before := mem.out(part)
		mem.delivered = max(mem.delivered, r.To)
		mem.hold(r.To, now, t.ack)
		room -= min(room, mem.out(part)-before)
		for _, open := range part.open(r) {
			out = part.tries(out, open)
		}
		s.next = r.Partition + 1
	}
	// One that only skips is not an answer yet: its pull goes on from there.
	if req.PullSequence != 0 && (len(out) > 0 || len(req.Skips) == 0 && len(req.Filtered) == 0) {
		s.run.recorded = true
		for _, r := range out {
			s.run.ranges = append(s.run.ranges, recordedRange{r, st.partitions[r.Partition].fence})
		}
	}
	return out
}

// noteLeases sees to it that Tick comes when what went out now comes due.
func (m *Machine) noteLeases(h group.Host, ls *leadSubscription, t *terms) {
	at := h.Now().Add(t.ack)
	ls.nextDeadline = min(ls.nextDeadline, at)
	m.note(h, at)
}

// again lets a recorded answer out once more, if the delivery carries the whole of it.
func (r *run) again(st *subscription, req *call.Deliver) ([]call.Range, *model.Error) {
	left, at := r.replay(st, req.Member), 0
	for _, want := range left {
		carries := func(got call.Range) bool {
			return got.Partition == want.Partition && got.From <= want.From && want.To <= got.To
		}
		// Both lists ascend within a partition: mostly the next one is it.
		if at == len(req.Ranges) || !carries(req.Ranges[at]) {
			if at = slices.IndexFunc(req.Ranges, carries); at < 0 {
				return nil, outOfTurn()
			}
		}
	}
	return left, nil
}
