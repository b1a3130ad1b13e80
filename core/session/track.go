package session

import (
	"slices"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// receive takes a pull's messages in. It changes nothing when one of them
// cannot be read: the same pull, asked again, brings the same ranges.
func (c *Consumer) receive(now model.Mono, r *call.PullResult) *model.Error {
	ranges := make([][]Delivery, len(r.Ranges))
	for i := range r.Ranges {
		var err *model.Error
		if ranges[i], err = c.unpack(&r.Ranges[i], r.Generation); err != nil {
			return err
		}
	}
	for i := range ranges {
		c.arrive(now, r, &r.Ranges[i], ranges[i])
	}
	// What was skipped is told until the next pull confirms it: an answer is
	// received once per sequence, so it is noted once.
	c.skipped = append(c.skipped, r.Skipped...)
	return nil
}

func (c *Consumer) unpack(r *call.PulledRange, generation model.Generation) ([]Delivery, *model.Error) {
	var out []Delivery
	for _, v := range r.Batches {
		messages, err := v.Messages(c.cfg.Unpack)
		if err != nil {
			return nil, model.Errorf(model.DataLoss, "partition %d, batch at offset %d: %v", r.Partition, v.Base(), err)
		}
		out = appendDeliveries(out, r, v, messages, generation)
	}
	return out, nil
}

func appendDeliveries(out []Delivery, r *call.PulledRange, v batch.View, messages []batch.Message,
	generation model.Generation) []Delivery {
	for i, m := range messages {
		at := v.Base() + model.Offset(i)
		if at < r.From || (r.To > 0 && at >= r.To) {
			continue
		}
		attempt := uint32(1)
		if at == r.From {
			attempt = max(r.Attempt, 1)
		}
		out = append(out, Delivery{
			Partition: r.Partition, Offset: at, Message: m, Attempt: attempt,
			AppendTime: v.AppendTime(), Generation: generation,
		})
	}
	return out
}

// arrive files one range under its partition.
//
//   - It goes on where the run is, or beyond: the run goes on, whatever the
//     generation. What lies between was acked ahead or skipped; if it was a seek,
//     the ack of what is still held here will say so.
//   - It steps back within one generation: no seek and no change of owner came
//     between, so the coordinator has forgotten what it had given out, at a
//     failover, or its patience ended. What was received before is still here,
//     buffered, taken or processed, and is not taken in twice.
//   - It steps back to another generation: a new run begins at its start; what is
//     still buffered of the old one goes, for it comes again if it is to come.
//
// The first pull of a session begins at the cursor. Any other may begin beyond
// it without this consumer having seen what lies before: when a pull that was
// given up reaches a new coordinator late, the next one confirms its answer.
// While such a pull may be about, a place that cannot be explained is not
// accepted, and the consumer asks from the cursors on.
func (c *Consumer) arrive(now model.Mono, p *call.PullResult, r *call.PulledRange, ds []Delivery) {
	if c.cfg.Shared {
		c.arriveShared(p, ds)
		return
	}
	t, generation := c.track(r.Partition), p.Generation
	if !c.hears(t, r.From) {
		return
	}
	surprise := r.From > t.received && !skippedTo(p.Skipped, r)
	if t.run == 0 || (r.From < t.received && generation != t.generation) {
		surprise = true
	}
	switch {
	case generation < t.fence:
		return // it was under way when an ack of its generation was refused
	case surprise && c.sequence > 1 && now < c.strays:
		c.restart = true
		return
	case t.run != 0 && r.From >= t.received:
	case t.run != 0 && generation == t.generation:
		at := slices.IndexFunc(ds, func(d Delivery) bool { return d.Offset >= t.received })
		if at < 0 {
			return
		}
		ds = ds[at:]
	default:
		c.dropRun(t)
		c.runs++
		t.run, t.received = c.runs, r.From
	}
	t.generation = generation
	t.received = max(t.received, r.To)
	for i := range ds {
		d := &ds[i]
		d.run = t.run
		t.received = max(t.received, d.Offset+1)
		t.handed = append(t.handed, handed{offset: d.Offset, generation: generation})
	}
	c.buffer = append(c.buffer, ds...)
	c.held += len(ds)
}

// skippedTo says whether the broker told that all before the range is lost.
func skippedTo(skipped []call.Range, r *call.PulledRange) bool {
	return slices.ContainsFunc(skipped, func(s call.Range) bool { return s.Partition == r.Partition && s.To == r.From })
}

func (c *Consumer) track(n model.Partition) *track {
	t := c.tracks[n]
	if t == nil {
		t = &track{partition: n}
		c.tracks[n] = t
		at, _ := slices.BinarySearchFunc(c.order, n, func(t *track, n model.Partition) int {
			return int(t.partition) - int(n)
		})
		c.order = slices.Insert(c.order, at, t)
	}
	return t
}

// dropRun ends a partition's run: what is buffered goes, what is taken counts
// as held until processed, but acks nothing any more.
func (c *Consumer) dropRun(t *track) {
	if t.run == 0 {
		return
	}
	c.dropBuffered(t, func(*Delivery) bool { return true })
	t.run, t.received, t.handed = 0, 0, nil
}

func (c *Consumer) dropBuffered(t *track, which func(*Delivery) bool) {
	before := len(c.buffer)
	c.buffer = slices.DeleteFunc(c.buffer, func(d Delivery) bool { return d.Partition == t.partition && which(&d) })
	c.held -= before - len(c.buffer)
}

// fenced drops what pulls of this generation and older ones delivered of a
// partition: a seek or another owner came after them. What a newer pull
// delivered stays.
func (c *Consumer) fenced(now model.Mono, t *track, generation model.Generation) {
	if t.ackable && t.generated <= generation {
		t.ackable = false
	}
	if t.generation <= generation {
		c.dropRun(t)
		return
	}
	c.dropBuffered(t, func(d *Delivery) bool { return d.Generation <= generation })
	t.handed = slices.DeleteFunc(t.handed, func(h handed) bool { return h.generation <= generation })
	c.advance(now, t)
}

// acking is one partition's share of the ack under way.
type acking struct {
	track      *track
	upTo       model.Offset
	generation model.Generation
}

// sendAck acks what is ackable of one generation, the oldest: an ack carries
// the generation of the pull that delivered, and has room for one. The rest
// follows when this one is answered.
func (c *Consumer) sendAck(now model.Mono) Send {
	if c.cfg.Shared {
		c.ack.id = c.nextID()
		c.lastBeat, c.unacked, c.ackDue = now, 0, model.Never
		return c.send(c.ack.id, 0, c.sendSharedAck())
	}
	var generation model.Generation
	for _, t := range c.order {
		if t.ackable && (generation == 0 || t.generated < generation) {
			generation = t.generated
		}
	}
	r := &call.Ack{Subscription: c.cfg.Subscription, Member: c.member, Generation: generation}
	c.acking, c.ackMore = c.acking[:0], false
	for _, t := range c.order {
		switch {
		case !t.ackable:
		case t.generated != generation:
			c.ackMore = true
		default:
			r.UpTo = append(r.UpTo, call.PartitionOffset{Partition: t.partition, Offset: t.upTo})
			c.acking = append(c.acking, acking{t, t.upTo, generation})
		}
	}
	c.ack.id = c.nextID()
	c.lastBeat = now
	c.unacked, c.ackDue = 0, model.Never
	return c.send(c.ack.id, 0, r)
}

// acked handles an ack's answer, partition by partition.
func (c *Consumer) acked(now model.Mono, result call.ClientResult, err *model.Error) {
	r, ok := result.(*call.AckCallResult)
	if err == nil && !ok {
		err = answered(nil)
	}
	if c.cfg.Shared {
		c.ackedShared(now, r, err)
		return
	}
	again, why := false, err
	for i := range c.acking {
		a := &c.acking[i]
		bad := err
		if bad == nil {
			bad = partitionResult(r, a.track.partition)
		}
		if c.ackedOne(now, a, bad) {
			again, why = true, bad
		}
	}
	if again {
		c.ack.failed(now, &c.backoff, why)
	} else {
		c.ack.succeeded()
	}
	if again || c.ackMore {
		c.ackDue = min(c.ackDue, now)
	}
	if !slices.ContainsFunc(c.order, func(t *track) bool { return t.ackable }) {
		c.ackDue = model.Never
	}
}

func partitionResult(r *call.AckCallResult, n model.Partition) *model.Error {
	at := slices.IndexFunc(r.Results, func(x call.AckResult) bool { return x.Partition == n })
	if at < 0 {
		return answered(nil)
	}
	return r.Results[at].Err
}

// ackedOne notes one partition's result and says whether to ack it again.
func (c *Consumer) ackedOne(now model.Mono, a *acking, err *model.Error) (again bool) {
	t := a.track
	switch {
	case err == nil || (c.leaving && c.ack.failures >= 3):
	case judge(err) != final:
		return true
	default:
		if err.Reason == model.ReasonFenced {
			t.fence = max(t.fence, a.generation+1)
		}
		c.fenced(now, t, a.generation)
	}
	if t.upTo == a.upTo && t.generated == a.generation {
		t.ackable = false
	}
	return false
}
