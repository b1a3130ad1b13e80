package subscription

import (
	"testing"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// sift delivers what a filter left of what was read.
func (b *bench) sift(m model.MemberID, g model.Generation, sequence uint64, filtered []call.Range,
	ranges ...call.Range) *call.Delivered {
	b.Helper()
	return must[*call.Delivered](b, &call.Deliver{Target: target(), Member: m, Generation: g,
		PullSequence: sequence, Ranges: ranges, Filtered: filtered})
}

// What a filter leaves out is done with at once: before, between and behind what
// is delivered, over a failover, and without counting against anybody's limit.
func TestTheCursorMovesOverWhatIsFiltered(t *testing.T) {
	b := newBench(t, 1)
	g := b.grant("a", 0)
	d := b.sift("a", g.Generation, 0, []call.Range{span(0, 0, 3), span(0, 4, 7), span(0, 8, 10)},
		span(0, 3, 4), span(0, 7, 8))
	b.wantRanges(d.Ranges, span(0, 3, 4), span(0, 7, 8))
	if v := b.view().Partitions[0]; v.Cursor != 3 {
		t.Fatalf("%+v", v)
	}
	b.acked("a", d.Generation, 0, 4, 7)
	b.failover()
	b.wantRanges(b.grant("a", 0).Ranges, span(0, 7, 0))
	b.sift("a", g.Generation, 0, nil, span(0, 7, 8))
	b.acked("a", d.Generation, 0, 8, 10)
	// Nothing but filtered messages.
	d = b.sift("a", g.Generation, 0, []call.Range{span(0, 10, 1000)})
	if b.wantRanges(d.Ranges); b.view().Partitions[0].Cursor != 1000 {
		t.Fatalf("%+v", b.view().Partitions[0])
	}
}

// A delivery that passes messages and gives none is no answer yet: its pull goes on.
func TestPassingIsNoAnswer(t *testing.T) {
	b := newBench(t, 1)
	g := b.grant("a", 1)
	b.wantRanges(b.sift("a", g.Generation, 1, []call.Range{span(0, 0, 5)}).Ranges)
	g = b.grant("a", 1)
	if g.Replay {
		t.Fatal("an empty answer is recorded")
	}
	b.wantRanges(g.Ranges, span(0, 5, 0))
	b.wantRanges(b.sift("a", g.Generation, 1, []call.Range{span(0, 5, 7)}, span(0, 7, 8)).Ranges, span(0, 7, 8))
	if g = b.grant("a", 1); !g.Replay {
		t.Fatal("the answer is forgotten")
	}
	b.wantRanges(g.Ranges, span(0, 7, 8))
	b.wantRanges(b.grant("a", 2).Ranges, span(0, 8, 0))
}

// A seek between reading and delivering makes the filter look again: it may have
// changed, and what lies there may be wanted now.
func TestASeekVoidsWhatWasFiltered(t *testing.T) {
	b := newBench(t, 1)
	g := b.grant("a", 0)
	b.seek(0, 0)
	b.wantRanges(b.sift("a", g.Generation, 0, []call.Range{span(0, 0, 5)}, span(0, 5, 6)).Ranges)
	if v := b.view().Partitions[0]; v.Cursor != 0 || v.Acked != 0 {
		t.Fatalf("%+v", v)
	}
}

// Beyond the limit of ranges ahead of the cursor filtered messages stay open, and
// nothing beyond them goes out.
func TestPassesAreLimited(t *testing.T) {
	b := newBench(t, 1)
	b.machine().config.MaxAhead = 1
	g := b.grant("a", 0)
	d := b.sift("a", g.Generation, 0, []call.Range{span(0, 1, 2), span(0, 3, 4)},
		span(0, 0, 1), span(0, 2, 3), span(0, 4, 5))
	b.wantRanges(d.Ranges, span(0, 0, 1), span(0, 2, 3))
	b.acked("a", d.Generation, 0, 3, 3)
	g = b.grant("a", 0)
	b.wantRanges(b.sift("a", g.Generation, 0, []call.Range{span(0, 3, 4)}, span(0, 4, 5)).Ranges, span(0, 4, 5))
}

// In mode shared, too, with and without an order of keys: nobody holds what is
// filtered, and it keeps nothing behind it back.
func TestSharedPassesWhatIsFiltered(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		b := sharedBench(t, 1, model.SubscriptionSettings{KeyOrdered: keyed})
		deliver := func(m model.MemberID, filtered []call.Range, ranges ...call.Range) *call.Delivered {
			g := b.grant(m, 0)
			req := &call.Deliver{Target: target(), Member: m, Generation: g.Generation, Filtered: filtered, Ranges: ranges}
			for i := range ranges {
				req.Keys = append(req.Keys, keyHash(string(rune('a'+i))))
			}
			return must[*call.Delivered](b, req)
		}
		d := deliver("m", []call.Range{span(0, 0, 3), span(0, 4, 7), span(0, 8, 10)}, span(0, 3, 4), span(0, 7, 8))
		b.wantRanges(d.Ranges, span(0, 3, 4), span(0, 7, 8))
		if v := b.view().Partitions[0]; v.Cursor != 3 {
			t.Fatalf("%+v", v)
		}
		b.wantRanges(b.grant("n", 0).Ranges, span(0, 10, 0))
		b.ackEach("m", d.Generation, 3, 7)
		if v := b.view().Partitions[0]; v.Cursor != 10 {
			t.Fatalf("%+v", v)
		}
		b.wantRanges(deliver("n", []call.Range{span(0, 10, 500)}).Ranges)
		b.wantRanges(deliver("n", nil, span(0, 500, 501)).Ranges, span(0, 500, 501))
		b.failover()
		if v := b.view().Partitions[0]; v.Cursor != 500 {
			t.Fatalf("%+v", v)
		}
	}
}
