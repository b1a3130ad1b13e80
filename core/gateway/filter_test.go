package gateway

import (
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func filtered(f *fake, text string) *call.Read {
	f.t.Helper()
	f.subs[0].Settings.Filter = text
	f.request(1, pullOf(1, time.Second))
	f.grant(false, call.Range{Partition: 0, From: 2})
	r := f.asks[0].req.(*call.Read)
	if r.Filter != text {
		f.t.Fatalf("reads %+v", r)
	}
	return r
}

func between(from, to model.Offset) call.Range { return call.Range{From: from, To: to} }

// A pull goes on over what its filter leaves out, hands out the rest, and tells
// the coordinator of all it passed.
func TestPullLeavesOutWhatIsFiltered(t *testing.T) {
	f := newFake(t)
	filtered(f, "has(attributes.a)")
	f.answer(f.next(), &call.ReadResult{Filtered: []call.Range{between(2, 6)}, Next: 6, HighWatermark: 20})
	if r := f.asks[0].req.(*call.Read); r.Offset != 6 || r.Wait != 0 {
		t.Fatalf("reads %+v", r)
	}
	res := &call.ReadResult{Run: append(stored(6, 8), stored(9, 10)...), Next: 12, HighWatermark: 12,
		Filtered: []call.Range{between(8, 9), between(10, 12)}}
	f.answer(f.next(), res)
	d := f.delivery()
	if !slices.Equal(d.Filtered, []call.Range{between(2, 6), between(8, 9), between(10, 12)}) {
		t.Fatalf("%+v", d)
	}
	r := f.result(1).(*call.PullResult)
	if len(r.Ranges) != 2 || r.Ranges[0].To != 8 || r.Ranges[1].From != 9 || r.Ranges[1].To != 10 {
		t.Fatalf("%+v", r)
	}
	f.idle()
}

// What lies behind the last message wanted was not looked at for this pull.
func TestPullPassesNoMoreThanItWalked(t *testing.T) {
	f := newFake(t)
	f.subs[0].Settings.Filter = "has(attributes.a)"
	pull := pullOf(1, time.Second)
	pull.MaxMessages = 1
	f.request(1, pull)
	f.grant(false, call.Range{Partition: 0, From: 2})
	f.answer(f.next(), &call.ReadResult{Run: stored(3, 5), Next: 9, HighWatermark: 12,
		Filtered: []call.Range{between(2, 3), between(5, 9)}})
	d := f.delivery()
	if len(d.Ranges) != 1 || d.Ranges[0].To != 4 || !slices.Equal(d.Filtered, []call.Range{between(2, 3)}) {
		t.Fatalf("%+v", d)
	}
}

// A long-poll that brings only filtered messages passes them and waits on.
func TestPullWaitsOverFilteredMessages(t *testing.T) {
	f := newFake(t)
	filtered(f, "has(attributes.a)")
	f.answer(f.next(), &call.ReadResult{Filtered: []call.Range{between(2, 3)}, Next: 3, HighWatermark: 3})
	if d := f.delivery(); len(d.Ranges) != 0 || len(d.Filtered) != 1 {
		t.Fatalf("%+v", d)
	}
	if len(f.replies) != 0 {
		t.Fatal("answered with nothing")
	}
	f.pass(oneRound)
	f.grant(false, call.Range{Partition: 0, From: 3})
	f.answer(f.next(), &call.ReadResult{Run: stored(3, 4), Next: 4, HighWatermark: 4})
	f.delivery()
	if r := f.result(1).(*call.PullResult); len(r.Ranges) != 1 {
		t.Fatalf("%+v", r)
	}
}

// What was given before comes again whatever the filter says by now.
func TestAReplayIsNotFiltered(t *testing.T) {
	f := newFake(t)
	f.subs[0].Settings.Filter = "has(attributes.a)"
	f.request(1, pullOf(3, 0))
	f.grant(true, call.Range{Partition: 0, From: 1, To: 3})
	if r := f.asks[0].req.(*call.Read); r.Filter != "" {
		t.Fatalf("reads %+v", r)
	}
}
