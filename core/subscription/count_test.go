package subscription

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// sendNack calls a nack of one offset without waiting for what becomes of it.
func (b *bench) sendNack(m model.MemberID, g model.Generation, o model.Offset) group.Ref {
	return b.Call(&call.NackCursors{Target: target(), Member: m, Generation: g, Delay: time.Millisecond,
		Offsets: []call.PartitionOffset{{Offset: o}}, Ends: []call.PartitionOffset{{Offset: 1 << 40}}})
}

// A delivery that ends in two ways at once, each under way before the other is
// applied, counts one attempt.
func TestADeliveryCountsOnce(t *testing.T) {
	const deadline = 5 * time.Second
	for name, end := range map[string]func(*bench, model.Generation){
		"deadline and death": func(b *bench, _ model.Generation) { b.Advance(deadline) },
		"nack and nack": func(b *bench, g model.Generation) {
			b.sendNack("a", g, 0)
			b.sendNack("a", g, 0)
		},
		"nack, deadline and death": func(b *bench, g model.Generation) {
			b.sendNack("a", g, 0)
			b.Advance(deadline)
		},
		"deadline, death and nack": func(b *bench, g model.Generation) {
			b.Advance(deadline)
			b.sendNack("a", g, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := configured(t, 1, model.SubscriptionSettings{AckDeadline: deadline, SessionTimeout: deadline,
				MaxAttempts: 2, DeadLetterTopic: "dead"})
			end(b, b.pull("a", 0, 3).Generation)
			if b.Pending() < 2 {
				t.Fatalf("%d entries are under way", b.Pending())
			}
			b.Settle()
			b.wantAttempts(1, 0)
			b.Advance(time.Second)
			b.wantTries(b.pull("a", 0, 3).Ranges, try(0, 1, 2))
		})
	}
}

// What counts no attempt any more takes nothing back that was given since.
func TestASecondEndTakesNothingBack(t *testing.T) {
	b := configured(t, 1, model.SubscriptionSettings{MinBackoff: time.Millisecond})
	g := b.pull("a", 1, 3).Generation
	first, second := b.sendNack("a", g, 0), b.sendNack("a", g, 0)
	b.Commit(1)
	b.Advance(time.Second)
	if b.Answers[first].Resp == nil || b.Answers[second].Resp != nil {
		t.Fatal("not the first of the two was applied")
	}
	grant := b.Call(&call.Grant{Target: target(), Member: "a", PullSequence: 2})
	if b.Answers[grant].Resp == nil {
		t.Fatal("no grant")
	}
	deliver := b.Call(&call.Deliver{Target: target(), Member: "a", Generation: g, PullSequence: 2,
		Ranges: []call.Range{span(0, 0, 3)}})
	b.FinishIndexes()
	b.wantTries(b.Answers[deliver].Resp.(*call.Delivered).Ranges, try(0, 1, 2), try(1, 3, 1))
	b.Settle()
	b.wantAttempts(1, 0)
	if a := b.Answers[second]; a.Err != nil || a.Resp.(*call.Acked).Results[0].Err != nil {
		t.Fatalf("%+v", a)
	}
	b.wantRanges(b.pull("a", 3, 3).Ranges, span(0, 3, 6))
}

// What an earlier leader gave is given back once, too.
func TestANackOfAnEarlierLeadersDeliveryCountsOnce(t *testing.T) {
	b := newBench(t, 1)
	g := b.pull("a", 0, 10).Generation
	b.failover()
	for _, o := range []model.Offset{5, 5, 3, 3, 5} {
		b.sendNack("a", g, o)
		b.Settle()
	}
	b.wantAttempts(1, 5)
	b.wantAttempts(1, 3)
	b.Advance(time.Second)
	b.wantTries(b.pull("a", 0, 10).Ranges, try(0, 3, 1), try(3, 4, 2), try(4, 5, 1), try(5, 6, 2), try(6, 10, 1))
	b.sendNack("a", g, 5)
	b.Settle()
	b.wantAttempts(2, 5)
}
