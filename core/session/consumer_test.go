package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// coordinator is a subscription in ordered mode with one member, done as
// semantics has it: cursors and fences last, positions and pull sequences are
// memory that a failover loses.
type coordinator struct {
	t          fataler
	generation model.Generation
	parts      []*share
	sequence   uint64
	last       *call.PullResult
	left       bool
	acks       int
	gone       *model.Error // the subscription is no more
	batchSize  int
}

type share struct {
	messages  int
	cursor    model.Offset
	position  model.Offset
	fence     model.Generation
	processed map[model.Offset]model.Generation // the newest that delivered it
}

func newCoordinator(t fataler, sizes ...int) *coordinator {
	c := &coordinator{t: t, generation: 1, batchSize: 3}
	for _, n := range sizes {
		c.parts = append(c.parts, &share{messages: n, fence: 1, processed: map[model.Offset]model.Generation{}})
	}
	return c
}

// fails over: what was only memory is gone.
func (c *coordinator) failover() {
	c.sequence, c.last = 0, nil
	for _, s := range c.parts {
		s.position = s.cursor
	}
}

func (c *coordinator) seek(to model.Offset) {
	c.generation++
	if c.last != nil {
		c.last = &call.PullResult{Member: "m1", Generation: c.generation} // what it gave is void
	}
	for _, s := range c.parts {
		s.cursor = min(to, model.Offset(s.messages))
		s.position, s.fence = s.cursor, c.generation
	}
}

func (c *coordinator) serve(r call.Client) (call.ClientResult, *model.Error) {
	if c.gone != nil {
		return nil, c.gone
	}
	switch r := r.(type) {
	case *call.Pull:
		return c.pull(r)
	case *call.Ack:
		return c.ack(r), nil
	case *call.ExtendLease:
		return &call.Empty{}, nil
	case *call.LeaveSubscription:
		c.left = true
		return &call.Empty{}, nil
	}
	return nil, model.Errorf(model.Unimplemented, "%T", r)
}

func (c *coordinator) pull(r *call.Pull) (*call.PullResult, *model.Error) {
	switch {
	case c.last != nil && r.PullSequence == c.sequence:
		return c.last, nil
	case c.sequence == 0 || r.PullSequence == 1:
		for _, s := range c.parts {
			s.position = s.cursor
		}
	case r.PullSequence != c.sequence && r.PullSequence != c.sequence+1:
		return nil, model.Invalid("pull_sequence", "is %d after %d", r.PullSequence, c.sequence)
	}
	out := &call.PullResult{Member: "m1", Generation: c.generation}
	room := int(r.MaxMessages)
	for i, s := range c.parts {
		from, to := s.position, min(s.position+model.Offset(room), model.Offset(s.messages))
		if from == to {
			continue
		}
		room -= int(to - from)
		s.position = to
		out.Ranges = append(out.Ranges, call.PulledRange{
			Range:   call.Range{Partition: model.Partition(i), From: from, To: to, Attempt: 2},
			Batches: c.batches(s, from, to),
		})
	}
	c.sequence, c.last = r.PullSequence, out
	return out, nil
}

// batches are whole ones: their first and last reach beyond [from, to).
func (c *coordinator) batches(s *share, from, to model.Offset) (out []batch.View) {
	n := model.Offset(c.batchSize)
	for base := from / n * n; base < to; base += n {
		var ms []batch.Message
		for o := base; o < min(base+n, model.Offset(s.messages)); o++ {
			ms = append(ms, batch.Message{Payload: fmt.Append(nil, o)})
		}
		v := batch.Encode(ms, batch.Options{})
		v.Stamp(base, model.Wall(base)+1)
		out = append(out, v)
	}
	return out
}

func (c *coordinator) ack(r *call.Ack) *call.AckCallResult {
	c.acks++
	if c.left {
		c.t.Fatalf("an ack after the leave")
	}
	out := &call.AckCallResult{}
	for _, u := range r.UpTo {
		s := c.parts[u.Partition]
		result := call.AckResult{Partition: u.Partition}
		if r.Generation < s.fence {
			result.Err = &model.Error{Code: model.FailedPrecondition, Reason: model.ReasonFenced,
				Expected: uint64(c.generation), Message: "older generation"}
		} else {
			for o := s.cursor; o < u.Offset; o++ {
				if g, ok := s.processed[o]; !ok || g < s.fence {
					c.t.Fatalf("ack of partition %d up to %d: offset %d was not processed since the last seek",
						u.Partition, u.Offset, o)
				}
			}
			s.cursor = max(s.cursor, u.Offset)
			s.position = max(s.position, s.cursor)
		}
		result.Cursor = s.cursor
		out.Results = append(out.Results, result)
	}
	return out
}

// consumerRig drives a consumer against the coordinator, and processes.
type consumerRig struct {
	*world
	co     *coordinator
	c      *Consumer
	taken  []Delivery
	last   map[string]model.Offset // per partition and generation
	first  map[model.Partition]uint32
	beats  int
	pulls  int
	most   int
	strays float64 // share of pulls given up that arrive later
	gives  bool    // takes and processes by itself
}

func newConsumerRig(seed uint64, co *coordinator, cfg ConsumerConfig) *consumerRig {
	cfg.Subscription, cfg.Seed = "orders/mail", seed
	return &consumerRig{world: newWorld(seed), co: co, c: NewConsumer(cfg), last: map[string]model.Offset{},
		first: map[model.Partition]uint32{}, gives: true}
}

func (r *consumerRig) pump() {
	for {
		sends := r.c.Poll(r.now)
		for _, s := range sends {
			switch p := s.Call.(type) {
			case *call.ExtendLease:
				r.beats++
			case *call.Pull:
				r.pulls++
				if r.rand.Float64() < r.strays {
					r.at(time.Duration(r.rand.Int64N(int64(time.Second))), func() { _, _ = r.co.pull(p) })
					r.c.Done(r.now, s.ID, nil, model.Errorf(model.DeadlineExceeded, "no answer"))
					continue
				}
			}
			r.carry(s, r.co.serve, func(id uint64, res call.ClientResult, err *model.Error) {
				r.c.Done(r.now, id, res, err)
			})
		}
		r.most = max(r.most, r.c.Held())
		if len(sends) == 0 {
			break
		}
	}
	if r.gives {
		r.work(r.rand.IntN(4))
	}
}

// work takes one message and processes some taken ones, not in order between partitions.
func (r *consumerRig) work(n int) {
	for _, d := range r.c.Take(1) {
		key := fmt.Sprintf("%d in generation %d", d.Partition, d.Generation)
		if was, ok := r.last[key]; ok && d.Offset <= was {
			r.co.t.Fatalf("partition %s: offset %d after %d", key, d.Offset, was)
		}
		r.last[key] = d.Offset
		if want := fmt.Sprint(d.Offset); string(d.Message.Payload) != want || d.AppendTime == 0 {
			r.co.t.Fatalf("offset %s: payload %q, append time %d", want, d.Message.Payload, d.AppendTime)
		}
		r.taken = append(r.taken, d)
	}
	for range min(n, len(r.taken)) {
		i := r.rand.IntN(len(r.taken))
		d := r.taken[i]
		r.taken = slices.Delete(r.taken, i, i+1)
		s := r.co.parts[d.Partition]
		s.processed[d.Offset] = max(s.processed[d.Offset], d.Generation)
		r.c.Processed(r.now, d)
	}
}

func (r *consumerRig) run(d time.Duration) {
	end := r.now.Add(d)
	for r.now < end {
		r.pump()
		next := min(r.c.Next(), end)
		if r.gives && (r.c.Buffered() > 0 || len(r.taken) > 0) {
			next = min(next, r.now.Add(time.Millisecond))
		}
		r.step(next)
	}
	r.pump()
}

func TestConsumerUnderFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		co := newCoordinator(t, rapid.IntRange(0, 40).Draw(t, "p0"), rapid.IntRange(0, 40).Draw(t, "p1"), 7)
		co.batchSize = rapid.IntRange(1, 5).Draw(t, "batch")
		cfg := ConsumerConfig{
			MaxMessages: uint32(rapid.IntRange(1, 10).Draw(t, "max")), MaxBuffered: rapid.IntRange(1, 15).Draw(t, "buffered"),
			AckInterval: time.Duration(rapid.IntRange(-1, 50).Draw(t, "ack")) * time.Millisecond,
			AckMessages: rapid.IntRange(1, 10).Draw(t, "ack messages"), Wait: -1, TryTimeout: 300 * time.Millisecond,
		}
		r := newConsumerRig(rapid.Uint64().Draw(t, "seed"), co, cfg)
		r.lossy = rapid.SampledFrom([]float64{0, 0.1, 0.4}).Draw(t, "lossy")
		r.slow = rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond}).Draw(t, "slow")
		r.strays = rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "strays")
		for range rapid.IntRange(0, 8).Draw(t, "incidents") {
			r.run(time.Duration(rapid.IntRange(1, 300).Draw(t, "pause")) * time.Millisecond)
			switch rapid.SampledFrom([]string{"failover", "seek", "join", "more"}).Draw(t, "incident") {
			case "failover":
				co.failover()
			case "seek":
				co.seek(model.Offset(rapid.IntRange(0, 40).Draw(t, "seek to")))
			case "join":
				co.generation++
			case "more":
				co.parts[0].messages += 5
			}
		}
		r.lossy, r.strays = 0, 0
		r.run(2 * time.Minute)
		if r.most > r.c.cfg.MaxBuffered {
			t.Fatalf("held %d messages of at most %d", r.most, r.c.cfg.MaxBuffered)
		}
		for i, s := range co.parts {
			if int(s.cursor) != s.messages {
				t.Fatalf("partition %d: cursor %d of %d; held %d, buffered %d", i, s.cursor, s.messages, r.c.Held(), r.c.Buffered())
			}
		}
		r.c.Leave(r.now)
		r.run(5 * time.Second)
		if !r.c.Left() || !co.left {
			t.Fatal("did not leave")
		}
	})
}

func TestConsumerAcksAfterProcessing(t *testing.T) {
	co := newCoordinator(t, 10)
	r := newConsumerRig(1, co, ConsumerConfig{AckInterval: 100 * time.Millisecond, MaxBuffered: 10, LowMark: 10})
	r.gives = false
	r.run(time.Second)
	ds := r.c.Take(0)
	if len(ds) != 10 || ds[0].Attempt != 2 || ds[1].Attempt != 1 {
		t.Fatalf("took %d messages", len(ds))
	}
	r.run(time.Minute)
	if co.acks != 0 || co.parts[0].cursor != 0 {
		t.Fatal("acked what was only taken")
	}
	if r.beats < 15 {
		t.Fatalf("%d heartbeats in a minute; one each third of 10s is due", r.beats)
	}
	process := func(i int) {
		co.parts[0].processed[ds[i].Offset] = ds[i].Generation
		r.c.Processed(r.now, ds[i])
	}
	for i := 1; i < 5; i++ {
		process(i)
	}
	r.run(time.Second)
	if co.acks != 0 {
		t.Fatal("acked beyond a message that is not processed")
	}
	process(0)
	r.run(50 * time.Millisecond)
	if co.acks != 0 {
		t.Fatal("acked before the interval was over")
	}
	r.run(100 * time.Millisecond)
	if co.acks != 1 || co.parts[0].cursor != 5 {
		t.Fatalf("%d acks, cursor %d", co.acks, co.parts[0].cursor)
	}
}

func TestConsumerSeekVoidsWhatIsHeld(t *testing.T) {
	co := newCoordinator(t, 20)
	r := newConsumerRig(1, co, ConsumerConfig{AckInterval: -1, MaxMessages: 10, MaxBuffered: 10, LowMark: 10})
	r.gives = false
	r.run(time.Second)
	old := r.c.Take(5)
	late := r.c.Take(1)
	co.seek(0)
	for _, d := range old {
		co.parts[0].processed[d.Offset] = d.Generation
		r.c.Processed(r.now, d)
	}
	r.run(time.Second)
	co.parts[0].processed[late[0].Offset] = late[0].Generation
	r.c.Processed(r.now, late[0])
	if co.parts[0].cursor != 0 {
		t.Fatalf("a late ack moved the cursor to %d", co.parts[0].cursor)
	}
	r.gives = true
	r.run(5 * time.Second)
	if co.parts[0].cursor != 20 {
		t.Fatalf("cursor %d of 20 after reading again", co.parts[0].cursor)
	}
	for o := range model.Offset(20) {
		if co.parts[0].processed[o] != 2 {
			t.Fatalf("offset %d was not delivered again after the seek", o)
		}
	}
}

func TestConsumerAcksAgainWhatWasLost(t *testing.T) {
	co := newCoordinator(t, 4)
	r := newConsumerRig(1, co, ConsumerConfig{AckInterval: -1, TryTimeout: time.Second})
	r.gives = false
	r.run(time.Second)
	for _, d := range r.c.Take(0) {
		co.parts[0].processed[d.Offset] = d.Generation
		r.c.Processed(r.now, d)
	}
	co.gone = model.Errorf(model.Unavailable, "no coordinator")
	r.run(3 * time.Second)
	co.gone = nil
	r.run(3 * time.Second)
	if co.parts[0].cursor != 4 {
		t.Fatalf("cursor %d of 4", co.parts[0].cursor)
	}
}

func TestConsumerLeavesAfterItsAcks(t *testing.T) {
	co := newCoordinator(t, 4)
	r := newConsumerRig(1, co, ConsumerConfig{AckInterval: time.Minute})
	r.gives = false
	r.run(time.Second)
	for _, d := range r.c.Take(3) {
		co.parts[0].processed[d.Offset] = d.Generation
		r.c.Processed(r.now, d)
	}
	r.c.Leave(r.now)
	r.run(10 * time.Second)
	if !r.c.Left() || !co.left || co.parts[0].cursor != 3 {
		t.Fatalf("left %v, cursor %d of 3 processed", r.c.Left(), co.parts[0].cursor)
	}
}

// A static member that is closed acks what is due, and its session lives on.
func TestAStaticConsumerStaysAMember(t *testing.T) {
	co := newCoordinator(t, 4)
	r := newConsumerRig(1, co, ConsumerConfig{AckInterval: time.Minute, Member: "m", Static: true})
	r.gives = false
	r.run(10 * time.Second)
	for _, d := range r.c.Take(3) {
		co.parts[0].processed[d.Offset] = d.Generation
		r.c.Processed(r.now, d)
	}
	r.c.Leave(r.now)
	r.run(10 * time.Second)
	if !r.c.Left() || co.left || co.parts[0].cursor != 3 {
		t.Fatalf("ended %v, left %v, cursor %d of 3 processed", r.c.Left(), co.left, co.parts[0].cursor)
	}
}

// TestConsumerDoesNotSpin: a broker that answers an empty pull at once, or one
// told not to wait, is not asked in a tight loop.
func TestConsumerDoesNotSpin(t *testing.T) {
	co := newCoordinator(t, 1)
	r := newConsumerRig(1, co, ConsumerConfig{Wait: -1})
	r.run(time.Minute)
	if r.pulls < 60*1000/250 || r.pulls > 60*50 {
		t.Fatalf("%d pulls in a minute", r.pulls)
	}
}

func TestConsumerEndsWhenSubscriptionIsGone(t *testing.T) {
	co := newCoordinator(t, 10)
	co.gone = model.Errorf(model.NotFound, "no subscription orders/mail")
	r := newConsumerRig(1, co, ConsumerConfig{})
	r.run(time.Second)
	if err := r.c.Err(); err == nil || err.Code != model.NotFound {
		t.Fatalf("error: %v", err)
	}
	if r.c.Next() != model.Never {
		t.Fatal("a consumer without hope wants to be polled")
	}
	pulls := r.pulls
	r.c.Leave(r.now)
	r.run(time.Minute)
	if !r.c.Left() || r.pulls != pulls {
		t.Fatalf("left %v, %d pulls after the end", r.c.Left(), r.pulls-pulls)
	}
}

func TestConsumerTellsOfDamage(t *testing.T) {
	co := newCoordinator(t, 3)
	r := newConsumerRig(1, co, ConsumerConfig{})
	res, _ := co.pull(&call.Pull{PullSequence: 1, MaxMessages: 10})
	v := res.Ranges[0].Batches[0]
	v[len(v)-1]++ // an attribute count that is not there
	r.run(time.Second)
	if err := r.c.Err(); err == nil || err.Code != model.DataLoss {
		t.Fatalf("error: %v", err)
	}
	if r.c.Buffered() != 0 {
		t.Fatal("half of a pull was handed out")
	}
}
