package session

import (
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// Nack gives a message taken back: it comes again, to this or another member,
// after the delay (0: the subscription's backoff), and an attempt is counted.
// In mode ordered all that was delivered after it in its partition comes again
// with it, and is forgotten here.
func (c *Consumer) Nack(now model.Mono, d Delivery, delay time.Duration) {
	n := named{place{d.Partition, d.Offset}, claim{d.Lease, d.Generation}, max(delay, 0)}
	if c.cfg.Shared {
		c.held--
		if c.release(&d) {
			c.nacks = append(c.nacks, n)
		}
		return
	}
	t := c.tracks[d.Partition]
	if t == nil || t.processing == 0 {
		return
	}
	t.processing--
	c.held--
	open := func(h handed) bool { return h.offset == d.Offset && !h.processed }
	if t.run != d.run || !slices.ContainsFunc(t.handed, open) {
		return // taken before a seek, or given back with an earlier one
	}
	t.handed = slices.DeleteFunc(t.handed, func(h handed) bool { return h.offset >= d.Offset })
	c.dropBuffered(t, func(b *Delivery) bool { return b.Offset >= d.Offset })
	t.received = d.Offset
	t.deaf++
	c.nacks = append(c.nacks, n)
}

// Extend asks for more time for a message taken: the lease ends so long from
// now (0: the subscription's ack deadline). Heartbeats extend the leases of all
// that is held by themselves.
func (c *Consumer) Extend(d Delivery, by time.Duration) {
	if c.cfg.Shared && c.claims.held[place{d.Partition, d.Offset}].delivery != d.Lease {
		return
	}
	if len(c.extends) < maxNamed {
		c.extends = append(c.extends, named{place{d.Partition, d.Offset}, claim{d.Lease, d.Generation}, max(by, 0)})
	}
}

// alike counts the first of a list that one request can carry.
func alike(list []named) (n int) {
	for n < len(list) && n < maxNamed && list[n].generation == list[0].generation && list[n].wait == list[0].wait {
		n++
	}
	return n
}

// spell writes out what a request names.
func (c *Consumer) spell(list []named) (offsets []call.PartitionOffset, deliveries []uint64) {
	for _, n := range list {
		offsets = append(offsets, call.PartitionOffset{Partition: n.partition, Offset: n.offset})
		if c.cfg.Shared {
			deliveries = append(deliveries, n.delivery)
		}
	}
	return offsets, deliveries
}

func (c *Consumer) nackReady() model.Mono {
	if len(c.nacks) == 0 {
		return model.Never
	}
	return c.nack.next()
}

func (c *Consumer) extendReady() model.Mono {
	if len(c.extends) == 0 || c.leaving {
		return model.Never
	}
	return c.extend.next()
}

func (c *Consumer) sendNack(now model.Mono) Send {
	c.nack.id, c.lastBeat = c.nextID(), now
	c.nacking = alike(c.nacks)
	r := &call.Nack{Subscription: c.cfg.Subscription, Member: c.member, Generation: c.nacks[0].generation,
		Delay: c.nacks[0].wait}
	r.Offsets, r.Deliveries = c.spell(c.nacks[:c.nacking])
	return c.send(c.nack.id, 0, r)
}

func (c *Consumer) sendExtend(now model.Mono) Send {
	c.extend.id, c.lastBeat = c.nextID(), now
	c.extending = alike(c.extends)
	r := &call.ExtendLease{Subscription: c.cfg.Subscription, Member: c.member, Generation: c.extends[0].generation,
		Extension: c.extends[0].wait}
	r.Offsets, r.Deliveries = c.spell(c.extends[:c.extending])
	return c.send(c.extend.id, 0, r)
}

// nacked handles a nack's answer. Given up, it leaves the broker to find out by
// itself, and what lies from there on is asked for again.
func (c *Consumer) nacked(now model.Mono, err *model.Error) {
	if err != nil && judge(err) != final && c.nack.failures+1 < giveUpAfter {
		c.nack.failed(now, &c.backoff, err)
		return
	}
	c.nack.succeeded()
	for _, n := range c.nacks[:c.nacking] {
		t := c.tracks[n.partition]
		if t == nil || c.cfg.Shared {
			continue
		}
		if t.deaf--; c.pull.id != 0 {
			t.deafTo = c.pulls // its answer may have been made before the nack
		}
		if err != nil {
			c.dropRun(t)
			c.restart = true
		}
	}
	c.nacks, c.nacking = c.nacks[c.nacking:], 0
}

func (c *Consumer) extended(now model.Mono, err *model.Error) {
	if err != nil && judge(err) != final && c.extend.failures+1 < giveUpAfter {
		c.extend.failed(now, &c.backoff, err)
		return
	}
	c.extend.succeeded()
	c.extends, c.extending = c.extends[c.extending:], 0
}

// hears says whether a pull's answer is to be taken in for a partition. One that
// was made before a nack took effect may go on beyond the message given back:
// then the consumer asks from the cursors on.
func (c *Consumer) hears(t *track, from model.Offset) bool {
	if t.deaf > 0 || c.pulls <= t.deafTo && from > t.received {
		c.restart = true
		return false
	}
	return true
}
