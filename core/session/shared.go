package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// maxNamed bounds the messages that one request names one by one.
const maxNamed = 5000

// giveUpAfter is how often a nack or an extension is tried: what it is for comes
// about by itself when leases end.
const giveUpAfter = 5

// place is where a message lies.
type place struct {
	partition model.Partition
	offset    model.Offset
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
}

// claim is what a consumer of a shared subscription knows of a message it holds.
type claim struct {
	delivery   uint64
	generation model.Generation
}

// claims are the messages of a shared subscription: held, and processed but not
// yet acked.
type claims struct {
	held map[place]claim
	acks []named
	sent int // of acks, in the ack under way
}

// named is a message that a request speaks of, by itself.
type named struct {
	place
	claim
	wait time.Duration // a nack's delay, an extension's length
}

// arriveShared takes in what a pull of a shared subscription gave. A message
// that is given anew, its lease having ended, replaces what is still buffered of it.
func (c *Consumer) arriveShared(p *call.PullResult, ds []Delivery) {
	for i := range ds {
		d := &ds[i]
		d.Lease = p.Delivery
		at := place{d.Partition, d.Offset}
		if c.claims.held == nil {
			c.claims.held = map[place]claim{}
		}
		if _, there := c.claims.held[at]; there {
			before := len(c.buffer)
			c.buffer = slices.DeleteFunc(c.buffer, func(b Delivery) bool { return place{b.Partition, b.Offset} == at })
			c.held -= before - len(c.buffer)
		}
		c.claims.held[at] = claim{d.Lease, d.Generation}
		c.buffer = append(c.buffer, *d)
		c.held++
		c.newest = max(c.newest, d.Generation)
	}
}

// release forgets that a message is held; false: another delivery of it is.
func (c *Consumer) release(d *Delivery) bool {
	at := place{d.Partition, d.Offset}
	if c.claims.held[at].delivery != d.Lease {
		return false
	}
	delete(c.claims.held, at)
	return true
}

// processedShared makes a message's ack due. It counts even if the lease has
// ended meanwhile.
func (c *Consumer) processedShared(now model.Mono, d *Delivery) {
	c.held--
	c.release(d)
	c.claims.acks = append(c.claims.acks, named{place: place{d.Partition, d.Offset}, claim: claim{d.Lease, d.Generation}})
	c.unacked++
	c.ackDue = min(c.ackDue, now.Add(c.cfg.AckInterval))
	if c.unacked >= c.cfg.AckMessages {
		c.ackDue = now
	}
}

// dropShared forgets what is buffered: of one partition and up to a generation,
// or all (0).
func (c *Consumer) dropShared(which func(*Delivery) bool) {
	c.buffer = slices.DeleteFunc(c.buffer, func(d Delivery) bool {
		if !which(&d) {
			return false
		}
		c.release(&d)
		c.held--
		return true
	})
}

// claimed lists what is held, to be extended.
func (c *Consumer) claimed() (offsets []call.PartitionOffset, deliveries []uint64) {
	for _, at := range slices.SortedFunc(maps.Keys(c.claims.held), comparePlaces) {
		if len(offsets) == maxNamed || c.plain {
			break
		}
		offsets = append(offsets, call.PartitionOffset{Partition: at.partition, Offset: at.offset})
		deliveries = append(deliveries, c.claims.held[at].delivery)
	}
	return offsets, deliveries
}

// sendSharedAck acks what was processed of the oldest generation.
func (c *Consumer) sendSharedAck() *call.Ack {
	slices.SortStableFunc(c.claims.acks, func(a, b named) int { return cmp.Compare(a.generation, b.generation) })
	acks := c.claims.acks
	r := &call.Ack{Subscription: c.cfg.Subscription, Member: c.member, Generation: acks[0].generation}
	n := 0
	for n < len(acks) && n < maxNamed && acks[n].generation == r.Generation {
		r.Offsets = append(r.Offsets, call.PartitionOffset{Partition: acks[n].partition, Offset: acks[n].offset})
		n++
	}
	c.claims.sent, c.ackMore = n, n < len(acks)
	return r
}

// ackedShared handles an ack's answer. Those that may succeed later are kept.
func (c *Consumer) ackedShared(now model.Mono, r *call.AckCallResult, err *model.Error) {
	sent := c.claims.acks[:c.claims.sent]
	var again []named
	why, fenced := err, map[model.Partition]model.Generation{}
	for _, a := range sent {
		bad := err
		if bad == nil {
			bad = partitionResult(r, a.partition)
		}
		switch {
		case bad == nil || c.leaving && c.ack.failures >= 3:
		case judge(bad) != final:
			again, why = append(again, a), bad
		case bad.Reason == model.ReasonFenced:
			fenced[a.partition] = a.generation
		}
	}
	if len(fenced) > 0 { // a seek came between
		c.dropShared(func(d *Delivery) bool { return d.Generation <= fenced[d.Partition] })
	}
	c.claims.acks, c.claims.sent = append(again, c.claims.acks[c.claims.sent:]...), 0
	if len(again) > 0 {
		c.ack.failed(now, &c.backoff, why)
	} else {
		c.ack.succeeded()
	}
	switch {
	case len(c.claims.acks) == 0:
		c.ackDue = model.Never
	case len(again) > 0 || c.ackMore:
		c.ackDue = min(c.ackDue, now)
	default:
		c.ackDue = min(c.ackDue, now.Add(c.cfg.AckInterval))
	}
}
