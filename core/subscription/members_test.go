package subscription

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

func TestJoinAndLeaveMoveFew(t *testing.T) {
	b := newBench(t, 10)
	b.config.MaxMembers = 8
	for k := 1; k <= 6; k++ {
		before := b.owners()
		b.grant(model.MemberID(fmt.Sprint("m", k)), 0)
		b.Settle()
		b.wantBalance(k)
		if moved := moves(before, b.owners()); k > 1 && moved != 10/k {
			t.Fatalf("join number %d moved %d partitions; want %d", k, moved, 10/k)
		}
	}
	before := b.owners()
	must[*call.Empty](b, &call.Leave{Target: target(), Member: "m3"})
	b.wantBalance(5)
	for p, o := range b.owners() {
		if before[p] != "m3" && o != before[p] {
			t.Fatalf("partition %d moved from %s to %s, who stayed", p, before[p], o)
		}
	}
	must[*call.Empty](b, &call.Leave{Target: target(), Member: "m3"}) // again: nothing to do
}

func moves(before, after []model.MemberID) (n int) {
	for i := range before {
		if before[i] != after[i] {
			n++
		}
	}
	return n
}

func (b *bench) wantBalance(members int) {
	b.Helper()
	low, high := 1<<30, 0
	counts := b.counts()
	for _, m := range b.view().Members {
		low, high = min(low, counts[m.ID]), max(high, counts[m.ID])
	}
	if len(b.view().Members) != members || counts[""] != 0 || high-low > 1 {
		b.Fatalf("%d members, partitions per owner %v", len(b.view().Members), counts)
	}
}

func TestMoreMembersThanPartitions(t *testing.T) {
	b := newBench(t, 2)
	for _, m := range []model.MemberID{"a", "b", "c"} {
		b.grant(m, 0)
	}
	b.wantBalance(3)
	if g := b.grant("c", 0); len(g.Ranges) != 0 {
		t.Fatalf("%+v", g)
	}
	must[*call.Empty](b, &call.Leave{Target: target(), Member: "a"})
	if g := b.grant("c", 0); len(g.Ranges) != 1 {
		t.Fatalf("%+v", g)
	}
}

func TestHolderFinishesFirst(t *testing.T) {
	b := newBench(t, 2)
	d := b.pull("a", 1, 10)
	b.grant("b", 0)
	b.Settle()
	if n := b.counts()["a"]; n != 2 {
		t.Fatalf("a holds %d: a partition was taken from under it", n)
	}
	g := b.grant("a", 2)
	if len(g.Ranges) != 1 {
		t.Fatalf("more of a partition that is to go: %+v", g.Ranges)
	}
	stays, goes := g.Ranges[0].Partition, 1-g.Ranges[0].Partition
	if got := b.deliver("a", d.Generation, 2, span(goes, 10, 20)); len(got.Ranges) != 0 {
		t.Fatalf("delivered %+v of it", got.Ranges)
	}
	b.acked("a", d.Generation, goes, 6, 6)
	if n := b.counts()["a"]; n != 2 {
		t.Fatal("given away before all was acked")
	}
	b.acked("a", d.Generation, goes, 10, 10)
	b.Settle()
	if o := b.owners(); o[goes] != "b" || o[stays] != "a" {
		t.Fatalf("owners %v", o)
	}
	b.acked("a", d.Generation, stays, 3, 3) // an ack across the rebalance
	b.fenced("a", d.Generation, goes, 10)
	b.wantRanges(b.grant("b", 0).Ranges, span(goes, 10, 0))
}

func TestAckDeadlineEndsTheWait(t *testing.T) {
	b := newBench(t, 2)
	b.settings.AckDeadline = 2 * time.Second
	b.create()
	b.pull("a", 0, 10)
	b.grant("b", 0)
	b.Advance(1900 * time.Millisecond)
	b.Settle()
	if n := b.counts()["b"]; n != 0 {
		t.Fatal("taken before the deadline")
	}
	b.Advance(200 * time.Millisecond)
	b.Settle()
	b.wantBalance(2)
}

func TestHolderKeepsWhatNobodyNeedsAnyMore(t *testing.T) {
	b := newBench(t, 2)
	b.pull("a", 0, 10)
	b.grant("b", 0)
	must[*call.Empty](b, &call.Leave{Target: target(), Member: "b"})
	if g := b.grant("a", 0); len(g.Ranges) != 2 {
		t.Fatalf("%+v", g)
	}
}

func TestSessionEnds(t *testing.T) {
	b := newBench(t, 4)
	d := b.pull("a", 1, 10)
	b.grant("b", 0)
	for range 3 { // b lives by heartbeats, pulls, deliveries and acks; a is gone
		b.Advance(4 * time.Second)
		must[*call.Empty](b, &call.Heartbeat{Target: target(), Member: "b"})
		b.Settle()
	}
	v := b.view()
	if len(v.Members) != 1 || v.Members[0].ID != "b" || b.counts()["b"] != 4 {
		t.Fatalf("%+v", v)
	}
	b.fenced("a", d.Generation, 0, 1)
	b.fails(&call.Heartbeat{Target: target(), Member: "a"}, model.FailedPrecondition, model.ReasonFenced)
	if d := b.deliver("a", d.Generation, 1, span(0, 0, 10)); len(d.Ranges) != 0 {
		t.Fatalf("%+v", d)
	}
	b.grant("a", 9) // back as a new member, with whatever number
	b.wantBalance(2)
}

func TestEverySignRenewsTheSession(t *testing.T) {
	signs := map[string]func(b *bench, g model.Generation){
		"grant":     func(b *bench, _ model.Generation) { b.grant("a", 0) },
		"deliver":   func(b *bench, g model.Generation) { b.deliver("a", g, 0) },
		"ack":       func(b *bench, g model.Generation) { b.ack("a", g, 0, 0) },
		"heartbeat": func(b *bench, _ model.Generation) { b.Do(&call.Heartbeat{Target: target(), Member: "a"}) },
	}
	for name, sign := range signs {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			g := b.grant("a", 0).Generation
			b.Advance(9 * time.Second)
			sign(b, g)
			b.Advance(9 * time.Second)
			b.Settle()
			if len(b.view().Members) != 1 {
				t.Fatal("the session ended all the same")
			}
			b.Advance(time.Second)
			b.Settle()
			if len(b.view().Members) != 0 {
				t.Fatal("the session does not end")
			}
		})
	}
}

func TestStaticRestartMovesNothing(t *testing.T) {
	b := newBench(t, 4)
	join := func(m model.MemberID) *call.Granted {
		return must[*call.Granted](b, &call.Grant{Target: target(), Member: m, Static: true, PullSequence: 1})
	}
	join("a")
	join("b")
	b.Settle()
	before := b.view()
	b.Advance(9 * time.Second)
	must[*call.Empty](b, &call.Heartbeat{Target: target(), Member: "b"})
	g := join("a") // restarted within the timeout
	b.Settle()
	if after := b.view(); after.Generation != before.Generation || !slices.Equal(after.Partitions, before.Partitions) {
		t.Fatalf("%+v became %+v", before, after)
	}
	if len(g.Ranges) != 2 || !b.view().Members[0].Static {
		t.Fatalf("%+v", g)
	}
	must[*call.Empty](b, &call.Leave{Target: target(), Member: "a"}) // leaving ends it at once
	b.wantBalance(1)
}

func TestFailoverGivesFullTimeouts(t *testing.T) {
	b := newBench(t, 2)
	b.grant("a", 0)
	b.Advance(9 * time.Second)
	b.failover()
	b.Advance(9 * time.Second)
	b.Settle()
	if len(b.view().Members) != 1 {
		t.Fatal("ended before a full timeout under the new leader")
	}
	b.Advance(time.Second)
	b.Settle()
	if len(b.view().Members) != 0 {
		t.Fatal("not ended")
	}
}

// After a failover nobody knows what the holder still works on: it keeps its
// partitions, and gets more of them, until its ack deadline has passed.
func TestFailoverKeepsHolders(t *testing.T) {
	b := newBench(t, 2)
	b.pull("a", 0, 10)
	b.failover()
	b.grant("b", 0)
	b.Settle()
	if b.counts()["a"] != 2 || len(b.grant("a", 0).Ranges) != 2 {
		t.Fatalf("owners %v", b.owners())
	}
	for range 8 {
		b.Advance(4 * time.Second)
		b.grant("a", 0)
		b.grant("b", 0)
		b.Settle()
	}
	b.wantBalance(2)
}

func TestMemberLimit(t *testing.T) {
	b := newBench(t, 1)
	for i := range b.config.MaxMembers {
		b.grant(model.MemberID(fmt.Sprint("m", i)), 0)
	}
	err := b.fails(&call.Grant{Target: target()}, model.ResourceExhausted, model.ReasonThrottled)
	if err.RetryAfter <= 0 {
		t.Fatal("no retry hint")
	}
	b.grant("m0", 0)
}

func TestManyJoinsShareEntries(t *testing.T) {
	b := newBench(t, 8)
	b.grant("m0", 0)
	before := b.Proposals
	var refs []group.Ref
	for i := range b.config.MaxMembers {
		refs = append(refs, b.Call(&call.Grant{Target: target(), Member: model.MemberID(fmt.Sprint("m", i))}))
	}
	b.Settle()
	for _, ref := range refs {
		if a, ok := b.Answers[ref]; !ok || a.Err != nil {
			t.Fatalf("%+v", a)
		}
	}
	b.wantBalance(8)
	if n := b.Proposals - before; n > 5 {
		t.Fatalf("%d entries", n)
	}
}

func TestPartitionsAdded(t *testing.T) {
	b := newBench(t, 1)
	b.create(50)
	b.grant("a", 0)
	b.putTopic(3)
	b.Host.Machine.CatalogChanged(b.Host)
	b.Settle()
	b.wantBalance(1)
	g := b.grant("a", 0)
	if len(g.Ranges) != 3 || !slices.Contains(g.Ranges, call.Range{Partition: 2, Attempt: 1}) {
		t.Fatalf("%+v", g.Ranges)
	}
	b.putTopic(5) // seen by a request before the leader was told
	b.grant("a", 0)
	b.Settle()
	if g := b.grant("a", 0); len(g.Ranges) != 5 {
		t.Fatalf("%+v", g.Ranges)
	}
}

func TestDeletedAndCreatedAgain(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 0, 10)
	b.acked("a", d.Generation, 0, 10, 10)
	b.Cat.DeleteSubscription(ref)
	b.create(3)
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 3, 0)) // nothing of the old one
	b.Host.Machine.CatalogChanged(b.Host)
	b.Settle()
	n := 0
	b.machine().Each(func(model.SubscriptionID, View) { n++ })
	if n != 1 {
		t.Fatalf("%d subscriptions", n)
	}
	b.Cat.DeleteSubscription(ref)
	b.Host.Machine.CatalogChanged(b.Host)
	b.fails(&call.Grant{Target: target(), Member: "a"}, model.NotFound, "")
	b.Settle()
	b.machine().Each(func(id model.SubscriptionID, _ View) { t.Fatalf("subscription %d is left", id) })
}

// A catalog older than the one that created a subscription must not drop it.
func TestOldCatalogDropsNothing(t *testing.T) {
	b := newBench(t, 1)
	b.grant("a", 0)
	version := b.Cat.V
	b.Cat.DeleteSubscription(ref)
	b.Cat.V = version - 1
	b.Host.Machine.CatalogChanged(b.Host)
	b.Settle()
	if b.view().Generation == 0 {
		t.Fatal("dropped")
	}
	b.Cat.V = version + 1
	b.Host.Machine.CatalogChanged(b.Host)
	b.Settle()
	if b.view().Generation != 0 {
		t.Fatal("not dropped")
	}
}

func TestRaftTakesNothing(t *testing.T) {
	b := newBench(t, 2)
	d := b.pull("a", 0, 10)
	b.DropProposals = true
	ack := &call.AckCursors{Target: target(), Member: "a", Generation: d.Generation,
		UpTo: []call.PartitionOffset{{Offset: 1}}}
	b.fails(ack, model.ResourceExhausted, model.ReasonThrottled)
	b.fails(&call.MoveCursors{Target: target(), To: []call.PartitionOffset{{}}},
		model.ResourceExhausted, model.ReasonThrottled)
	join := b.Call(&call.Grant{Target: target(), Member: "b"})
	b.Advance(time.Second)
	b.DropProposals = false
	b.Advance(time.Second)
	b.Settle()
	if a, ok := b.Answers[join]; !ok || a.Err != nil {
		t.Fatalf("%+v", a)
	}
	b.acked("a", d.Generation, 0, 1, 1)
}

func TestWaitingIsBounded(t *testing.T) {
	b := newBench(t, 1)
	var refs []group.Ref
	for range b.config.Waiting {
		refs = append(refs, b.Call(&call.Describe{Target: target()}))
	}
	b.fails(&call.Describe{Target: target()}, model.ResourceExhausted, model.ReasonThrottled)
	b.Host.Cancel(refs[0])
	b.Settle()
	if must[*call.Description](b, &call.Describe{Target: target()}).Generation != 1 {
		t.Fatal("not served again")
	}
	if _, ok := b.Answers[refs[0]]; ok {
		t.Fatal("a cancelled request was answered")
	}
	if l := b.machine().lead; len(l.waits) != 0 || len(l.pending) != 0 {
		t.Fatalf("%d requests, %d proposals left", len(l.waits), len(l.pending))
	}
}

func TestCancelWhileParked(t *testing.T) {
	b := newBench(t, 1)
	parked := b.Call(&call.Grant{Target: target(), Member: "a"})
	b.Host.Cancel(parked)
	b.Settle()
	b.grant("a", 0)
	if ls := b.machine().lead.subscriptions[b.nextID]; len(ls.parked) != 0 || ls.busy != 0 {
		t.Fatalf("%+v", ls)
	}
}

// While a member's end is under way nothing more goes out to it: the next owner
// will get it.
func TestNothingGoesOutToWhoLeaves(t *testing.T) {
	b := newBench(t, 1)
	g := b.grant("a", 1)
	b.Call(&call.Leave{Target: target(), Member: "a"})
	late := b.Call(&call.Deliver{Target: target(), Member: "a", Generation: g.Generation, PullSequence: 1,
		Ranges: []call.Range{span(0, 0, 5)}})
	b.FinishIndexes()
	if d := b.Answers[late].Resp.(*call.Delivered); len(d.Ranges) != 0 {
		t.Fatalf("%+v went out", d.Ranges)
	}
	b.fails(&call.Heartbeat{Target: target(), Member: "a"}, model.FailedPrecondition, model.ReasonFenced)
	again := b.Call(&call.Grant{Target: target(), Member: "a", PullSequence: 1})
	if _, ok := b.Answers[again]; ok {
		t.Fatal("granted to a session that ends")
	}
	b.Settle() // then it is a new member
	if a := b.Answers[again]; a.Err != nil || len(a.Resp.(*call.Granted).Ranges) != 1 {
		t.Fatalf("%+v", a)
	}
	if v := b.view(); v.Members[0].Joined != 2 {
		t.Fatalf("%+v", v)
	}
}

func TestJoinAskedTwiceIsOneEntry(t *testing.T) {
	b := newBench(t, 2)
	b.grant("a", 0)
	before := b.Proposals
	b.Call(&call.Grant{Target: target(), Member: "b"})
	b.Call(&call.Grant{Target: target(), Member: "b"}) // while the join is under way
	b.Settle()
	if n := b.Proposals - before; n != 2 { // the join and the assignment
		t.Fatalf("%d entries", n)
	}
}

// A skip its owner was not told of is told to the next one.
func TestSkipOutlivesItsOwner(t *testing.T) {
	b := newBench(t, 1)
	g := b.grant("a", 0)
	b.Call(&call.Deliver{Target: target(), Member: "a", Generation: g.Generation,
		Skips: []call.Range{span(0, 0, 100)}})
	b.Settle()
	must[*call.Empty](b, &call.Leave{Target: target(), Member: "a"})
	if g := b.grant("b", 0); len(g.Skipped) != 1 || g.Skipped[0] != span(0, 0, 100) {
		t.Fatalf("%+v", g)
	}
	b.seek(0, 200) // a new beginning
	if g := b.grant("b", 0); len(g.Skipped) != 0 {
		t.Fatalf("%+v", g)
	}
}

// Deadlines and timeouts of the definition hold within their limits.
func TestTimesAreClamped(t *testing.T) {
	b := newBench(t, 1)
	b.settings.SessionTimeout = time.Millisecond
	b.create()
	b.grant("a", 0)
	b.Advance(900 * time.Millisecond)
	b.Settle()
	if len(b.view().Members) != 1 {
		t.Fatal("ended within a second")
	}
	b.Advance(100 * time.Millisecond)
	b.Settle()
	if len(b.view().Members) != 0 {
		t.Fatal("not ended")
	}
}
