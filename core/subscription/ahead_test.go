package subscription

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// single acks messages one by one.
func (b *bench) single(
	m model.MemberID, g model.Generation, p model.Partition, offsets ...model.Offset,
) call.AckResult {
	b.Helper()
	req := &call.AckCursors{Target: target(), Member: m, Generation: g,
		Ends: []call.PartitionOffset{{Partition: p, Offset: 1 << 40}}}
	for _, o := range offsets {
		req.Offsets = append(req.Offsets, call.PartitionOffset{Partition: p, Offset: o})
	}
	return must[*call.Acked](b, req).Results[0]
}

func TestPullsLeaveOutWhatIsAckedAhead(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 0, 10)
	b.single("a", d.Generation, 0, 0, 1, 4, 5, 8, 9)
	g := b.grant("a", 0)
	b.wantRanges(g.Ranges, span(0, 2, 0))
	if !slices.Equal(g.Acked, []call.Range{span(0, 4, 6), span(0, 8, 10)}) {
		t.Fatalf("acked %+v", g.Acked)
	}
	b.wantRanges(b.deliver("a", g.Generation, 0, span(0, 2, 12)).Ranges, span(0, 2, 4), span(0, 6, 8), span(0, 10, 12))
	b.wantRanges(b.deliver("a", g.Generation, 0, span(0, 2, 4), span(0, 6, 8), span(0, 10, 15)).Ranges,
		span(0, 2, 4), span(0, 6, 8), span(0, 10, 15))
	b.wantRanges(b.deliver("a", g.Generation, 0, span(0, 2, 4), span(0, 7, 8)).Ranges, span(0, 2, 4)) // 6 is left out
	b.failover()
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 2, 0))
	b.single("a", d.Generation, 0, 2, 3)
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 6, 0))
}

func TestReplayWithAcksAhead(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 1, 10)
	b.single("a", d.Generation, 0, 3, 9)
	g := b.grant("a", 1)
	if !g.Replay || !slices.Equal(g.Acked, []call.Range{span(0, 3, 4)}) {
		t.Fatalf("%+v", g)
	}
	b.wantRanges(g.Ranges, span(0, 0, 9))
	want := []call.Range{span(0, 0, 3), span(0, 4, 9)}
	b.wantRanges(b.deliver("a", g.Generation, 1, span(0, 0, 9)).Ranges, want...)
	b.wantRanges(b.deliver("a", g.Generation, 1, want...).Ranges, want...)
	b.fails(&call.Deliver{Target: target(), Member: "a", Generation: g.Generation, PullSequence: 1,
		Ranges: want[:1]}, model.Unavailable, "")
	b.wantRanges(b.grant("a", 2).Ranges, span(0, 10, 0)) // 9 is acked, too
}

func TestSeekForgetsAcksAhead(t *testing.T) {
	b := newBench(t, 2)
	d := b.pull("a", 0, 10)
	b.single("a", d.Generation, 0, 5)
	b.single("a", d.Generation, 1, 5)
	b.seek(0, 2)
	v := b.view()
	if v.Partitions[0].Acked != 0 || v.Partitions[1].Acked != 1 {
		t.Fatalf("%+v", v.Partitions)
	}
}

// A member that leaves holes is told to slow down, and nothing it acked is forgotten.
func TestHolesAreLimited(t *testing.T) {
	b := newBench(t, 1)
	b.config.MaxAhead = 3
	b.machine().config.MaxAhead = 3
	d := b.pull("a", 0, 100)
	if r := b.single("a", d.Generation, 0, 2, 4, 6); r.Err != nil {
		t.Fatal(r.Err)
	}
	r := b.single("a", d.Generation, 0, 8, 10)
	if r.Err == nil || r.Err.Reason != model.ReasonThrottled || r.Err.RetryAfter <= 0 ||
		b.view().Partitions[0].Acked != 3 {
		t.Fatalf("%+v, %+v", r, b.view().Partitions[0])
	}
	if r := b.single("a", d.Generation, 0, 3, 8); r.Err != nil { // fills one, opens one
		t.Fatal(r.Err)
	}
	b.acked("a", d.Generation, 0, 2, 5) // with 2, 3 and 4
	if v := b.view().Partitions[0]; v.Cursor != 5 || v.Acked != 2 {
		t.Fatalf("%+v", v)
	}
}

func TestHundredThousandHolesSurviveARestart(t *testing.T) {
	const holes = 100_000
	b := newBench(t, 1)
	d := b.pull("a", 0, 2*holes+2)
	for from := 0; from < holes; from += 10_000 {
		offsets := make([]model.Offset, 10_000)
		for i := range offsets {
			offsets[i] = model.Offset(2*(from+i) + 1)
		}
		if r := b.single("a", d.Generation, 0, offsets...); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if r := b.single("a", d.Generation, 0, 2*holes+1); r.Err == nil || r.Err.Reason != model.ReasonThrottled {
		t.Fatalf("%+v", r)
	}
	snapshot := b.machine().Snapshot()
	m := New(b.config)
	if err := m.Restore(snapshot); err != nil || m.Hash() != b.machine().Hash() {
		t.Fatal(err)
	}
	if v := b.view().Partitions[0]; v.Cursor != 0 || v.Acked != holes {
		t.Fatalf("%+v", v)
	}
	if len(snapshot) > 3*holes {
		t.Fatalf("the snapshot has %d bytes", len(snapshot))
	}
	b.failover()
	g := b.grant("a", 0)
	if len(g.Acked) != maxTold || g.Ranges[0].To != 2*maxTold+1 {
		t.Fatalf("%d ranges told, up to %d", len(g.Acked), g.Ranges[0].To)
	}
}

// Intervals do what a set of offsets does.
func TestIntervals(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s intervals
		var set [40]bool
		at := rapid.Map(rapid.IntRange(0, 39), func(i int) model.Offset { return model.Offset(i) })
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			from, to := at.Draw(rt, "from"), at.Draw(rt, "to")
			if rapid.IntRange(0, 9).Draw(rt, "drop") == 0 {
				s.dropBelow(from)
				clear(set[:from])
			} else {
				s.add(interval{from, to})
				for o := from; o < to; o++ {
					set[o] = true
				}
			}
			compareWithSet(rt, s, set[:], from, to)
		}
	})
}

func compareWithSet(rt *rapid.T, s intervals, set []bool, from, to model.Offset) {
	first := model.Offset(0)
	if len(s) > 0 && s[0].from == 0 {
		first = s[0].to
	}
	if err := s[min(len(s), int(min(first, 1))):].check(first); err != nil {
		rt.Fatal(err)
	}
	inside, open := uint64(0), map[model.Offset]bool{}
	for _, h := range s.holes(from, to) {
		for o := h.from; o < h.to; o++ {
			open[o] = true
		}
	}
	for o := range model.Offset(len(set)) {
		in := from <= o && o < to
		if s.has(o) != set[o] || open[o] != (in && !set[o]) || s.free(o) < 40 && set[s.free(o)] {
			rt.Fatalf("offset %d of %+v", o, s)
		}
		if in && set[o] {
			inside++
		}
	}
	if s.within(from, to) != inside {
		rt.Fatalf("%d within [%d, %d) of %+v", s.within(from, to), from, to, s)
	}
	var again intervals
	c := wire.Codec{}
	codeIntervals(&c, &s)
	d := wire.Codec{Buf: c.Buf, Decoding: true}
	if codeIntervals(&d, &again); d.Err != nil || !slices.Equal(s, again) {
		rt.Fatalf("%+v became %+v", s, again)
	}
}

// What a refused ack touched is as it was, the attempts too.
func TestARefusedAckLeavesAttempts(t *testing.T) {
	p := partition{acked: intervals{{2, 3}, {5, 6}},
		failed: []failure{{offset: 8, attempts: 2}, {offset: 10, attempts: 3}}}
	if err := p.ack(ackItem{ahead: intervals{{8, 9}, {12, 13}}}, 3); err == nil {
		t.Fatal("taken in over the limit")
	}
	if len(p.failed) != 2 || p.failed[0] != (failure{offset: 8, attempts: 2}) || p.attempts(10) != 3 || len(p.acked) != 2 {
		t.Fatalf("%+v", p)
	}
}
