package sim

import (
	"fmt"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/session"
)

// consumer reads a subscription through a session, processes, acks, crashes and
// comes back.
type consumer struct {
	driver
	session *session.Consumer
	ref     string
	number  int
	life    int // raised by each restart
	work    *WorkOptions
}

func (r *run) startConsumer(ref string, number, life int) {
	o := &r.w.opts.Load
	name := fmt.Sprintf("c%d.%s", number, ref)
	cl := r.newClient(fmt.Sprintf("%s.%d", name, life))
	cfg := session.ConsumerConfig{
		Subscription: ref, Seed: cl.rand.Uint64(),
		Member: model.MemberID(pick(cl.rand, fmt.Sprintf("c%d", number), "",
			fmt.Sprintf("c%d.%d", number, life))),
		MaxMessages: pick[uint32](cl.rand, 1, 5, 100), MaxBytes: pick[uint32](cl.rand, 500, 100_000),
		Wait: pick(cl.rand, 200*time.Millisecond, time.Second), MaxBuffered: pick(cl.rand, 1, 20, 200),
		AckInterval: pick(cl.rand, -1, 50*time.Millisecond, 500*time.Millisecond), AckMessages: pick(cl.rand, 1, 20),
		SessionTimeout: o.Session, TryTimeout: pick(cl.rand, time.Second, 3*time.Second),
		Shared: r.work(ref) != nil && r.work(ref).Shared,
	}
	if r.healed { // what is left is to be drained, not to be made interesting
		cfg.MaxMessages, cfg.MaxBytes, cfg.MaxBuffered, cfg.AckMessages = 1000, 1<<20, 2000, 500
		cfg.AckInterval = 20 * time.Millisecond
	}
	cfg.Static = cfg.Member != "" && number%2 == 0
	s := session.NewConsumer(cfg)
	c := &consumer{driver: driver{client: cl, machine: s}, session: s, ref: ref, number: number, life: life,
		work: r.work(ref)}
	c.after = c.take
	r.consumers = append(r.consumers, c)
	c.pump()
	c.maybeCrash()
}

// take processes what was delivered, after the time that processing takes.
func (c *consumer) take() {
	c.session.Cancels()
	c.session.Skipped()
	if c.session.Err() != nil && !c.session.Left() {
		c.crash()
		return
	}
	ds := c.session.Take(0)
	if len(ds) == 0 {
		return
	}
	c.later(c.rand.near(0, 100*time.Millisecond), func() {
		for i := range ds {
			c.finish(&ds[i])
		}
		c.pump()
	})
}

// finish is done with a message, or gives it back; what is left in the end is drained.
func (c *consumer) finish(d *session.Delivery) {
	switch {
	case !c.run.healed && c.work.poisons(d.Partition, d.Offset):
		c.session.Nack(c.now(), *d, 0)
	case c.work != nil && !c.run.healed && c.rand.IntN(30) == 0:
		c.session.Nack(c.now(), *d, pick(c.rand, 0, 300*time.Millisecond))
	default:
		c.session.Processed(c.now(), *d)
	}
}

// drain ends all consumers, some in good order and some without a word, and
// starts fresh ones that read as fast as they can.
func (r *run) drain() {
	for _, c := range r.consumers {
		if c.dead {
			continue
		}
		if c.rand.IntN(2) == 0 {
			c.dead = true
			continue
		}
		c.session.Leave(c.now())
		c.pump()
	}
	r.consumers = nil
	for _, ref := range r.refs {
		r.startConsumer(ref, 100, 0)
		r.startConsumer(ref, 101, 0)
	}
}

// maybeCrash ends the process at times, without a word to the cluster.
func (c *consumer) maybeCrash() {
	c.later(c.rand.about(500*time.Millisecond), func() {
		if c.run.healed {
			return
		}
		if c.rand.hit(c.run.w.opts.Load.Restart) {
			c.crash()
			return
		}
		c.maybeCrash()
	})
}

// crash forgets everything and starts another process a little later.
func (c *consumer) crash() {
	c.dead = true
	c.run.w.trace.say(c.run.w.loop.now, c.name, kindClient, "consumer crashes")
	c.run.w.loop.after(c.rand.about(time.Second), func() {
		if !c.run.healed || c.number >= 100 {
			c.run.startConsumer(c.ref, c.number, c.life+1)
		}
	})
}

// rawConsumer is a member by hand: it acks late, twice, partly, or never, pulls
// the same number again, leaves, and comes back under another name.
type rawConsumer struct {
	*client
	ref       string
	life      int
	member    model.MemberID
	numbered  bool // uses pull_sequence
	sequence  uint64
	pulling   bool
	delivered []deliveredRange // the newest last, at most 16
}

type deliveredRange struct {
	member     model.MemberID
	generation model.Generation
	partition  model.Partition
	from, to   model.Offset
}

func (r *run) startRaw(ref string, number int, every time.Duration) {
	c := &rawConsumer{client: r.newClient(fmt.Sprintf("raw%d.%s", number, ref)), ref: ref}
	c.rename(number)
	c.work(every)
}

func (c *rawConsumer) rename(number int) {
	c.life++
	c.member = model.MemberID(fmt.Sprintf("raw%d.%d", number, c.life))
	c.numbered, c.sequence = c.rand.IntN(2) == 0, 1
}

func (c *rawConsumer) work(every time.Duration) {
	c.later(c.rand.about(every), func() {
		if c.run.healed {
			c.ask(&call.LeaveSubscription{Subscription: c.ref, Member: c.member}, time.Second,
				func(call.ClientResult, *model.Error) { c.dead = true })
			return
		}
		if !c.run.resting() {
			c.act()
		}
		c.work(every)
	})
}

func (c *rawConsumer) act() {
	switch d := c.rand.IntN(100); {
	case d < 50:
		c.pull()
	case d < 90:
		c.ack()
	case d < 92:
		c.nack()
	case d < 97:
		c.ask(&call.ExtendLease{Subscription: c.ref, Member: c.member}, time.Second,
			func(call.ClientResult, *model.Error) {})
	case d < 98:
		c.ask(&call.LeaveSubscription{Subscription: c.ref, Member: c.member}, time.Second,
			func(call.ClientResult, *model.Error) {})
	case d < 99:
		c.rename(int(c.id))
	}
}

func (c *rawConsumer) pull() {
	if c.pulling {
		return
	}
	q := &call.Pull{Subscription: c.ref, Member: c.member, MaxMessages: pick[uint32](c.rand, 1, 3, 50),
		Wait: pick(c.rand, 0, 0, 200*time.Millisecond)}
	if c.numbered {
		q.PullSequence = c.sequence
	}
	again := c.rand.IntN(5) == 0 // asks the same number once more, although it was answered
	c.pulling = true
	c.ask(q, 2*time.Second, func(result call.ClientResult, err *model.Error) {
		c.pulling = false
		if err != nil {
			return
		}
		if q.PullSequence != 0 && q.Member == c.member && q.PullSequence == c.sequence && !again {
			c.sequence++
		}
		res := result.(*call.PullResult)
		for _, g := range res.Ranges {
			c.delivered = append(c.delivered, deliveredRange{q.Member, res.Generation, g.Partition, g.From, g.To})
		}
		if n := len(c.delivered) - 16; n > 0 {
			c.delivered = c.delivered[n:]
		}
	})
}

// nack gives a message of the latest delivery back.
func (c *rawConsumer) nack() {
	if len(c.delivered) == 0 {
		return
	}
	d := c.delivered[len(c.delivered)-1]
	at := d.from + model.Offset(c.rand.Uint64N(uint64(d.to-d.from)))
	c.ask(&call.Nack{Subscription: c.ref, Member: d.member, Generation: d.generation, Delay: time.Second,
		Offsets: []call.PartitionOffset{{Partition: d.partition, Offset: at}}}, 2*time.Second,
		func(call.ClientResult, *model.Error) {})
}

// ack acknowledges some delivery, mostly the latest, all or a part of it.
func (c *rawConsumer) ack() {
	if len(c.delivered) == 0 {
		return
	}
	i := len(c.delivered) - 1
	if c.rand.IntN(4) == 0 {
		i = c.rand.IntN(len(c.delivered))
	}
	d := c.delivered[i]
	to := d.to
	if d.to > d.from+1 && c.rand.IntN(3) == 0 {
		to = d.from + 1 + model.Offset(c.rand.Uint64N(uint64(d.to-d.from-1)))
	}
	q := &call.Ack{Subscription: c.ref, Member: d.member, Generation: d.generation,
		UpTo: []call.PartitionOffset{{Partition: d.partition, Offset: to}}}
	send := func() {
		c.ask(q, 2*time.Second, func(_ call.ClientResult, err *model.Error) {
			switch {
			case err == nil:
			case err.Reason == model.ReasonFenced, err.Reason == model.ReasonUnknownOutcome:
				c.run.probe("ack refused: " + string(err.Reason)) // of one partition: its error is the call's
			}
		})
	}
	if c.rand.IntN(3) == 0 {
		c.later(c.rand.near(0, 5*time.Second), send)
		return
	}
	send()
}
