package subscription

import (
	"cmp"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// maxFailed bounds the messages of a partition whose attempts are counted.
const maxFailed = 10_000

// noEnd is the end of a range that may go on as far as there is something.
const noEnd = ^model.Offset(0)

// terms are a subscription's settings with the defaults filled in.
type terms struct {
	session, ack           time.Duration
	minBackoff, maxBackoff time.Duration
	member, total          uint64 // messages out at most; total 0: no limit
	attempts               uint32 // 0: without end
}

func (m *Machine) terms(h group.Host, id model.SubscriptionID) terms {
	var s model.SubscriptionSettings
	if def, ok := h.Catalog().SubscriptionByID(id); ok {
		s = def.Settings
	}
	t := terms{
		session:    cmp.Or(s.SessionTimeout, model.DefaultSessionTimeout),
		ack:        cmp.Or(s.AckDeadline, model.DefaultAckDeadline),
		minBackoff: cmp.Or(s.MinBackoff, model.DefaultMinBackoff),
		member:     uint64(cmp.Or(s.MaxInFlightMember, model.DefaultInFlight)),
		total:      uint64(s.MaxInFlight), attempts: s.MaxAttempts,
	}
	t.maxBackoff = max(t.minBackoff, cmp.Or(s.MaxBackoff, model.DefaultMaxBackoff))
	t.session = min(max(t.session, minSessionTimeout), maxSessionTimeout)
	t.ack = min(max(t.ack, minAckDeadline), maxAckDeadline)
	return t
}

// backoff is how long a message that came back this often waits.
func (t *terms) backoff(attempts uint32) time.Duration {
	d := t.minBackoff
	for ; attempts > 1 && d < t.maxBackoff; attempts-- {
		d *= 2
	}
	return min(d, t.maxBackoff)
}

// lease is on the messages up to its end, from the end of the one before on.
type lease struct {
	to       model.Offset
	deadline model.Mono
}

// hold takes a lease on what goes out up to an end. What is out already keeps
// its deadline: to be given again does not renew it. Leases that end almost at
// the same time are one.
func (mem *partitionMemory) hold(to model.Offset, now model.Mono, ack time.Duration) {
	if to <= mem.leased {
		return
	}
	mem.leased = to
	deadline := now.Add(ack)
	if n := len(mem.leases); n > 0 && mem.leases[n-1].deadline <= deadline &&
		deadline.Sub(mem.leases[n-1].deadline) < ack/64 {
		mem.leases[n-1].to = to
		return
	}
	mem.leases = append(mem.leases, lease{to, deadline})
}

// void takes back what is out from an offset on.
func (ls *leadSubscription) void(st *subscription, p model.Partition, offset model.Offset) {
	mem := ls.at(st, p)
	mem.leased, mem.position = min(mem.leased, offset), min(mem.position, offset)
	for n := len(mem.leases); n > 0 && mem.leases[n-1].to > offset; n-- {
		if n > 1 && mem.leases[n-2].to >= offset {
			mem.leases = mem.leases[:n-1]
			continue
		}
		mem.leases[n-1].to = offset
	}
	s := ls.sessions[mem.owner]
	if s == nil {
		return
	}
	s.run.ranges = slices.DeleteFunc(s.run.ranges, func(r recordedRange) bool {
		return r.Partition == p && r.From >= offset
	})
	for i := range s.run.ranges {
		if r := &s.run.ranges[i]; r.Partition == p {
			r.To = min(r.To, offset)
		}
	}
}

// lapses lists the first message of each partition that came due.
func (ls *leadSubscription) lapses(st *subscription, now model.Mono) (due []lapse) {
	for i := range ls.partitions[:min(len(ls.partitions), len(st.partitions))] {
		p, part := model.Partition(i), &st.partitions[i]
		mem := ls.at(st, p)
		mem.leases = slices.DeleteFunc(mem.leases, func(l lease) bool { return l.to <= part.cursor })
		from := part.cursor
		for k := 0; k < len(mem.leases) && !mem.lapsing; k++ {
			l := mem.leases[k]
			first := part.acked.free(from)
			if from = l.to; l.deadline <= now && first < l.to {
				mem.lapsing = true
				due = append(due, part.lapse(p, first))
			}
		}
	}
	return due
}

// lapse proposes that what came due comes again.
func (m *Machine) lapse(h group.Host, st *subscription, ls *leadSubscription) {
	if st.shared() {
		m.lapseShared(h, st)
		return
	}
	due := ls.lapses(st, h.Now())
	if len(due) == 0 || m.propose(h, &lapseCommand{id: st.id, lapses: due}) {
		return
	}
	for _, l := range due {
		ls.at(st, l.partition).lapsing = false // it comes due again at the next Tick
	}
}

// lapseApplied: what came back is void from the lowest of a partition on. Those
// nacked wait for a while.
func (m *Machine) lapseApplied(h group.Host, p *proposal, c *lapseCommand, out outcome) {
	st, ls := m.state.subscriptions[c.id], m.lead.subscription(c.id)
	if st == nil {
		for _, w := range p.waits {
			m.finish(h, w, nil, gone(c.id))
		}
		return
	}
	t := m.terms(h, c.id)
	for i, l := range c.lapses {
		part, nacked, err := &st.partitions[l.partition], len(p.waits) > 0, out.lapses[i]
		if err != nil && err.Reason != model.ReasonThrottled || part.fence != l.fence {
			continue
		}
		mem := ls.at(st, l.partition)
		if !nacked {
			mem.lapsing = false // not counted, maybe: it comes again all the same
		}
		if out.ended[i] || part.isAcked(l.offset) || nacked && err != nil {
			continue
		}
		if nacked && mem.delivered <= l.offset { // an earlier leader gave it
			mem.backFrom = min(mem.backFrom, l.offset)
		}
		ls.void(st, l.partition, l.offset)
		if nacked {
			delay := cmp.Or(p.waits[0].req.(*call.NackCursors).Delay, t.backoff(part.attempts(l.offset)))
			mem.pause(l.offset, h.Now().Add(delay), h.Now())
		}
	}
	for _, w := range p.waits {
		for i, place := range w.places {
			r := &w.results[place]
			r.Cursor, r.Err = st.partitions[r.Partition].cursor, cmp.Or(r.Err, out.lapses[i])
		}
		m.finish(h, w, &call.Acked{Results: w.results}, nil)
	}
	m.advance(h, c.id)
}

// pause holds back what lies at or above an offset. Of two pauses the lower
// place and the later end count.
func (mem *partitionMemory) pause(from model.Offset, until, now model.Mono) {
	if mem.pausedUntil > now {
		from, until = min(from, mem.pausedFrom), max(until, mem.pausedUntil)
	}
	mem.pausedFrom, mem.pausedUntil = from, until
}

// room is how many messages more a member may be given.
func (ls *leadSubscription) room(st *subscription, m model.MemberID, t *terms) uint64 {
	out, all := uint64(0), uint64(0)
	for _, p := range ls.ownedBy(st, m) {
		out += ls.at(st, p).out(&st.partitions[p])
	}
	room := t.member - min(out, t.member)
	if t.total == 0 {
		return room
	}
	for p := range st.partitions {
		all += ls.at(st, model.Partition(p)).out(&st.partitions[p])
	}
	return min(room, t.total-min(all, t.total))
}

// out counts the messages of a partition that are given and not acked.
func (mem *partitionMemory) out(part *partition) uint64 {
	if mem.leased <= part.cursor {
		return 0
	}
	return uint64(mem.leased-part.cursor) - part.acked.within(part.cursor, mem.leased)
}

// bound is where a range that begins at an offset has to end: at what is paused,
// beyond what fits the limits, and around a message that is near its last
// attempt, which goes out alone.
func (mem *partitionMemory) bound(
	part *partition, from model.Offset, room uint64, now model.Mono, t *terms,
) model.Offset {
	to := noEnd
	if start := max(from, mem.leased); uint64(noEnd-start) > room {
		to = start + model.Offset(room)
	}
	if now < mem.pausedUntil {
		to = min(to, mem.pausedFrom)
	}
	if o, ok := part.condemned(t); ok {
		to = min(to, max(o, from)) // nothing goes out beyond it until it is moved
	}
	if t.attempts == 0 {
		return to
	}
	for _, f := range part.failed[part.failedAt(from):] {
		if f.attempts+2 < t.attempts {
			continue
		}
		if f.offset == from {
			return min(to, from+1)
		}
		return min(to, f.offset)
	}
	return to
}

// tries cuts a range where a message came back before, so that each part's
// attempt is that of its first message.
func (p *partition) tries(out []call.Range, r call.Range) []call.Range {
	for _, f := range p.failed[p.failedAt(r.From):] {
		if f.offset >= r.To {
			break
		}
		if f.offset > r.From {
			out = append(out, call.Range{Partition: r.Partition, From: r.From, To: f.offset, Attempt: 1})
			r.From = f.offset
		}
		out = append(out, call.Range{Partition: r.Partition, From: r.From, To: r.From + 1, Attempt: f.attempts + 1})
		r.From++
	}
	if r.From < r.To {
		r.Attempt = 1
		out = append(out, r)
	}
	return out
}
