package subscription

import (
	"cmp"
	"math"
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// serveAck judges each partition as far as the leader's memory goes; the fence
// is judged by apply. What apply has to see goes into the next Ack entry.
func (m *Machine) serveAck(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.AckCursors) {
	if len(req.UpTo)+len(req.Offsets) == 0 {
		m.finish(h, w, nil, model.Invalid("up_to", "names no partition; name at least one to acknowledge"))
		return
	}
	if st.shared() && len(req.UpTo) > 0 {
		m.finish(h, w, nil, model.Invalid("up_to", "is for mode ordered; in mode shared name the offsets"))
		return
	}
	ls.renew(req.Member, h.Now())
	w.results, w.items, w.places = nil, nil, nil
	ends := endsOf(req.Ends)
	for _, want := range wantsOf(st, req) {
		result := call.AckResult{Partition: want.partition, Err: want.err}
		if result.Err == nil && !want.void && !st.shared() { // else apply looks at what was delivered
			result.Err = ls.checkEnd(st, want, ends)
		}
		if result.Err == nil {
			w.items, w.places = append(w.items, want.ackItem), append(w.places, len(w.results))
		}
		w.results = append(w.results, result)
	}
	if len(w.items) == 0 {
		m.finish(h, w, &call.Acked{Results: w.results}, nil)
		return
	}
	m.hold(w)
	m.lead.acks = append(m.lead.acks, w)
	m.flushAcks(h)
}

// want is what an ack asks of one partition.
type want struct {
	ackItem
	err *model.Error
}

// wantsOf gathers an ack by partition, in the order named.
func wantsOf(st *subscription, req *call.AckCursors) (wants []want) {
	place := make(map[model.Partition]int, len(req.UpTo))
	at := func(p model.Partition) *want {
		i, ok := place[p]
		if !ok {
			i = len(wants)
			place[p] = i
			wants = append(wants, want{ackItem: ackItem{partition: p}, err: st.inRange(p)})
		}
		return &wants[i]
	}
	for _, o := range req.UpTo {
		w := at(o.Partition)
		w.next = max(w.next, o.Offset)
	}
	for _, o := range req.Offsets {
		at(o.Partition)
	}
	offsets := slices.Clone(req.Offsets) // ascending, adding costs nothing
	slices.SortStableFunc(offsets, func(a, b call.PartitionOffset) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, o := range offsets {
		if w := at(o.Partition); o.Offset == math.MaxUint64 {
			w.err = cmp.Or(w.err, model.Invalid("offsets", "%d is no offset", o.Offset))
		} else {
			w.ahead.add(interval{o.Offset, o.Offset + 1})
		}
	}
	for i := range wants {
		w := &wants[i]
		w.void = w.err == nil && !st.accepts(req.Member, req.Generation, w.partition)
	}
	return wants
}

func endsOf(list []call.PartitionOffset) map[model.Partition]model.Offset {
	ends := make(map[model.Partition]model.Offset, len(list))
	for _, e := range list {
		ends[e.Partition] = e.Offset
	}
	return ends
}

// checkEnd refuses an ack above what was delivered. What an earlier leader
// delivered is not known here: then the log's end decides, freshly read.
func (ls *leadSubscription) checkEnd(st *subscription, w want, ends map[model.Partition]model.Offset) *model.Error {
	if w.end() <= ls.at(st, w.partition).delivered {
		return nil
	}
	end, ok := ends[w.partition]
	if !ok {
		return model.Reasoned(model.FailedPrecondition, call.ReasonCheckEnd, 0,
			"partition %d: offset %d is above what is known to be delivered; ask again with the log's end",
			w.partition, w.end())
	}
	if w.next > end {
		return model.Invalid("up_to", "partition %d: next_offset %d is above the end %d of the log",
			w.partition, w.next, end)
	}
	if w.end() > end {
		return model.Invalid("offsets", "partition %d: offset %d is not below the end %d of the log",
			w.partition, w.end()-1, end)
	}
	return nil
}

// flushAcks proposes all acks that wait, as one entry, unless one is under way.
func (m *Machine) flushAcks(h group.Host) {
	l := m.lead
	if l.acking || len(l.acks) == 0 {
		return
	}
	waits := l.acks
	l.acks = nil
	c := &ackCommand{acks: make([]ack, 0, len(waits)), limit: uint32(m.config.MaxAhead)}
	for _, w := range waits {
		req := w.req.(*call.AckCursors)
		c.acks = append(c.acks, ack{w.id, req.Member, req.Generation, w.items})
	}
	l.acking = m.proposeFor(h, c, waits...)
}

func (m *Machine) ackApplied(h group.Host, p *proposal, c *ackCommand, out outcome) {
	m.lead.acking = false
	for i, w := range p.waits {
		for j, place := range w.places {
			w.results[place] = out.acks[i][j]
		}
		m.finish(h, w, &call.Acked{Results: w.results}, nil)
	}
	m.flushAcks(h)
	// What was all acked may now be given away.
	for _, a := range c.acks {
		if ls := m.lead.subscriptions[a.id]; ls != nil && ls.revoking {
			m.advance(h, a.id)
		}
	}
}
