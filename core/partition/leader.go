package partition

import (
	"bytes"
	"math"
	"slices"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// leader is what only a leader has: the state as it will be once everything
// proposed is applied, as an overlay over the applied one, and who waits for what.
//
// Invariant, unless broken: applying queue to the applied state gives next,
// clock, the active segment and the producers as seen through ahead.
type leader struct {
	next     model.Offset
	began    model.Offset // next when this leader began
	clock    logClock
	base     model.Wall // the wall clock when last trusted; before that, the log's time or the topic's creation
	baseMono model.Mono // when that was

	activeBytes uint64     // of the segment that will be active
	activeFirst model.Wall // its first batch's append time, if it has one

	ahead   map[model.ProducerID]*ahead // producers with something under way
	fresh   int                         // of those, the ones the applied table lacks
	expired model.Wall                  // producers not active since are forgotten by a proposed expiry

	queue   []*proposal // proposed and not applied, in order; live ones are queue[head:]
	head    int
	waiting int // refs in queue
	// broken says that an entry was not accepted as foreseen: nothing is
	// proposed until the queue is empty and the view is built anew.
	broken bool

	settings settings // applied, or proposed last
	trimming bool     // a trim is under way
	expiring bool     // an expiry is
	tendAt   model.Mono

	early      []early // wait for their predecessor, in order of arrival
	earlyBytes int

	spareAhead    []*ahead
	spareProposal []*proposal
}

// ahead is a producer's standing once everything proposed is applied.
type ahead struct {
	standing
	last    model.Wall
	fresh   bool        // the applied table lacks it
	batches []*proposal // under way, oldest first
	count   int         // proposals under way, fences too
}

// proposal is an entry under way.
type proposal struct {
	data     []byte
	producer model.ProducerID // of a batch or fence; 0: none
	batch    bool
	fence    bool
	refs     []group.Ref // the first one's is the publish itself, the others' are retries
	kind     commandKind // of commands
}

// nobody stands where a Ref was cancelled, or never was.
const nobody = ^group.Ref(0)

// view is the batch; only for batches.
func (p *proposal) view() batch.View { return batch.View(p.data) }

func newLeader() *leader {
	return &leader{ahead: map[model.ProducerID]*ahead{}, tendAt: model.Never}
}

// rebuild takes the applied state as what will be; the queue must be empty.
func (l *leader) rebuild(s *state) {
	l.next = s.next
	l.clock = s.clock
	l.activeBytes, l.activeFirst = s.active().Bytes, s.active().FirstTime
	clear(l.ahead)
	l.fresh = 0
	l.trimming, l.expiring, l.broken = false, false, false
	l.settings = s.settings
	l.expired = math.MinInt64
}

func (l *leader) live() []*proposal { return l.queue[l.head:] }

// stamp is the time the next entry gets: never below one given before, the wall
// clock's while it can be trusted, else the last trusted one and as much more as
// this node's monotonic clock ran since.
func (l *leader) stamp(h group.Host) (at model.Wall, untrusted bool) {
	if h.WallTrusted() {
		l.base, l.baseMono = h.Wall(), h.Now()
		return max(l.clock.time, l.base), false
	}
	return max(l.clock.time, l.base+model.Wall(max(0, h.Now()-l.baseMono))), true
}

// standing is what will be known of a producer.
func (l *leader) standing(s *state, id model.ProducerID) standing {
	if a := l.ahead[id]; a != nil && a.last > l.expired {
		return a.standing
	}
	if p := l.applied(s, id); p != nil {
		return standing{true, p.epoch, p.next}
	}
	return standing{}
}

// applied is the producer in the applied table, unless a proposed expiry will take it.
func (l *leader) applied(s *state, id model.ProducerID) *producer {
	if p := s.producers.get(id); p != nil && p.last > l.expired {
		return p
	}
	return nil
}

// tableFull says whether one more producer would be too many.
func (l *leader) tableFull(s *state, limit int) bool { return s.producers.len()+l.fresh >= limit }

// note moves a producer's standing on by a proposal.
func (l *leader) note(s *state, p *proposal, to standing) {
	a := l.ahead[p.producer]
	if a == nil {
		if n := len(l.spareAhead); n > 0 {
			a, l.spareAhead = l.spareAhead[n-1], l.spareAhead[:n-1]
		} else {
			a = &ahead{}
		}
		a.fresh = s.producers.get(p.producer) == nil
		if a.fresh {
			l.fresh++
		}
		l.ahead[p.producer] = a
	}
	a.standing, a.last = to, l.clock.aged
	a.count++
	if p.batch {
		a.batches = append(a.batches, p)
	}
}

// unnote takes an applied proposal off its producer.
func (l *leader) unnote(s *state, p *proposal) {
	a := l.ahead[p.producer]
	if a == nil {
		return
	}
	if p.batch && len(a.batches) > 0 {
		a.batches = slices.Delete(a.batches, 0, 1)
	}
	a.count--
	if a.fresh && (a.count == 0 || s.producers.get(p.producer) != nil) {
		a.fresh = false
		l.fresh--
	}
	if a.count == 0 {
		delete(l.ahead, p.producer)
		l.spareAhead = append(l.spareAhead, a)
	}
}

// find returns the batch under way that the given one repeats.
func (a *ahead) find(v batch.View) *proposal {
	for i := len(a.batches) - 1; i >= 0; i-- {
		w := a.batches[i].view()
		if w.Epoch() == v.Epoch() && w.Sequence() == v.Sequence() && w.Count() == v.Count() {
			return a.batches[i]
		}
	}
	return nil
}

// push puts what raft took into the queue.
func (l *leader) push(p proposal, ref group.Ref) *proposal {
	var q *proposal
	if n := len(l.spareProposal); n > 0 {
		q, l.spareProposal = l.spareProposal[n-1], l.spareProposal[:n-1]
	} else {
		q = &proposal{}
	}
	refs := q.refs[:0]
	*q = p
	q.refs = refs
	if ref != nobody {
		l.attach(q, ref)
	}
	if l.head > 64 && l.head > len(l.queue)/2 {
		n := copy(l.queue, l.live())
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	l.queue = append(l.queue, q)
	return q
}

func (l *leader) attach(p *proposal, ref group.Ref) {
	p.refs = append(p.refs, ref)
	l.waiting++
}

func (l *leader) cancel(ref group.Ref) {
	if i := slices.IndexFunc(l.early, func(e early) bool { return e.ref == ref }); i >= 0 {
		l.release(i)
		return
	}
	for _, p := range l.live() {
		if i := slices.Index(p.refs, ref); i >= 0 {
			p.refs[i] = nobody // the places of the others stay theirs
			l.waiting--
			return
		}
	}
}

// propose hands a command over; false: dropped, nothing changed.
func (m *Machine) propose(h group.Host, ref group.Ref, c command) *proposal {
	c.at, c.untrusted = m.lead.stamp(h)
	data := wire.Encode(&c)
	if m.lead.broken || !h.Propose(data) {
		return nil
	}
	m.lead.clock.move(c.at, c.untrusted)
	return m.lead.push(proposal{data: data, producer: c.producer, fence: c.kind == cmdFence, kind: c.kind}, ref)
}

// settle answers who waits for an applied entry and takes it off the queue. An
// entry that was not accepted, or is not the one expected, breaks the view.
func (m *Machine) settle(h group.Host, data []byte, accepted bool) {
	l := m.lead
	if l == nil {
		return
	}
	if len(l.live()) == 0 || !bytes.Equal(l.live()[0].data, data) {
		l.broken = len(l.live()) > 0
		if !l.broken {
			l.rebuild(&m.st)
		}
		return
	}
	p := l.live()[0]
	l.queue[l.head] = nil
	l.head++
	if p.producer != 0 {
		l.unnote(&m.st, p)
	}
	switch p.kind {
	case cmdTrim:
		l.trimming = false
	case cmdExpire:
		l.expiring = false
	}
	l.broken = l.broken || !accepted
	m.answer(h, p, accepted)
	p.data = nil
	l.spareProposal = append(l.spareProposal, p)
	if l.broken && len(l.live()) == 0 {
		l.rebuild(&m.st)
	}
	if !p.batch && !p.fence {
		l.tendAt = min(l.tendAt, m.due(h))
		m.wake(h, l.tendAt)
	}
}

// answer tells everyone who waits for a proposal how it went.
func (m *Machine) answer(h group.Host, p *proposal, accepted bool) {
	for i, ref := range p.refs {
		if ref == nobody {
			continue
		}
		m.lead.waiting--
		switch {
		case !accepted:
			h.Reply(ref, nil, unknownOutcome("the batch came out of order and got no offset"))
		case p.fence:
			h.Reply(ref, &call.Empty{}, nil)
		default:
			v := p.view()
			h.Reply(ref, &call.Appended{Base: v.Base(), AppendTime: v.AppendTime(), Duplicate: i > 0}, nil)
		}
	}
}
