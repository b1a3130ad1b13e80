package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// WorkOptions are a subscription on the first topic whose messages are acked,
// given back and lost one by one.
type WorkOptions struct {
	Shared, KeyOrdered bool
	Attempts           uint32 // then it is a dead letter; 0: none are
	MemberLimit, Limit uint32 // messages out; 0: the default
	Workers, Consumers int    // members by hand, and through sessions
	Seekers            int    // rewinding it
	Poison             uint64 // one message of so many is given back by everyone; 0: none
}

func drawWork(s *stream, o *Options) {
	for range pick(s, 0, 0, 1, 1, 1, 2) {
		w := WorkOptions{Shared: s.IntN(3) > 0, MemberLimit: pick[uint32](s, 0, 5, 20), Limit: pick[uint32](s, 0, 0, 12),
			Workers: pick(s, 1, 2, 3), Consumers: pick(s, 0, 1, 2),
			Seekers: pick(s, 0, 0, 1)}
		w.KeyOrdered = w.Shared && s.IntN(2) == 0
		if w.Attempts = pick[uint32](s, 0, 1, 2, 5); !w.Shared {
			w.Attempts = max(w.Attempts, 2) // in mode ordered it is the dead letters that are of interest
		}
		if w.Attempts > 0 {
			w.Poison = pick[uint64](s, 5, 20)
		}
		o.Work = append(o.Work, w)
	}
}

// command is the options as a line of a scenario.
func (w *WorkOptions) command() string {
	line := words{"work"}
	for _, is := range []struct {
		name string
		on   bool
	}{{"shared", w.Shared}, {"key_ordered", w.KeyOrdered}} {
		if is.on {
			line.named(is.name, "true")
		}
	}
	for _, n := range []struct {
		name  string
		value uint64
	}{{"attempts", uint64(w.Attempts)}, {"member_limit", uint64(w.MemberLimit)}, {"limit", uint64(w.Limit)},
		{"workers", uint64(w.Workers)}, {"consumers", uint64(w.Consumers)}, {"seekers", uint64(w.Seekers)},
		{"poison", w.Poison}} {
		if n.value != 0 {
			line.named(n.name, uitoa(n.value))
		}
	}
	return line.String()
}

// poisons says whether a message is given back by whoever gets it.
func (w *WorkOptions) poisons(p model.Partition, o model.Offset) bool {
	return w != nil && w.Poison > 0 && (uint64(o)+uint64(p))%w.Poison == w.Poison-1
}

func (r *run) workRef(i int) string { return fmt.Sprintf("%s/w%d", r.w.opts.Topics[0].Name, i+1) }

func graveyard(i int) string { return fmt.Sprintf("dead%d", i+1) }

// work is a subscription's options; nil: it is another kind.
func (r *run) work(ref string) *WorkOptions {
	for i := range r.w.opts.Work {
		if r.workRef(i) == ref {
			return &r.w.opts.Work[i]
		}
	}
	return nil
}

// workSetup makes the subscriptions, and a topic each for its dead letters.
func (r *run) workSetup() (qs []call.Client) {
	for i := range r.w.opts.Work {
		w, t := &r.w.opts.Work[i], &r.w.opts.Topics[0]
		s := model.SubscriptionSettings{SessionTimeout: r.w.opts.Load.Session, AckDeadline: r.w.opts.Load.Session,
			KeyOrdered: w.KeyOrdered, MaxInFlightMember: w.MemberLimit, MaxInFlight: w.Limit, MaxAttempts: w.Attempts,
			MinBackoff: 20 * time.Millisecond, MaxBackoff: time.Second}
		if w.Shared {
			s.Mode = model.ModeShared
		}
		if w.Attempts > 0 {
			s.DeadLetterTopic = graveyard(i)
			r.counts[s.DeadLetterTopic] = 2
			qs = append(qs, &call.Admin{Request: &call.CreateTopic{Name: s.DeadLetterTopic, Owner: "sim", Partitions: 2,
				Settings: model.TopicSettings{Replicas: t.Replicas}}})
		}
		if w.MemberLimit > 0 {
			r.w.inv.limits[r.workRef(i)] = uint64(w.MemberLimit)
		}
		r.refs = append(r.refs, r.workRef(i))
		qs = append(qs, &call.CreateSubscriptionCall{Topic: t.Name, Name: fmt.Sprintf("w%d", i+1), Settings: s})
	}
	return qs
}

func (r *run) startWork() {
	for i := range r.w.opts.Work {
		w, ref := &r.w.opts.Work[i], r.workRef(i)
		for n := range w.Consumers {
			r.startConsumer(ref, n+1, 0)
		}
		for range w.Seekers {
			r.startSeeker(ref, r.w.opts.Topics[0], 8*time.Second)
		}
		for n := range w.Workers {
			r.startWorker(ref, w, n+1)
		}
	}
}

// worker is a member by hand: it acks some messages early and some late, gives
// some back, stalls, and comes back having forgotten all, under its old name or
// another.
type worker struct {
	*client
	ref      string
	options  *WorkOptions
	number   int
	life     int
	member   model.MemberID
	numbered bool
	sequence uint64
	pulling  bool
	held     []heldMessage // the newest last, at most 64
}

type heldMessage struct {
	member     model.MemberID
	generation model.Generation
	delivery   uint64
	at         call.PartitionOffset
}

func (r *run) startWorker(ref string, w *WorkOptions, number int) {
	c := &worker{client: r.newClient(fmt.Sprintf("worker%d.%s", number, ref)), ref: ref, options: w, number: number}
	c.begin(true)
	c.work()
}

func (c *worker) begin(renamed bool) {
	if renamed {
		c.life++
		c.member = model.MemberID(fmt.Sprintf("worker%d.%d", c.number, c.life))
	}
	c.numbered, c.sequence, c.held = c.rand.IntN(2) == 0, 1, nil
}

func (c *worker) work() {
	wait := c.rand.about(300 * time.Millisecond)
	if c.rand.IntN(40) == 0 {
		wait += c.rand.between(0, 3*c.run.w.opts.Load.Session) // it stalls
	}
	c.later(wait, func() {
		if c.run.healed {
			c.ask(&call.LeaveSubscription{Subscription: c.ref, Member: c.member}, time.Second,
				func(call.ClientResult, *model.Error) { c.dead = true })
			return
		}
		c.act()
		c.work()
	})
}

func (c *worker) act() {
	silent := func(call.ClientResult, *model.Error) {}
	switch d := c.rand.IntN(100); {
	case d < 45:
		c.pull()
	case d < 80:
		c.ack()
	case d < 88:
		c.nack()
	case d < 92:
		if m, ok := c.some(); ok {
			offsets, deliveries := c.spell(m)
			c.ask(&call.ExtendLease{Subscription: c.ref, Member: m.member, Generation: m.generation, Offsets: offsets,
				Deliveries: deliveries}, time.Second, silent)
		}
	case d < 96:
		c.ask(&call.ExtendLease{Subscription: c.ref, Member: c.member}, time.Second, silent)
	case d < 97:
		c.ask(&call.LeaveSubscription{Subscription: c.ref, Member: c.member}, time.Second, silent)
	default:
		c.run.probe("worker forgets")
		c.begin(d < 99)
	}
}

func (c *worker) pull() {
	if c.pulling {
		return
	}
	q := &call.Pull{Subscription: c.ref, Member: c.member, MaxMessages: pick[uint32](c.rand, 1, 3, 20),
		Wait: pick(c.rand, 0, 0, 200*time.Millisecond)}
	if c.numbered {
		q.PullSequence = c.sequence
	}
	c.pulling = true
	c.ask(q, 2*time.Second, func(result call.ClientResult, err *model.Error) {
		c.pulling = false
		if err != nil {
			if err.Field == "pull_sequence" && q.PullSequence == c.sequence {
				c.sequence = 1
			}
			return
		}
		if q.PullSequence != 0 && q.Member == c.member && q.PullSequence == c.sequence {
			c.sequence++
		}
		res := result.(*call.PullResult)
		for _, g := range res.Ranges {
			if g.Attempt > 1 {
				c.run.probe("message comes again")
			}
			for o := g.From; o < g.To; o++ {
				c.held = append(c.held, heldMessage{q.Member, res.Generation, res.Delivery,
					call.PartitionOffset{Partition: g.Partition, Offset: o}})
			}
		}
		if n := len(c.held) - 64; n > 0 {
			c.held = c.held[n:]
		}
	})
}

// some picks a message at hand, mostly a new one.
func (c *worker) some() (heldMessage, bool) {
	if len(c.held) == 0 {
		return heldMessage{}, false
	}
	i := c.rand.IntN(len(c.held))
	if c.rand.IntN(4) > 0 {
		i = max(i, c.rand.IntN(len(c.held)))
	}
	return c.held[i], true
}

func (c *worker) spell(m heldMessage) ([]call.PartitionOffset, []uint64) {
	if !c.options.Shared {
		return []call.PartitionOffset{m.at}, nil
	}
	return []call.PartitionOffset{m.at}, []uint64{m.delivery}
}

// ack acknowledges a message, or all at hand, one by one; at times late.
func (c *worker) ack() {
	m, ok := c.some()
	if !ok {
		return
	}
	all := c.rand.IntN(2) == 0
	q := &call.Ack{Subscription: c.ref, Member: m.member, Generation: m.generation}
	c.held = slices.DeleteFunc(c.held, func(h heldMessage) bool {
		same := h.member == m.member && h.generation == m.generation && (all || h.at == m.at)
		if same && !c.options.poisons(h.at.Partition, h.at.Offset) && !slices.Contains(q.Offsets, h.at) {
			q.Offsets = append(q.Offsets, h.at)
			return c.rand.IntN(8) > 0 // at times it comes twice
		}
		return false
	})
	if len(q.Offsets) == 0 {
		return
	}
	send := func() {
		c.ask(q, 2*time.Second, func(result call.ClientResult, err *model.Error) {
			if err == nil && result.(*call.AckCallResult).Results[0].Err != nil {
				c.run.probe("ack refused: " + string(result.(*call.AckCallResult).Results[0].Err.Reason))
			}
		})
	}
	if c.rand.IntN(4) == 0 {
		c.later(c.rand.near(0, 5*time.Second), send)
		return
	}
	send()
}

// nack gives a message back: a poisonous one if there is one at hand.
func (c *worker) nack() {
	m, ok := c.some()
	if !ok {
		return
	}
	for _, h := range c.held {
		if c.options.poisons(h.at.Partition, h.at.Offset) {
			m = h
		}
	}
	c.held = slices.DeleteFunc(c.held, func(h heldMessage) bool { return h == m })
	offsets, deliveries := c.spell(m)
	c.ask(&call.Nack{Subscription: c.ref, Member: m.member, Generation: m.generation, Offsets: offsets,
		Deliveries: deliveries, Delay: pick(c.rand, 0, 500*time.Millisecond)}, 2*time.Second,
		func(_ call.ClientResult, err *model.Error) {
			if err != nil && err.Reason == model.ReasonFenced {
				c.run.probe("nack refused: FENCED")
			}
		})
}
