package subscription

import (
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// leaseCommand gives messages of shared subscriptions to members: what many
// pulls have read, in the order they came.
type leaseCommand struct{ pulls []leasePull }

// leasePull is what one pull may take, up to the limits in force when it came.
type leasePull struct {
	id       model.SubscriptionID
	session  uint64
	sequence uint64 // 0: it names none
	token    uint64 // of the delivery
	spans    []leaseSpan
	skips    []place // cursors to move up to the log's start
	member   uint64  // messages out with the member at most
	total    uint64  // and with all; 0: no limit
	attempts uint32  // of a message at most; 0: without end
	window   uint32  // slots and failures of a partition at most
	passes   []pass  // what a filter does not want
	ahead    uint32  // ranges acked ahead of a partition's cursor at most
}

// leaseSpan is a range that was read, of the partition as it was at the fence.
type leaseSpan struct {
	partition model.Partition
	fence     model.Generation
	from, to  model.Offset
	keys      []uint32 // by message, where keys are kept in order
}

// leased is what a pull got.
type leased struct {
	delivery uint64 // 0: nothing
	ranges   []call.Range
	skipped  []call.Range
}

// returnCommand takes messages back from who was given them: counted when they
// were nacked or their leases ended, not when they never went out.
type returnCommand struct {
	id    model.SubscriptionID
	items []returned
	count bool
	limit uint32 // messages of a partition whose attempts are counted at most
}

// returned names a message by the delivery that gave it; another one's changes nothing.
type returned struct {
	partition  model.Partition
	generation model.Generation // of the pull that gave it
	offset     model.Offset
	delivery   uint64
}

func (*leaseCommand) kind() kind  { return kindLease }
func (*returnCommand) kind() kind { return kindReturn }

// Code implements wire.Coder.
func (v *leaseCommand) Code(c *wire.Codec) {
	wire.Slice(c, &v.pulls, func(c *wire.Codec, p *leasePull) {
		wire.Uint(c, &p.id)
		wire.Uint(c, &p.session)
		wire.Uint(c, &p.sequence)
		wire.Uint(c, &p.token)
		wire.Slice(c, &p.spans, func(c *wire.Codec, s *leaseSpan) {
			wire.Uint(c, &s.partition)
			wire.Uint(c, &s.fence)
			wire.Uint(c, &s.from)
			wire.Uint(c, &s.to)
			wire.Slice(c, &s.keys, func(c *wire.Codec, k *uint32) { wire.Uint(c, k) })
		})
		wire.Slice(c, &p.skips, codePlace)
		wire.Uint(c, &p.member)
		wire.Uint(c, &p.total)
		wire.Uint(c, &p.attempts)
		wire.Uint(c, &p.window)
		wire.Slice(c, &p.passes, codePass)
		wire.Uint(c, &p.ahead)
	})
}

// Code implements wire.Coder.
func (v *returnCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Slice(c, &v.items, func(c *wire.Codec, r *returned) {
		wire.Uint(c, &r.partition)
		wire.Uint(c, &r.generation)
		wire.Uint(c, &r.offset)
		wire.Uint(c, &r.delivery)
	})
	c.Bool(&v.count)
	wire.Uint(c, &v.limit)
}

func (v *leaseCommand) apply(s *state) outcome {
	out := outcome{leases: make([]leased, 0, len(v.pulls))}
	for i := range v.pulls {
		out.leases = append(out.leases, s.lease(&v.pulls[i]))
	}
	return out
}

// lease gives a pull what is open to it. One whose session has ended gets nothing.
func (s *state) lease(p *leasePull) (out leased) {
	sub := s.subscriptions[p.id]
	if sub == nil || sub.session(p.session) == nil {
		return out
	}
	if mb := sub.session(p.session); p.token != 0 && mb.token == p.token {
		// Asked again, its answer having been lost: to lease more would leave what
		// was leased with somebody who does not know of it.
		if given := sub.given(mb.joined, mb.delivery); len(given) > 0 {
			return leased{delivery: mb.delivery, ranges: given}
		}
	}
	out.skipped = (&skipCommand{id: p.id, to: p.skips}).apply(s).skipped
	sub.pass(p.passes, int(p.ahead))
	t := taking{session: p.session, delivery: sub.deliveries + 1, room: sub.room(p.session, p.member, p.total),
		attempts: p.attempts, window: int(p.window), keyed: sub.keyed}
	for _, span := range p.spans {
		if int(span.partition) >= len(sub.partitions) || sub.partitions[span.partition].fence != span.fence {
			continue
		}
		part := &sub.partitions[span.partition]
		taken := part.take(&t, span.from, span.to, span.keys)
		out.ranges = part.ranges(out.ranges, span.partition, taken)
	}
	if len(out.ranges) == 0 {
		return out
	}
	sub.deliveries++
	out.delivery = sub.deliveries
	mb := sub.session(p.session)
	mb.sequence, mb.delivery, mb.token = p.sequence, out.delivery, p.token
	return out
}

func (v *returnCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	if sub == nil {
		return outcome{err: gone(v.id)}
	}
	out := outcome{lapses: make([]*model.Error, 0, len(v.items))}
	at := make([][]int, len(sub.partitions)) // by partition
	for i := range v.items {
		place, err := sub.returned(&v.items[i])
		out.lapses = append(out.lapses, err)
		if err == nil && place >= 0 {
			p := v.items[i].partition
			at[p] = append(at[p], place)
		}
	}
	for p := range at {
		slices.Sort(at[p])
		sub.giveBack(&sub.partitions[p], slices.Compact(at[p]), v.count, int(v.limit))
	}
	return out
}

// returned finds the slot of a message to take back; below 0: it is acked.
func (s *subscription) returned(r *returned) (int, *model.Error) {
	if err := s.inRange(r.partition); err != nil {
		return -1, err
	}
	part := &s.partitions[r.partition]
	if r.generation < part.fence || r.generation > s.generation {
		return -1, s.fencedAt(r.generation, r.partition)
	}
	if part.isAcked(r.offset) {
		return -1, nil
	}
	i, ok := part.slotAt(r.offset)
	if !ok || !part.slots[i].out() || part.slots[i].delivery != r.delivery {
		return -1, s.overtaken(r.partition, r.offset, r.generation)
	}
	return i, nil
}

// overtaken refuses what names a delivery that is not the message's current one.
func (s *subscription) overtaken(p model.Partition, o model.Offset, g model.Generation) *model.Error {
	err := s.fencedAt(g, p)
	err.Message = "the lease has ended, and the message comes again; drop it"
	if i, ok := s.partitions[p].slotAt(o); ok && s.partitions[p].slots[i].out() {
		err.Expected = s.partitions[p].slots[i].delivery
	}

	return err
}
