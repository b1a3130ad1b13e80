package subscription

import (
	"cmp"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// needDeliveries refuses what does not name the delivery of each message.
func needDeliveries(offsets []call.PartitionOffset, deliveries []uint64) *model.Error {
	if len(offsets) != len(deliveries) {
		return model.Invalid("deliveries", "has %d entries for %d offsets; in mode shared name the delivery of each",
			len(deliveries), len(offsets))
	}
	return nil
}

// placeOf is where a partition's result stands in an answer; a new one goes to the end.
func placeOf(results *[]call.AckResult, place map[model.Partition]int, p model.Partition) int {
	at, there := place[p]
	if !there {
		at = len(*results)
		place[p] = at
		*results = append(*results, call.AckResult{Partition: p})
	}
	return at
}

// serveReturn gives messages of a shared subscription back, one by one. Apply
// judges each.
func (m *Machine) serveReturn(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.NackCursors) {
	ls.renew(req.Member, h.Now())
	if err := needDeliveries(req.Offsets, req.Deliveries); err != nil {
		m.finish(h, w, nil, err)
		return
	}
	w.results, w.places = nil, nil
	c := &returnCommand{id: st.id, count: true, limit: maxFailed}
	place := map[model.Partition]int{}
	for i, o := range req.Offsets {
		at := placeOf(&w.results, place, o.Partition)
		c.items = append(c.items, returned{o.Partition, req.Generation, o.Offset, req.Deliveries[i]})
		w.places = append(w.places, at)
	}
	m.hold(w)
	m.proposeFor(h, c, w)
}

// returnApplied holds back for a while what was nacked, and answers.
func (m *Machine) returnApplied(h group.Host, p *proposal, c *returnCommand, out outcome) {
	st := m.state.subscriptions[c.id]
	for _, w := range p.waits {
		if st == nil {
			m.finish(h, w, nil, gone(c.id))
			continue
		}
		t, req := m.terms(h, c.id), w.req.(*call.NackCursors)
		for i, place := range w.places {
			item, r := &c.items[i], &w.results[place]
			r.Err = cmp.Or(r.Err, out.lapses[i])
			if int(item.partition) >= len(st.partitions) {
				continue
			}
			part := &st.partitions[item.partition]
			r.Cursor = part.cursor
			if k := part.failedAt(item.offset); out.lapses[i] == nil && k < len(part.failed) &&
				part.failed[k].offset == item.offset {
				f := &part.failed[k]
				f.until = h.Now().Add(cmp.Or(req.Delay, t.backoff(f.attempts)))
			}
		}
		m.finish(h, w, &call.Acked{Results: w.results}, nil)
	}
	m.advance(h, c.id) // attempts may be used up
}

// serveProlong sets the ends of single leases, in memory.
func (m *Machine) serveProlong(
	h group.Host, w *wait, st *subscription, req *call.ExtendLeases, deadline model.Mono,
) {
	if err := needDeliveries(req.Offsets, req.Deliveries); err != nil {
		m.finish(h, w, nil, err)
		return
	}
	mb, resp, place := st.member(req.Member), &call.Acked{}, map[model.Partition]int{}
	for i, o := range req.Offsets {
		r := &resp.Results[placeOf(&resp.Results, place, o.Partition)]
		where, err := st.returned(&returned{o.Partition, req.Generation, o.Offset, req.Deliveries[i]})
		if where >= 0 {
			part := &st.partitions[o.Partition]
			if part.slots[where].session == mb.joined {
				part.slots[where].deadline = deadline
			} else {
				err = st.overtaken(o.Partition, o.Offset, req.Generation)
			}
		}
		r.Err = cmp.Or(r.Err, err)
		if int(o.Partition) < len(st.partitions) {
			r.Cursor = st.partitions[o.Partition].cursor
		}
	}
	m.finish(h, w, resp, nil)
	m.noteDeadline(h, st.id)
}

// lapseShared proposes that what came due comes again.
func (m *Machine) lapseShared(h group.Host, st *subscription) {
	c := &returnCommand{id: st.id, count: true, limit: maxFailed}
	next := h.Now().Add(proposeRetry) // it comes due again if the entry is dropped
	for p := range st.partitions {
		part := &st.partitions[p]
		for i := range part.slots {
			if s := &part.slots[i]; s.out() && s.deadline <= h.Now() {
				s.deadline = model.Never
				c.items = append(c.items, returned{model.Partition(p), st.generation, s.offset, s.delivery})
			}
		}
	}
	if len(c.items) == 0 || m.propose(h, c) {
		return
	}
	for _, r := range c.items {
		part := &st.partitions[r.partition]
		if i, ok := part.slotAt(r.offset); ok {
			part.slots[i].deadline = next
		}
	}
}

// inheritShared starts all leases anew, and forgets who was held back.
func (s *subscription) inheritShared(deadline model.Mono) {
	for p := range s.partitions {
		part := &s.partitions[p]
		for i := range part.slots {
			part.slots[i].deadline = deadline
		}
		for i := range part.failed {
			part.failed[i].until = 0
		}
	}
}

// nextLapse is when the next lease ends.
func (s *subscription) nextLapse() model.Mono {
	at := model.Never
	for p := range s.partitions {
		for i := range s.partitions[p].slots {
			if sl := &s.partitions[p].slots[i]; sl.out() {
				at = min(at, sl.deadline)
			}
		}
	}
	return at
}

// died lists the sessions, by number, that end for their members' silence.
func (ls *leadSubscription) died(leaves []leaving) (out []uint64) {
	for _, l := range leaves {
		if !ls.asked(l) {
			out = append(out, l.joined)
		}
	}
	return out
}
