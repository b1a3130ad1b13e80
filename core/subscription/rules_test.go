package subscription

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func TestFirstTouchTakesTheDefinitionOver(t *testing.T) {
	b := newBench(t, 3)
	b.create(5, 7)
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 5, 0), span(1, 7, 0), span(2, 0, 0))
	if v := b.view(); v.Generation != 2 || v.Partitions[0].Fence != 2 || v.Ref != ref {
		t.Fatalf("view %+v", v)
	}
}

func TestUnknownSubscription(t *testing.T) {
	b := newBench(t, 1)
	b.fails(&call.Grant{Target: call.Target{Subscription: "orders/none"}}, model.NotFound, "")
	b.fails(&call.Grant{Target: call.Target{Subscription: "orders"}}, model.InvalidArgument, "")
	err := b.fails(&call.Grant{Target: call.Target{Subscription: "orders/none", MapVersion: b.Cat.V + 1}},
		model.Unavailable, model.ReasonStaleMap)
	if err.RetryAfter <= 0 {
		t.Fatal("no retry hint")
	}
}

func TestFreshMemberGetsAnID(t *testing.T) {
	b := newBench(t, 2)
	g := b.grant("", 0)
	if model.ValidateName("member", string(g.Member)) != nil || len(g.Ranges) != 2 {
		t.Fatalf("%+v", g)
	}
	if again := b.grant("", 0); again.Member == g.Member {
		t.Fatal("the same id twice")
	}
	b.fails(&call.Grant{Target: target(), Member: "No Name"}, model.InvalidArgument, "")
}

func TestPullWithoutSequenceStartsAtTheCursor(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 0, 10)
	b.wantRanges(d.Ranges, span(0, 0, 10))
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 0, 0))
	b.acked("a", d.Generation, 0, 4, 4)
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 4, 0))
	b.acked("a", d.Generation, 0, 2, 4) // older: succeeds, changes nothing
	b.acked("a", d.Generation, 0, 10, 10)
}

func TestPullSequence(t *testing.T) {
	b := newBench(t, 1)
	b.wantRanges(b.pull("a", 1, 10).Ranges, span(0, 0, 10))
	g := b.grant("a", 1) // the answer was lost
	if !g.Replay {
		t.Fatal("not a replay")
	}
	b.wantRanges(g.Ranges, span(0, 0, 10))
	b.wantRanges(b.pull("a", 1, 3).Ranges, span(0, 0, 10))
	b.wantRanges(b.pull("a", 2, 5).Ranges, span(0, 10, 15)) // ahead of the cursor
	b.fails(&call.Grant{Target: target(), Member: "a", PullSequence: 4}, model.InvalidArgument, "")
	b.fails(&call.Grant{Target: target(), Member: "a", PullSequence: 7}, model.InvalidArgument, "")
	g = b.grant("a", 3) // never delivered: asked for again, it is a fresh one
	b.wantRanges(g.Ranges, span(0, 15, 0))
	g = b.grant("a", 3)
	b.wantRanges(g.Ranges, span(0, 15, 0))
	b.acked("a", g.Generation, 0, 12, 12)
	b.wantRanges(b.grant("a", 1).Ranges, span(0, 12, 0)) // a fresh client
}

func TestReplayLeavesOutWhatIsAcked(t *testing.T) {
	b := newBench(t, 2)
	d := b.pull("a", 1, 10)
	b.acked("a", d.Generation, 0, 4, 4)
	b.acked("a", d.Generation, 1, 10, 10)
	g := b.grant("a", 1)
	b.wantRanges(g.Ranges, span(0, 4, 10))
	b.wantRanges(b.deliver("a", g.Generation, 1, g.Ranges...).Ranges, span(0, 4, 10))
	b.wantRanges(b.grant("a", 2).Ranges, span(0, 10, 0), span(1, 10, 0))
}

func TestOvertakenDeliveryIsRefused(t *testing.T) {
	b := newBench(t, 1)
	g := b.grant("a", 1)
	b.deliver("a", g.Generation, 1, span(0, 0, 5))
	late := &call.Deliver{Target: target(), Member: "a", Generation: g.Generation, PullSequence: 1,
		Ranges: []call.Range{span(0, 0, 4)}}
	b.fails(late, model.Unavailable, "")
	b.wantRanges(b.deliver("a", g.Generation, 1, span(0, 0, 5)).Ranges, span(0, 0, 5)) // a retry is not
	b.grant("a", 2)
	b.fails(late, model.Unavailable, "")
	b.wantRanges(b.grant("a", 2).Ranges, span(0, 5, 0))
}

func TestFailoverForgetsPositions(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 1, 10)
	b.pull("a", 2, 10)
	b.acked("a", d.Generation, 0, 3, 3)
	g := b.grant("a", 3)
	b.failover()
	b.fails(&call.Deliver{Target: target(), Member: "a", Generation: g.Generation, PullSequence: 3,
		Ranges: []call.Range{span(0, 20, 30)}}, model.Unavailable, "")
	b.wantRanges(b.pull("a", 4, 5).Ranges, span(0, 3, 8)) // unknown number: from the cursor
	b.wantRanges(b.grant("a", 5).Ranges, span(0, 8, 0))
	// What the earlier leader delivered may be acked, against the log's end.
	r := b.ack("a", d.Generation, 0, 20)
	if r.Err == nil || r.Err.Reason != call.ReasonCheckEnd {
		t.Fatalf("%+v", r)
	}
	b.acked("a", d.Generation, 0, 8, 8)
	withEnd := func(next, end model.Offset) call.AckResult {
		return must[*call.Acked](b, &call.AckCursors{Target: target(), Member: "a", Generation: d.Generation,
			UpTo: []call.PartitionOffset{{Offset: next}}, Ends: []call.PartitionOffset{{Offset: end}}}).Results[0]
	}
	if r := withEnd(21, 20); r.Err == nil || r.Err.Code != model.InvalidArgument {
		t.Fatalf("ack above the end: %+v", r)
	}
	if r := withEnd(20, 20); r.Err != nil || r.Cursor != 20 {
		t.Fatalf("ack up to the end: %+v", r)
	}
}

func TestAckFences(t *testing.T) {
	b := newBench(t, 2)
	d := b.pull("a", 0, 10)
	b.fenced("b", d.Generation, 0, 1)
	b.fenced("a", d.Generation-1, 0, 1)
	b.fenced("a", d.Generation+9, 0, 1) // one that never was
	seek := b.seek(0, 2)
	if seek != d.Generation+1 {
		t.Fatalf("seek gave generation %d after %d", seek, d.Generation)
	}
	b.fenced("a", d.Generation, 0, 9)
	b.acked("a", d.Generation, 1, 9, 9) // the other partition is not disturbed
	if v := b.view(); v.Partitions[0] != (PartitionView{Cursor: 2, Owner: "a", Fence: seek}) {
		t.Fatalf("%+v", v)
	}
	both := must[*call.Acked](b, &call.AckCursors{Target: target(), Member: "a", Generation: d.Generation,
		UpTo: []call.PartitionOffset{{Partition: 1, Offset: 10}, {Partition: 7}, {Partition: 0, Offset: 3}}})
	r := both.Results
	if len(r) != 3 || r[0].Err != nil || r[0].Cursor != 10 || r[1].Err.Code != model.InvalidArgument ||
		r[2].Err.Reason != model.ReasonFenced || r[2].Partition != 0 {
		t.Fatalf("%+v", r)
	}
	b.fails(&call.AckCursors{Target: target(), Member: "a"}, model.InvalidArgument, "")
}

func TestSeekRacesAnAck(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 1, 10)
	move := b.Call(&call.MoveCursors{Target: target(), To: []call.PartitionOffset{{Offset: 0}}})
	ack := b.Call(&call.AckCursors{Target: target(), Member: "a", Generation: d.Generation,
		UpTo: []call.PartitionOffset{{Offset: 10}}})
	b.Settle()
	r := b.Answers[ack].Resp.(*call.Acked).Results[0]
	if b.Answers[move].Err != nil || r.Err == nil || r.Err.Reason != model.ReasonFenced || r.Cursor != 0 {
		t.Fatalf("%+v %+v", b.Answers[move], r)
	}
	b.wantRanges(b.grant("a", 2).Ranges, span(0, 0, 0)) // the position is void, too
}

func TestSeekVoidsTheRecordedAnswer(t *testing.T) {
	b := newBench(t, 2)
	b.pull("a", 1, 10)
	b.seek(1, 3)
	g := b.grant("a", 1)
	b.wantRanges(g.Ranges, span(0, 0, 10))
	late := b.deliver("a", g.Generation-1, 1, span(0, 0, 10), span(1, 0, 10))
	b.wantRanges(late.Ranges, span(0, 0, 10))
	b.wantRanges(b.grant("a", 2).Ranges, span(0, 10, 0), span(1, 3, 0))
	b.fails(&call.MoveCursors{Target: target()}, model.InvalidArgument, "")
	b.fails(&call.MoveCursors{Target: target(), To: []call.PartitionOffset{{}, {}}}, model.InvalidArgument, "")
	b.fails(&call.MoveCursors{Target: target(), To: []call.PartitionOffset{{Partition: 2}}}, model.InvalidArgument, "")
}

func TestSingleOffsets(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 0, 10)
	single := func(offsets ...model.Offset) call.AckResult {
		req := &call.AckCursors{Target: target(), Member: "a", Generation: d.Generation}
		for _, o := range offsets {
			req.Offsets = append(req.Offsets, call.PartitionOffset{Offset: o})
		}
		return must[*call.Acked](b, req).Results[0]
	}
	if r := single(1, 0, 2); r.Err != nil || r.Cursor != 3 {
		t.Fatalf("%+v", r)
	}
	if r := single(0); r.Err != nil || r.Cursor != 3 {
		t.Fatalf("%+v", r)
	}
	if r := single(8, 5, 6); r.Err != nil || r.Cursor != 3 { // ahead of the cursor: it waits
		t.Fatalf("%+v", r)
	}
	if r := single(11); r.Err == nil || r.Err.Reason != call.ReasonCheckEnd {
		t.Fatalf("above what was delivered: %+v", r)
	}
	if r := single(3, 4); r.Err != nil || r.Cursor != 7 { // and goes over what is acked
		t.Fatalf("%+v", r)
	}
	if p := b.view().Partitions[0]; p.Cursor != 7 || p.Acked != 1 {
		t.Fatalf("%+v", p)
	}
}

func TestAcksShareAnEntry(t *testing.T) {
	b := newBench(t, 4)
	d := b.pull("a", 0, 10)
	before := b.Proposals
	var refs []uint64
	for p := range model.Partition(4) {
		refs = append(refs, uint64(b.Call(&call.AckCursors{Target: target(), Member: "a", Generation: d.Generation,
			UpTo: []call.PartitionOffset{{Partition: p, Offset: 10}}})))
	}
	if len(b.Answers) == 0 || b.Proposals != before+1 {
		t.Fatalf("%d entries under way", b.Proposals-before)
	}
	b.Settle()
	if b.Proposals != before+2 {
		t.Fatalf("%d entries for %d acks", b.Proposals-before, len(refs))
	}
	for p, part := range b.view().Partitions {
		if part.Cursor != 10 {
			t.Fatalf("partition %d: cursor %d", p, part.Cursor)
		}
	}
}

func TestSkip(t *testing.T) {
	b := newBench(t, 1)
	g := b.grant("a", 1)
	req := &call.Deliver{Target: target(), Member: "a", Generation: g.Generation, PullSequence: 1,
		Ranges: []call.Range{span(0, 100, 110)}, Skips: []call.Range{span(0, 0, 100)}}
	d := must[*call.Delivered](b, req)
	b.wantRanges(d.Ranges, span(0, 100, 110))
	if len(d.Skipped) != 1 || d.Skipped[0] != span(0, 0, 100) {
		t.Fatalf("skipped %+v", d.Skipped)
	}
	if again := b.grant("a", 1); len(again.Skipped) != 1 { // not confirmed yet
		t.Fatalf("%+v", again)
	}
	if next := b.grant("a", 2); len(next.Skipped) != 0 {
		t.Fatalf("%+v", next)
	}
	req.PullSequence, req.Skips[0].To, req.Ranges = 2, 50, nil
	if d := must[*call.Delivered](b, req); len(d.Skipped) != 0 || b.view().Partitions[0].Cursor != 100 {
		t.Fatalf("a skip moved the cursor down: %+v", d) // only upwards
	}
}

// A delivery that only skips does not end its pull: it goes on from there at once.
func TestPullGoesOnAfterASkip(t *testing.T) {
	b := newBench(t, 1)
	g := b.grant("a", 1)
	d := must[*call.Delivered](b, &call.Deliver{Target: target(), Member: "a", Generation: g.Generation, PullSequence: 1,
		Skips: []call.Range{span(0, 0, 100)}})
	if len(d.Ranges) != 0 || len(d.Skipped) != 1 {
		t.Fatalf("%+v", d)
	}
	b.wantRanges(b.grant("a", 1).Ranges, span(0, 100, 0))
	b.wantRanges(b.deliver("a", g.Generation, 1, span(0, 100, 110)).Ranges, span(0, 100, 110))
}

func TestRangesRotate(t *testing.T) {
	b := newBench(t, 3)
	firsts := map[model.Partition]int{}
	for range 6 {
		g := b.grant("a", 0)
		first := g.Ranges[0]
		first.To = first.From + 1
		b.deliver("a", g.Generation, 0, first)
		firsts[first.Partition]++
	}
	for p := range model.Partition(3) {
		if firsts[p] != 2 {
			t.Fatalf("how often each partition came first: %v", firsts)
		}
	}
}

func TestDescribe(t *testing.T) {
	b := newBench(t, 2)
	d := b.pull("a", 0, 10)
	b.acked("a", d.Generation, 0, 4, 4)
	b.Advance(3 * time.Second)
	v := must[*call.Description](b, &call.Describe{Target: target()})
	if len(v.Members) != 1 || v.Members[0].IdleFor != int64(3*time.Second) || len(v.Members[0].Partitions) != 2 {
		t.Fatalf("%+v", v)
	}
	want := call.CursorState{Partition: 0, Cursor: 4, Owner: "a", Fence: 2, Leased: 6}
	if v.Cursors[0] != want || v.Generation != 2 {
		t.Fatalf("%+v", v)
	}
}

func TestNoLeadership(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 0, 10)
	ack := b.Call(&call.AckCursors{Target: target(), Member: "a", Generation: d.Generation,
		UpTo: []call.PartitionOffset{{Offset: 1}}})
	queued := b.Call(&call.AckCursors{Target: target(), Member: "a", Generation: d.Generation,
		UpTo: []call.PartitionOffset{{Offset: 2}}})
	join := b.Call(&call.Grant{Target: target(), Member: "b"})
	describe := b.Call(&call.Describe{Target: target()})
	b.StepDown()
	for r, reason := range map[uint64]model.Reason{uint64(ack): model.ReasonUnknownOutcome,
		uint64(queued): model.ReasonNotLeader, uint64(join): model.ReasonUnknownOutcome,
		uint64(describe): model.ReasonNotLeader} {
		for ref, a := range b.Answers {
			if uint64(ref) == r && (a.Err == nil || a.Err.Reason != reason) {
				t.Errorf("request %d: %v; want %s", r, a.Err, reason)
			}
		}
	}
	if len(b.Answers) < 4 {
		t.Fatal("requests were left without an answer")
	}
	b.fails(&call.Grant{Target: target()}, model.FailedPrecondition, model.ReasonNotLeader)
	b.Lose()
	b.Lead()
	b.acked("a", d.Generation, 0, 0, 0)
}
