package subscription

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// configured makes a bench whose subscription has these settings.
func configured(t *testing.T, partitions int, s model.SubscriptionSettings) *bench {
	b := newBench(t, partitions)
	b.settings = s
	b.create()
	return b
}

func (b *bench) nack(
	m model.MemberID, g model.Generation, delay time.Duration, offsets ...model.Offset,
) call.AckResult {
	b.Helper()
	req := &call.NackCursors{Target: target(), Member: m, Generation: g, Delay: delay}
	for _, o := range offsets {
		req.Offsets = append(req.Offsets, call.PartitionOffset{Offset: o})
	}
	return must[*call.Acked](b, req).Results[0]
}

func (b *bench) nacked(m model.MemberID, g model.Generation, delay time.Duration, offsets ...model.Offset) {
	b.Helper()
	if r := b.nack(m, g, delay, offsets...); r.Err != nil {
		b.Fatalf("nack: %v", r.Err)
	}
}

// keepAlive lets time pass with heartbeats.
func (b *bench) keepAlive(d time.Duration, members ...model.MemberID) {
	b.Helper()
	for ; d > 0; d -= time.Second {
		b.Advance(min(d, time.Second))
		b.Settle()
		for _, m := range members {
			must[*call.Empty](b, &call.Heartbeat{Target: target(), Member: m})
		}
	}
}

func (b *bench) attempts(offsets ...model.Offset) (out []uint32) {
	for _, o := range offsets {
		out = append(out, b.machine().state.subscriptions[b.nextID].partitions[0].attempts(o))
	}
	return out
}

func (b *bench) wantAttempts(want uint32, offset model.Offset) {
	b.Helper()
	if got := b.attempts(offset)[0]; got != want {
		b.Fatalf("offset %d came back %d times; want %d", offset, got, want)
	}
}

func try(from, to model.Offset, attempt uint32) call.Range {
	return call.Range{From: from, To: to, Attempt: attempt}
}

func (b *bench) wantTries(got []call.Range, want ...call.Range) {
	b.Helper()
	same := len(got) == len(want)
	for i := range want {
		same = same && got[i] == want[i]
	}
	if !same {
		b.Fatalf("ranges %+v; want %+v", got, want)
	}
}

func TestInFlightLimitOfAMember(t *testing.T) {
	b := configured(t, 2, model.SubscriptionSettings{MaxInFlightMember: 10})
	d := b.pull("a", 1, 6)
	b.wantRanges(d.Ranges, span(0, 0, 6), span(1, 0, 4))
	if g := b.grant("a", 2); len(g.Ranges) != 0 {
		t.Fatalf("given beyond the limit: %+v", g.Ranges)
	}
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 0, 6), span(1, 0, 4)) // from the cursors: nothing new
	b.single("a", d.Generation, 0, 3, 4)
	b.acked("a", d.Generation, 1, 1, 1)
	b.wantRanges(b.pull("a", 2, 6).Ranges, span(1, 4, 7))
	b.seek(0, 0) // what was given of partition 0 is void
	b.wantRanges(b.pull("a", 3, 9).Ranges, span(0, 0, 4))
	b.wantRanges(b.grant("b", 0).Ranges) // it has no partition yet
}

func TestInFlightLimitOfASubscription(t *testing.T) {
	b := configured(t, 2, model.SubscriptionSettings{MaxInFlight: 10})
	b.grant("a", 1)
	b.grant("b", 1)
	b.Settle()
	var given int
	for _, m := range []model.MemberID{"a", "b"} {
		for _, r := range b.pull(m, 2, 8).Ranges {
			given += int(r.To - r.From)
		}
	}
	if given != 10 {
		t.Fatalf("%d given, the limit is 10; %v", given, b.owners())
	}
}

func TestAckDeadline(t *testing.T) {
	b := configured(t, 1, model.SubscriptionSettings{AckDeadline: 5 * time.Second})
	d := b.pull("a", 1, 10)
	b.keepAlive(2*time.Second, "a")
	b.pull("a", 2, 10)
	b.acked("a", d.Generation, 0, 2, 2)
	b.single("a", d.Generation, 0, 2, 5)
	b.keepAlive(2*time.Second, "a")
	b.wantRanges(b.grant("a", 3).Ranges, span(0, 20, 0))
	b.keepAlive(time.Second, "a") // the first delivery's deadline
	b.wantAttempts(1, 3)
	b.wantTries(b.pull("a", 4, 10).Ranges, try(3, 4, 2), try(4, 5, 1), try(6, 13, 1))
	if got := b.attempts(4, 6, 10); got[0]+got[1]+got[2] != 0 {
		t.Fatalf("neighbours count attempts: %v", got)
	}
	b.acked("a", d.Generation, 0, 20, 20) // late, but nobody else's
	b.keepAlive(10*time.Second, "a")
	b.wantRanges(b.grant("a", 5).Ranges, span(0, 20, 0))
	b.wantAttempts(0, 20) // nothing was out
}

func TestPullingAgainDoesNotRenewALease(t *testing.T) {
	b := configured(t, 1, model.SubscriptionSettings{AckDeadline: 5 * time.Second})
	for range 10 {
		b.pull("a", 0, 3)
		b.keepAlive(time.Second, "a")
	}
	b.wantAttempts(2, 0)
	b.wantTries(b.pull("a", 0, 3).Ranges, try(0, 1, 3), try(1, 3, 1))
}

func TestExtension(t *testing.T) {
	b := configured(t, 1, model.SubscriptionSettings{AckDeadline: 5 * time.Second})
	d := b.pull("a", 1, 10)
	b.keepAlive(3*time.Second, "a")
	b.pull("a", 2, 10)
	extend := func(offset model.Offset, by time.Duration) call.AckResult {
		return must[*call.Acked](b, &call.ExtendLeases{Target: target(), Member: "a", Generation: d.Generation,
			Offsets: []call.PartitionOffset{{Offset: offset}}, Extension: by}).Results[0]
	}
	if r := extend(4, 20*time.Second); r.Err != nil {
		t.Fatal(r.Err)
	}
	b.keepAlive(4*time.Second, "a")
	b.wantAttempts(0, 10)
	b.keepAlive(time.Second, "a") // the second delivery's deadline, which was not extended
	b.wantAttempts(1, 10)
	b.wantAttempts(0, 0)
	if r := extend(12, 0); r.Err == nil || r.Err.Reason != model.ReasonFenced {
		t.Fatalf("an ended lease was extended: %+v", r)
	}
	b.wantTries(b.pull("a", 3, 1).Ranges, try(10, 11, 2))
	b.keepAlive(16*time.Second, "a")
	b.wantAttempts(1, 0)
	b.seek(0, 0)
	if r := extend(4, 0); r.Err == nil || r.Err.Reason != model.ReasonFenced {
		t.Fatalf("%+v", r)
	}
	b.fails(&call.ExtendLeases{Target: target(), Member: "a", Extension: time.Hour}, model.InvalidArgument, "")
	b.fails(&call.ExtendLeases{Target: target(), Member: "x"}, model.FailedPrecondition, model.ReasonFenced)
}

func TestNack(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 1, 10)
	b.single("a", d.Generation, 0, 6)
	b.nacked("a", d.Generation, 2*time.Second, 4)
	b.nacked("a", d.Generation, 0, 4, 8) // both are back already
	b.wantAttempts(1, 4)
	b.wantAttempts(0, 8)
	if g := b.grant("a", 2); len(g.Ranges) != 0 {
		t.Fatalf("no pause: %+v", g.Ranges)
	}
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 0, 4)) // what was not given back may be asked for
	b.acked("a", d.Generation, 0, 4, 4)
	b.keepAlive(2*time.Second, "a")
	b.wantTries(b.pull("a", 3, 10).Ranges, try(4, 5, 2), try(5, 6, 1), try(7, 14, 1))
	b.nacked("a", d.Generation, 0, 3, 6) // both are acked: nothing happens
	b.wantAttempts(0, 6)
	b.wantRanges(b.grant("a", 4).Ranges, span(0, 14, 0))
}

func TestNackVoidsTheRecordedAnswer(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 1, 10)
	b.nacked("a", d.Generation, time.Second, 7)
	b.wantRanges(b.grant("a", 1).Ranges, span(0, 0, 7))
	b.keepAlive(time.Second, "a")
	late := b.deliver("a", d.Generation, 1, span(0, 0, 7))
	b.wantRanges(late.Ranges, span(0, 0, 7))
	b.wantTries(b.pull("a", 2, 2).Ranges, try(7, 8, 2), try(8, 9, 1))
}

func TestBackoffGrows(t *testing.T) {
	b := configured(t, 1, model.SubscriptionSettings{MinBackoff: time.Second, MaxBackoff: 5 * time.Second})
	d := b.pull("a", 1, 3)
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		b.nacked("a", d.Generation, 0, 0)
		b.keepAlive(want-time.Millisecond, "a")
		if g := b.grant("a", 0); len(g.Ranges) != 0 {
			t.Fatalf("nack %d: given before %v were over", i+1, want)
		}
		b.Advance(time.Millisecond)
		b.wantTries(b.pull("a", 0, 1).Ranges, try(0, 1, uint32(i+2)))
	}
}

func TestNackFences(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 1, 10)
	if r := b.nack("a", d.Generation, 0, 12); r.Err == nil || r.Err.Reason != call.ReasonCheckEnd {
		t.Fatalf("never delivered: %+v", r)
	}
	if r := b.nack("b", d.Generation, 0, 3); r.Err == nil || r.Err.Reason != model.ReasonFenced {
		t.Fatalf("another's: %+v", r)
	}
	late := b.Call(&call.NackCursors{Target: target(), Member: "a", Generation: d.Generation,
		Offsets: []call.PartitionOffset{{Offset: 3}}})
	b.StepDown()
	b.Lead() // the entry is still under way
	b.seek(0, 0)
	if a := b.Answers[late]; a.Err == nil || a.Err.Reason != model.ReasonUnknownOutcome {
		t.Fatalf("%+v", a)
	}
	b.wantAttempts(0, 3) // a seek resets attempts
	if r := b.nack("a", d.Generation, 0, 3); r.Err == nil || r.Err.Reason != model.ReasonFenced {
		t.Fatalf("after the seek: %+v", r)
	}
	b.fails(&call.NackCursors{Target: target(), Member: "a"}, model.InvalidArgument, "")
	b.fails(&call.NackCursors{Target: target(), Member: "a", Delay: 2 * time.Hour,
		Offsets: []call.PartitionOffset{{}}}, model.InvalidArgument, "")
}

func TestDeathCountsAnAttemptAndLeavingDoesNot(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 1, 10)
	b.acked("a", d.Generation, 0, 2, 2)
	b.Advance(model.DefaultSessionTimeout) // without a word
	b.Settle()
	b.wantAttempts(1, 2)
	b.wantTries(b.pull("b", 1, 2).Ranges, try(2, 3, 2), try(3, 4, 1))
	must[*call.Empty](b, &call.Leave{Target: target(), Member: "b"})
	b.wantAttempts(1, 2)
	b.grant("c", 1)
	b.Advance(model.DefaultSessionTimeout) // was never given anything
	b.Settle()
	b.wantAttempts(1, 2)
}

func TestAttemptsSurviveAFailover(t *testing.T) {
	b := configured(t, 1, model.SubscriptionSettings{AckDeadline: 5 * time.Second})
	d := b.pull("a", 1, 10)
	b.nacked("a", d.Generation, 0, 0)
	b.keepAlive(4*time.Second, "a")
	b.pull("a", 2, 10)
	b.keepAlive(4*time.Second, "a")
	b.failover()
	b.wantTries(b.pull("a", 3, 2).Ranges, try(0, 1, 2), try(1, 2, 1)) // its deadline starts now
	b.keepAlive(4*time.Second, "a")
	b.wantAttempts(1, 0)
	b.keepAlive(time.Second, "a")
	b.wantAttempts(2, 0)
}

// Near its last attempt a message goes out alone, so that it takes no neighbour along.
func TestRangesShrinkNearTheLimit(t *testing.T) {
	b := configured(t, 1, model.SubscriptionSettings{MaxAttempts: 4, DeadLetterTopic: "dead",
		MinBackoff: time.Millisecond})
	d := b.pull("a", 0, 10)
	b.acked("a", d.Generation, 0, 1, 1)
	for range 2 {
		b.nacked("a", d.Generation, 0, 3)
		b.Advance(time.Second)
		b.pull("a", 0, 10)
	}
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 1, 3))
	b.acked("a", d.Generation, 0, 3, 3)
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 3, 4))
	b.wantTries(b.pull("a", 0, 10).Ranges, try(3, 4, 3))
}
