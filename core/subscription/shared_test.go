package subscription

import (
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func sharedBench(t *testing.T, partitions int, settings model.SubscriptionSettings) *bench {
	b := newBench(t, partitions)
	b.StepDown()
	settings.Mode = model.ModeShared
	b.settings, b.nextID = settings, b.nextID+1
	b.create()
	b.Lead()
	return b
}

// keyHash is what a batch says of a key.
func keyHash(key string) uint32 { return uint32(batch.KeyHash([]byte(key)) >> 32) }

// draw pulls up to n messages of a topic whose partitions end at an offset and
// whose messages' keys are named in turn.
func (b *bench) draw(m model.MemberID, sequence uint64, n, end model.Offset, keys ...string) *call.Delivered {
	b.Helper()
	g := b.grant(m, sequence)
	req := &call.Deliver{Target: target(), Member: m, Generation: g.Generation, PullSequence: sequence}
	if g.Room > 0 {
		n = min(n, model.Offset(g.Room))
	}
	for _, r := range g.Ranges {
		to := end
		if r.To != 0 {
			to = min(to, r.To)
		}
		for o := r.From; o < to && (n > 0 || g.Replay); o++ {
			if slices.ContainsFunc(g.Acked, func(a call.Range) bool {
				return a.Partition == r.Partition && a.From <= o && o < a.To
			}) {
				continue
			}
			n -= min(n, 1)
			if k := len(req.Ranges); k > 0 && req.Ranges[k-1].Partition == r.Partition && req.Ranges[k-1].To == o {
				req.Ranges[k-1].To++
			} else {
				req.Ranges = append(req.Ranges, span(r.Partition, o, o+1))
			}
			if len(keys) > 0 {
				req.Keys = append(req.Keys, keyHash(keys[int(o)%len(keys)]))
			}
		}
	}
	return must[*call.Delivered](b, req)
}

type got struct {
	offset  model.Offset
	attempt uint32
}

// gave lists what was delivered of one partition, with attempts.
func gave(d *call.Delivered) (out []got) {
	for _, r := range d.Ranges {
		for o := r.From; o < r.To; o++ {
			attempt := uint32(1)
			if o == r.From {
				attempt = max(1, r.Attempt)
			}
			out = append(out, got{o, attempt})
		}
	}
	return out
}

func (b *bench) wantGave(d *call.Delivered, want ...got) {
	b.Helper()
	if have := gave(d); !slices.Equal(have, want) {
		b.Fatalf("given %v; want %v", have, want)
	}
}

func at(p model.Partition, offsets ...model.Offset) (out []call.PartitionOffset) {
	for _, o := range offsets {
		out = append(out, call.PartitionOffset{Partition: p, Offset: o})
	}
	return out
}

func (b *bench) ackEach(m model.MemberID, g model.Generation, offsets ...model.Offset) call.AckResult {
	b.Helper()
	return must[*call.Acked](b, &call.AckCursors{Target: target(), Member: m, Generation: g,
		Offsets: at(0, offsets...)}).Results[0]
}

func (b *bench) giveBack(
	m model.MemberID, d *call.Delivered, delay time.Duration, offsets ...model.Offset,
) call.AckResult {
	b.Helper()
	return must[*call.Acked](b, &call.NackCursors{Target: target(), Member: m, Generation: d.Generation, Delay: delay,
		Offsets: at(0, offsets...), Deliveries: slices.Repeat([]uint64{d.Delivery}, len(offsets))}).Results[0]
}

func TestMembersCompeteForMessages(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{})
	one := b.draw("a", 0, 3, 10)
	two := b.draw("b", 0, 3, 10)
	b.wantGave(one, got{0, 1}, got{1, 1}, got{2, 1})
	b.wantGave(two, got{3, 1}, got{4, 1}, got{5, 1})
	if one.Delivery == 0 || one.Delivery == two.Delivery {
		t.Fatalf("deliveries %d and %d", one.Delivery, two.Delivery)
	}
	if r := b.ackEach("b", two.Generation, 4); r.Err != nil || r.Cursor != 0 {
		t.Fatalf("%+v", r)
	}
	if r := b.ackEach("a", one.Generation, 0, 1, 2); r.Err != nil || r.Cursor != 3 {
		t.Fatalf("%+v", r)
	}
	if r := b.ackEach("a", one.Generation, 6); r.Err == nil || r.Err.Code != model.InvalidArgument {
		t.Fatalf("an ack of what was not delivered: %+v", r)
	}
	b.fails(&call.AckCursors{Target: target(), Member: "a", Generation: 1,
		UpTo: at(0, 3)}, model.InvalidArgument, "")
	b.failover()
	b.wantGave(b.draw("a", 0, 2, 10), got{6, 1}, got{7, 1})
}

// Two pulls are offered the same messages; the entries decide who gets them.
func TestADeliveryTakesOnlyWhatIsOpen(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{})
	g := b.grant("a", 0)
	b.wantGave(b.draw("b", 0, 3, 10), got{0, 1}, got{1, 1}, got{2, 1})
	b.wantGave(b.deliver("a", g.Generation, 0, span(0, 0, 5)), got{3, 1}, got{4, 1})
}

func TestNackInSharedMode(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{})
	d := b.draw("a", 0, 4, 10)
	if r := b.giveBack("a", d, 2*time.Second, 1); r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := b.giveBack("a", d, 0, 1); r.Err == nil || r.Err.Reason != model.ReasonFenced {
		t.Fatalf("a second nack of one delivery: %+v", r)
	}
	b.fails(&call.NackCursors{Target: target(), Member: "a", Generation: d.Generation, Offsets: at(0, 2)},
		model.InvalidArgument, "")
	b.wantGave(b.draw("b", 0, 1, 10), got{4, 1})
	b.Advance(2 * time.Second)
	b.wantGave(b.draw("b", 0, 3, 10), got{1, 2}) // what came back goes first, and alone
	b.wantGave(b.draw("b", 0, 1, 10), got{5, 1})
	if r := b.ackEach("a", d.Generation, 1); r.Err != nil {
		t.Fatalf("an ack of an earlier delivery: %+v", r)
	}
}

func TestALeaseEndsAndIsExtendedInSharedMode(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{AckDeadline: 5 * time.Second, SessionTimeout: time.Minute})
	d := b.draw("a", 0, 3, 10)
	b.Advance(4 * time.Second)
	must[*call.Acked](b, &call.ExtendLeases{Target: target(), Member: "a", Generation: d.Generation,
		Offsets: at(0, 1), Deliveries: []uint64{d.Delivery}})
	b.Advance(time.Second)
	again := b.draw("b", 0, 5, 10)
	b.wantGave(again, got{0, 2}, got{2, 2})
	r := must[*call.Acked](b, &call.ExtendLeases{Target: target(), Member: "a", Generation: d.Generation,
		Offsets: at(0, 0), Deliveries: []uint64{d.Delivery}}).Results[0]
	if r.Err == nil || r.Err.Reason != model.ReasonFenced || r.Err.Expected != again.Delivery {
		t.Fatalf("%+v %v", r, r.Err)
	}
	b.Advance(4 * time.Second)
	b.Settle()
	b.wantGave(b.draw("b", 0, 1, 10), got{1, 2})
}

func TestDeathCountsEveryMessageHeldAndLeavingNone(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{SessionTimeout: 5 * time.Second})
	b.draw("a", 0, 2, 10)
	b.Advance(5 * time.Second)
	b.wantGave(b.draw("b", 0, 9, 10), got{0, 2}, got{1, 2})
	must[*call.Empty](b, &call.Leave{Target: target(), Member: "b"})
	b.wantGave(b.draw("c", 0, 2, 10), got{0, 2}, got{1, 2})
}

// The leases are in the log: what is out is out for the next leader, too.
func TestRestartNeverLeasesBeyondTheLimit(t *testing.T) {
	b := sharedBench(t, 2, model.SubscriptionSettings{MaxInFlightMember: 3, MaxInFlight: 4})
	b.draw("a", 0, 9, 10)
	b.failover()
	if d := b.draw("a", 0, 9, 10); len(d.Ranges) > 0 {
		t.Fatalf("over the member's limit: %+v", d)
	}
	if d := b.draw("b", 0, 9, 10); len(gave(d)) != 1 {
		t.Fatalf("over the subscription's limit: %+v", d)
	}
	// Nor does one that was offered messages before others took them.
	for _, m := range b.view().Members {
		if m.Leased > 3 {
			t.Fatalf("%+v", m)
		}
	}
}

func TestASharedPullWithASequenceIsRepeated(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{})
	one := b.draw("a", 1, 3, 10)
	if r := b.ackEach("a", one.Generation, 1); r.Err != nil {
		t.Fatal(r.Err)
	}
	b.failover()
	again := b.draw("a", 1, 3, 10)
	b.wantGave(again, got{0, 1}, got{2, 1})
	if again.Delivery != one.Delivery {
		t.Fatalf("delivery %d became %d", one.Delivery, again.Delivery)
	}
	b.wantGave(b.draw("a", 2, 1, 10), got{3, 1})
	b.wantGave(b.draw("a", 5, 1, 10), got{4, 1}) // those between brought nothing
	b.fails(&call.Grant{Target: target(), Member: "a", PullSequence: 4}, model.InvalidArgument, "")
}

// What nobody waits for any more is not delivered, and counts no attempt.
func TestWhatWasNotDeliveredComesBackUncounted(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{})
	g := b.grant("a", 0)
	r := b.Call(&call.Deliver{Target: target(), Member: "a", Generation: g.Generation,
		Ranges: []call.Range{span(0, 0, 3)}})
	b.Cancel(r)
	b.Settle()
	b.wantGave(b.draw("b", 0, 3, 10), got{0, 1}, got{1, 1}, got{2, 1})
}

func TestSeekVoidsSharedLeases(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{})
	d := b.draw("a", 0, 3, 10)
	b.seek(0, 1)
	if r := b.ackEach("a", d.Generation, 1); r.Err == nil || r.Err.Reason != model.ReasonFenced {
		t.Fatalf("%+v", r)
	}
	b.wantGave(b.draw("b", 0, 2, 10), got{1, 1}, got{2, 1})
}

func TestKeyOrder(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{KeyOrdered: true})
	keys := []string{"x", "y", "x", "", "x", "y"} // of offsets 0 to 5
	a := b.draw("a", 0, 1, 6, keys...)
	b.wantGave(a, got{0, 1})
	c := b.draw("c", 0, 6, 6, keys...) // joins: x is a's
	b.wantGave(c, got{1, 1}, got{3, 1}, got{5, 1})
	if d := b.draw("d", 0, 6, 6, keys...); len(d.Ranges) != 0 {
		t.Fatalf("x and y are held: %+v", d)
	}
	more := b.draw("a", 0, 1, 6, keys...)
	b.wantGave(more, got{2, 1})
	// Given back, the first of a key takes the next of it along, uncounted.
	if r := b.giveBack("a", a, time.Second, 0); r.Err != nil {
		t.Fatal(r.Err)
	}
	if d := b.draw("d", 0, 6, 6, keys...); len(d.Ranges) != 0 {
		t.Fatalf("the first of x waits: %+v", d)
	}
	b.failover()
	b.wantGave(b.draw("d", 0, 2, 6, keys...), got{0, 2}, got{2, 1})
	b.wantGave(b.draw("a", 0, 2, 6, keys...))
	if r := b.ackEach("d", a.Generation, 0, 2); r.Err != nil {
		t.Fatal(r.Err)
	}
	b.wantGave(b.draw("a", 0, 2, 6, keys...), got{4, 1})
}

// A delivery cannot leave a message out whose key is not known.
func TestKeyOrderKnowsAllThatLiesBelow(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{KeyOrdered: true})
	g := b.grant("a", 0)
	d := must[*call.Delivered](b, &call.Deliver{Target: target(), Member: "a", Generation: g.Generation,
		Ranges: []call.Range{span(0, 1, 2)}, Keys: []uint32{keyHash("x")}})
	b.wantGave(d)
}

// What a filter does not want is no gap for the order of keys.
func TestKeyOrderWithAFilter(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{KeyOrdered: true})
	for range 2 { // first with the cursor below, then past it
		g := b.grant("a", 0)
		from := g.Ranges[0].From
		d := must[*call.Delivered](b, &call.Deliver{Target: target(), Member: "a", Generation: g.Generation,
			Ranges:   []call.Range{span(0, from, from+1), span(0, from+3, from+4)},
			Keys:     []uint32{keyHash("x"), keyHash("y")},
			Filtered: []call.Range{span(0, from+1, from+3)}})
		b.wantGave(d, got{from, 1}, got{from + 3, 1})
	}
}

// A delivery asked again, its answer lost, gets what it got: nothing is left with
// a member that does not know of it, over a failover, too.
func TestADeliveryAskedAgain(t *testing.T) {
	b := sharedBench(t, 1, model.SubscriptionSettings{})
	g := b.grant("a", 0)
	req := &call.Deliver{Target: target(), Member: "a", Generation: g.Generation, Token: 7,
		Ranges: []call.Range{span(0, 0, 3)}}
	gone := b.Call(req)
	again := b.Call(req)
	b.Cancel(gone)
	b.Settle()
	if a := b.Answers[again]; a.Err != nil || len(gave(a.Resp.(*call.Delivered))) != 3 {
		t.Fatalf("%+v", a)
	}
	b.failover()
	d := must[*call.Delivered](b, req)
	b.wantGave(d, got{0, 1}, got{1, 1}, got{2, 1})
	b.wantGave(b.draw("b", 0, 1, 10), got{3, 1})
}
