package subscription

import (
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// competing is what a leader remembers of a member of a shared subscription.
type competing struct {
	sequence uint64       // of its latest pull
	old      bool         // that was offered only what was looked at before
	skips    []call.Range // to be told until the next pull confirms them
	toldIn   uint64       // the pull whose answer told them
	told     bool
	// takenBack is a delivery that an entry under way takes back: nobody waited for
	// it any more. A pull of its sequence does not get it again, or a message would
	// be with its member and with the next one.
	takenBack uint64
}

// offer says what a pull of a shared subscription may read. Nothing is given
// yet: many may be offered the same, and the entry of the delivery decides. What
// came back is offered before what is new.
func (m *Machine) offer(h group.Host, st *subscription, ls *leadSubscription, req *call.Grant) (
	*call.Granted, *model.Error) {
	s, mb, t := ls.sessions[req.Member], st.member(req.Member), m.terms(h, st.id)
	resp := &call.Granted{Member: req.Member, Generation: st.generation, Skipped: s.competing.confirm(req.PullSequence)}
	if sequence := req.PullSequence; sequence != 0 {
		known := max(mb.sequence, s.competing.sequence)
		if sequence < known && sequence != 1 {
			return nil, model.Invalid("pull_sequence",
				"is %d; expected %d (the last one, again), a higher one, or 1 (begin anew)", sequence, known)
		}
		s.competing.sequence = sequence
		if given := ls.replay(st, mb, sequence); len(given) > 0 {
			resp.Replay = true
			resp.Ranges, resp.Acked = between(given)
			return resp, nil
		}
	}
	if resp.Room = uint32(st.room(mb.joined, t.member, t.total)); resp.Room == 0 {
		return resp, nil
	}
	var old, all []offered
	first := min(int(s.next), len(st.partitions))
	for i := range st.partitions {
		p := (first + i) % len(st.partitions)
		o := st.partitions[p].opening(model.Partition(p), mb.joined, st.keyed, h.Now(), &t)
		if o.old {
			old = append(old, o)
		}
		all = append(all, o)
	}
	if len(old) > 0 && !s.competing.old {
		s.competing.old, all = true, old
	} else {
		s.competing.old = false // what came back may not be readable now: it stops nobody
	}
	for _, o := range all {
		if s.competing.old && (o.To == 0 || o.To > o.edge) {
			o.To = o.edge
		}
		resp.Ranges = append(resp.Ranges, o.Range)
		resp.Acked = append(resp.Acked, o.taken...)
	}
	if len(resp.Ranges) > 0 {
		s.next = resp.Ranges[0].Partition + 1
	}
	return resp, nil
}

// confirm forgets the skips told in an answer that, as this pull shows, arrived.
func (c *competing) confirm(sequence uint64) []call.Range {
	if c.told && (sequence == 0 || sequence != c.toldIn) {
		c.skips, c.told = nil, false
	}
	return c.skips
}

// replay is what is left of the pull with this sequence, if it is the last one.
func (s *subscription) replay(mb *member, sequence uint64) []call.Range {
	if sequence == 0 || mb.sequence != sequence {
		return nil
	}
	return s.given(mb.joined, mb.delivery)
}

// replay is the same without what is being taken back.
func (ls *leadSubscription) replay(st *subscription, mb *member, sequence uint64) []call.Range {
	if s := ls.sessions[mb.id]; s != nil && s.competing.takenBack != 0 && s.competing.takenBack == mb.delivery {
		return nil
	}
	return st.replay(mb, sequence)
}

// between joins the ranges of each partition, and says what lies between them.
func between(ranges []call.Range) (out, gaps []call.Range) {
	for _, r := range ranges {
		n := len(out)
		if n == 0 || out[n-1].Partition != r.Partition {
			out = append(out, r)
			continue
		}
		if out[n-1].To < r.From {
			gaps = append(gaps, call.Range{Partition: r.Partition, From: out[n-1].To, To: r.From})
		}
		out[n-1].To = r.To
	}
	return out, gaps
}

// offered is what of a partition may be read.
type offered struct {
	call.Range
	taken []call.Range // of it, not to be handed out
	edge  model.Offset
	old   bool // it begins below the edge
}

// opening is what of a partition is open to a session: neither acked, nor out, nor
// held back, nor after a message of its key that is.
func (p *partition) opening(n model.Partition, session uint64, keyed bool, now model.Mono, t *terms) offered {
	shut := p.shut(session, keyed, now, t)
	o := offered{Range: call.Range{Partition: n, From: p.cursor, Attempt: 1}, edge: p.edge()}
	for i, k := p.acked.at(p.cursor), 0; i < len(p.acked) || k < len(shut); {
		var x interval
		if k == len(shut) || i < len(p.acked) && p.acked[i].from < shut[k].from {
			x, i = p.acked[i], i+1
		} else {
			x, k = shut[k], k+1
		}
		switch n := len(o.taken); {
		case x.from <= o.From:
			o.From = max(o.From, x.to)
		case n > 0 && x.from <= o.taken[n-1].To:
			o.taken[n-1].To = max(o.taken[n-1].To, x.to)
		case n == maxTold:
			o.To = x.from
			i, k = len(p.acked), len(shut)
		default:
			o.taken = append(o.taken, call.Range{Partition: o.Partition, From: x.from, To: x.to})
		}
	}
	o.old = o.From < o.edge
	return o
}

// shut lists what is not acked and not open to a session, ascending.
func (p *partition) shut(session uint64, keyed bool, now model.Mono, t *terms) (out intervals) {
	holders, failed := keyHolders{}, 0
	waits := func(o model.Offset) bool { // what came back may be held back, or be at its end
		for failed < len(p.failed) && p.failed[failed].offset < o {
			failed++
		}
		there := failed < len(p.failed) && p.failed[failed].offset == o
		return there && p.failed[failed].until > now || p.closed(o, t.attempts)
	}
	if !keyed {
		slots := p.slots
		for _, f := range p.failed {
			for ; len(slots) > 0 && slots[0].offset < f.offset; slots = slots[1:] {
				out = append(out, interval{slots[0].offset, slots[0].offset + 1})
			}
			if leased := len(slots) > 0 && slots[0].offset == f.offset; !leased && waits(f.offset) {
				out = append(out, interval{f.offset, f.offset + 1})
			}
		}
		for i := range slots {
			out = append(out, interval{slots[i].offset, slots[i].offset + 1})
		}
		return out
	}
	for i := range p.slots {
		s := &p.slots[i]
		if s.out() || !holders.open(s.key, session) || waits(s.offset) {
			out = append(out, interval{s.offset, s.offset + 1})
			holders.pass(s)
		}
	}
	return out
}

// serveLease queues what a pull has read for the next lease entry.
func (m *Machine) serveLease(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.Deliver) {
	ls.renew(req.Member, h.Now())
	places := make([]model.Partition, 0, len(req.Ranges)+len(req.Skips))
	for _, r := range slices.Concat(req.Ranges, req.Skips, req.Filtered) {
		places = append(places, r.Partition)
	}
	for _, p := range places {
		if err := st.inRange(p); err != nil {
			m.finish(h, w, nil, err)
			return
		}
	}
	mb := st.member(req.Member)
	if mb == nil || ls.leavingNow(req.Member) {
		m.finish(h, w, &call.Delivered{Generation: st.generation}, nil) // its session ended: nothing may go out
		return
	}
	m.hold(w)
	if len(ls.replay(st, mb, req.PullSequence)) > 0 {
		h.ReadIndex(w.ref) // whoever has replaced this leader may have given it to others
		return
	}
	m.lead.leases = append(m.lead.leases, w)
	m.flushLeases(h)
}

// leasePull is a delivery as the entry carries it.
func (m *Machine) leasePull(h group.Host, st *subscription, mb *member, req *call.Deliver) (leasePull, *model.Error) {
	t, keys := m.terms(h, st.id), req.Keys
	p := leasePull{id: st.id, session: mb.joined, sequence: req.PullSequence, token: req.Token,
		member: t.member, total: t.total, attempts: t.attempts, window: maxFailed, ahead: uint32(m.config.MaxAhead)}
	for _, r := range req.Filtered {
		if fence := st.partitions[r.Partition].fence; req.Generation >= fence {
			p.passes = append(p.passes, pass{r.Partition, fence, interval{r.From, r.To}})
		}
	}
	for _, s := range req.Skips {
		p.skips = append(p.skips, place{s.Partition, s.To})
	}
	for _, r := range req.Ranges {
		span := leaseSpan{partition: r.Partition, fence: st.partitions[r.Partition].fence, from: r.From, to: r.To}
		if req.Generation < span.fence {
			span.to = span.from // read before a seek
		}
		if n := uint64(r.To - r.From); st.keyed {
			if r.To < r.From || n > uint64(len(keys)) {
				return p, model.Errorf(model.Unavailable, "the keys of what was read are missing; pull again")
			}
			span.keys, keys = keys[:n], keys[n:]
		}
		p.spans = append(p.spans, span)
	}
	return p, nil
}

// flushLeases proposes all deliveries that wait, as one entry, unless one is under way.
func (m *Machine) flushLeases(h group.Host) {
	l := m.lead
	if l.leasing || len(l.leases) == 0 {
		return
	}
	waits := l.leases
	l.leases = nil
	c, asked := &leaseCommand{}, make([]*wait, 0, len(waits))
	for _, w := range waits {
		req, st := w.req.(*call.Deliver), m.state.subscriptions[w.id]
		if st == nil {
			m.finish(h, w, nil, gone(w.id))
			continue
		}
		mb := st.member(req.Member)
		if mb == nil {
			m.finish(h, w, &call.Delivered{Generation: st.generation}, nil)
			continue
		}
		p, err := m.leasePull(h, st, mb, req)
		if err != nil {
			m.finish(h, w, nil, err)
			continue
		}
		c.pulls, asked = append(c.pulls, p), append(asked, w)
	}
	if len(asked) == 0 {
		return
	}
	l.leasing = m.proposeFor(h, c, asked...)
}

// leaseApplied answers the pulls of an entry. What nobody waits for any more
// never goes out: it is taken back, uncounted.
func (m *Machine) leaseApplied(h group.Host, p *proposal, c *leaseCommand, out outcome) {
	m.lead.leasing = false
	for i, w := range p.waits {
		got, st := &out.leases[i], m.state.subscriptions[w.id]
		if st == nil {
			m.finish(h, w, nil, gone(w.id))
			continue
		}
		ls, t := m.lead.subscription(w.id), m.terms(h, w.id)
		if got.delivery != 0 {
			st.setDeadlines(got.ranges, h.Now().Add(t.ack))
			m.noteLeases(h, ls, &t)
		}
		req := w.req.(*call.Deliver)
		if w.gone {
			if !m.askedAgain(p, req) {
				m.takeBack(h, st, ls.sessions[req.Member], got)
			}
			continue
		}
		resp := &call.Delivered{Generation: st.generation, Delivery: got.delivery, Ranges: got.ranges}
		if s := ls.sessions[req.Member]; s != nil {
			if len(got.ranges) > 0 {
				s.competing.old = false
			}
			s.competing.skips = append(s.competing.skips, got.skipped...)
			s.competing.told, s.competing.toldIn = len(s.competing.skips) > 0, req.PullSequence
			resp.Skipped = slices.Clone(s.competing.skips)
		}
		m.finish(h, w, resp, nil)
	}
	m.flushLeases(h)
}

// askedAgain says whether somebody else waits for the answer to a delivery.
func (m *Machine) askedAgain(p *proposal, req *call.Deliver) bool {
	return req.Token != 0 && slices.ContainsFunc(slices.Concat(p.waits, m.lead.leases), func(w *wait) bool {
		other := w.req.(*call.Deliver)
		return !w.gone && other.Token == req.Token && other.Member == req.Member
	})
}

// setDeadlines notes when the leases on these messages end.
func (s *subscription) setDeadlines(ranges []call.Range, at model.Mono) {
	for _, r := range ranges {
		part := &s.partitions[r.Partition]
		for i, _ := part.slotAt(r.From); i < len(part.slots) && part.slots[i].offset < r.To; i++ {
			part.slots[i].deadline = at
		}
	}
}

func (m *Machine) takeBack(h group.Host, st *subscription, s *session, got *leased) {
	c := &returnCommand{id: st.id, limit: maxFailed}
	for _, r := range got.ranges {
		for o := r.From; o < r.To; o++ {
			c.items = append(c.items, returned{r.Partition, st.generation, o, got.delivery})
		}
	}
	if len(c.items) > 0 && m.propose(h, c) && s != nil { // if not, its leases end by themselves
		s.competing.takenBack = got.delivery
	}
}

// finishReplay gives out again what the last pull of the same sequence got, if
// the delivery carries the whole of it.
func (m *Machine) finishReplay(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.Deliver) {
	resp := &call.Delivered{Generation: st.generation}
	mb := st.member(req.Member)
	if mb == nil || ls.leavingNow(req.Member) {
		m.finish(h, w, resp, nil)
		return
	}
	resp.Delivery, resp.Ranges = mb.delivery, ls.replay(st, mb, req.PullSequence)
	for _, want := range resp.Ranges {
		if !slices.ContainsFunc(req.Ranges, func(got call.Range) bool {
			return got.Partition == want.Partition && got.From <= want.From && want.To <= got.To
		}) {
			m.finish(h, w, nil, outOfTurn())
			return
		}
	}
	m.finish(h, w, resp, nil)
}
