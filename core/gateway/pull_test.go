package gateway

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func pullOf(sequence uint64, wait time.Duration) *call.Pull {
	return &call.Pull{Subscription: "orders/audit", Member: "m", PullSequence: sequence, Wait: wait}
}

// grant answers the grant that is asked for.
func (f *fake) grant(replay bool, ranges ...call.Range) {
	f.t.Helper()
	a := f.next()
	if _, ok := a.req.(*call.Grant); !ok || a.group != coordinator {
		f.t.Fatalf("asked %T of group %d", a.req, a.group)
	}
	f.answer(a, &call.Granted{Member: "m", Generation: 4, Replay: replay, Ranges: ranges})
}

// reads takes the reads under way, by partition.
func (f *fake) reads(want int) map[model.Partition]try {
	f.t.Helper()
	out := map[model.Partition]try{}
	for range want {
		a := f.next()
		if _, ok := a.req.(*call.Read); !ok {
			f.t.Fatalf("asked %T", a.req)
		}
		out[model.Partition(a.group-model.FirstPartitionGroup)] = a
	}
	return out
}

// delivery takes the delivery that is asked for and allows all of it.
func (f *fake) delivery() *call.Deliver {
	f.t.Helper()
	a := f.next()
	d, ok := a.req.(*call.Deliver)
	if !ok {
		f.t.Fatalf("asked %T", a.req)
	}
	f.answer(a, &call.Delivered{Generation: 4, Ranges: d.Ranges})
	return d
}

func run(from, to model.Offset) *call.ReadResult {
	return &call.ReadResult{Run: stored(from, to), Next: to}
}

func TestPullIsGrantReadDeliver(t *testing.T) {
	f := newFake(t)
	f.request(1, pullOf(1, 0))
	f.grant(false, call.Range{Partition: 1, From: 5}, call.Range{Partition: 2, From: 0})
	rs := f.reads(2)
	f.answer(rs[1], run(4, 9)) // begins below what was asked for
	f.refuse(rs[2], model.Errorf(model.DataLoss, "broken"))
	if len(f.replies) != 0 {
		t.Fatal("handed out before the coordinator recorded it")
	}
	d := f.delivery()
	if len(d.Ranges) != 1 || d.Ranges[0].From != 5 || d.Ranges[0].To != 9 || d.PullSequence != 1 {
		t.Fatalf("%+v", d)
	}
	r := f.result(1).(*call.PullResult)
	if len(r.Ranges) != 1 || r.Ranges[0].From != 5 || r.Ranges[0].Batches[0].Base() != 5 || r.Generation != 4 {
		t.Fatalf("%+v", r)
	}
	f.idle()
}

// The first partition that has something ends the wait of all.
func TestPullEndsWithTheFirst(t *testing.T) {
	f := newFake(t)
	f.request(1, pullOf(1, 5*time.Second))
	f.grant(false, call.Range{Partition: 0}, call.Range{Partition: 1})
	for _, a := range f.reads(2) {
		f.answer(a, run(0, 0))
	}
	rs := f.reads(2)
	if rs[0].req.(*call.Read).Wait == 0 {
		t.Fatal("the second look does not wait")
	}
	f.answer(rs[1], run(0, 2))
	if len(f.withdrawn) != 1 || f.withdrawn[0] != rs[0].id {
		t.Fatalf("withdrawn: %v", f.withdrawn)
	}
	f.delivery()
	if r := f.result(1).(*call.PullResult); len(r.Ranges) != 1 || r.Ranges[0].Partition != 1 {
		t.Fatalf("%+v", r)
	}
}

// What lies below the log's start is skipped by the coordinator, and told.
func TestPullSkips(t *testing.T) {
	f := newFake(t)
	f.request(1, pullOf(3, 0))
	f.grant(false, call.Range{Partition: 0, From: 5})
	old := model.Reasoned(model.OutOfRange, model.ReasonOffsetTooOld, 0, "gone")
	old.Start, old.End = 40, 50
	f.refuse(f.reads(1)[0], old)
	a := f.next()
	d := a.req.(*call.Deliver)
	skip := call.Range{Partition: 0, From: 5, To: 40}
	if len(d.Ranges) != 0 || len(d.Skips) != 1 || d.Skips[0] != skip {
		t.Fatalf("%+v", d)
	}
	f.answer(a, &call.Delivered{Generation: 4, Skipped: []call.Range{skip}})
	if r := f.result(1).(*call.PullResult); len(r.Skipped) != 1 || r.Skipped[0] != skip {
		t.Fatalf("%+v", r)
	}
}

// An empty answer confirms, with the next sequence, what was given before: it
// must not be given while that cannot be read.
func TestAReplayIsNeverAnsweredEmpty(t *testing.T) {
	for name, unreadable := range map[string]func(f *fake){
		"no such partition here yet": func(f *fake) { f.grant(true, call.Range{Partition: 7, From: 1, To: 3}) },
		"no leader": func(f *fake) {
			f.grant(true, call.Range{Partition: 0, From: 1, To: 3})
			f.refuse(f.next(), model.Errorf(model.DataLoss, "broken"))
		},
		"nothing there": func(f *fake) {
			f.grant(true, call.Range{Partition: 0, From: 1, To: 3})
			f.answer(f.next(), run(1, 1))
		},
	} {
		f := newFake(t)
		f.request(1, pullOf(3, 300*time.Millisecond))
		for len(f.replies) == 0 {
			if len(f.asks) > 0 {
				unreadable(f)
			}
			f.pass(time.Millisecond)
		}
		if f.replies[1].err == nil {
			t.Errorf("%s: answered %+v", name, f.replies[1].result)
		}
		f.idle()
	}
	// Nothing left of it, since all is acked: that is empty.
	f := newFake(t)
	f.request(1, pullOf(3, 0))
	f.grant(true)
	f.result(1)
}

// What may go out and was not read makes the pull fail: left out, the next pull
// would take it for received.
func TestADeliveryOfMoreThanWasRead(t *testing.T) {
	f := newFake(t)
	f.request(1, pullOf(3, 0))
	f.grant(true, call.Range{Partition: 0, From: 1, To: 3}, call.Range{Partition: 1, From: 1, To: 3})
	rs := f.reads(2)
	f.answer(rs[0], run(1, 3))
	f.refuse(rs[1], model.Errorf(model.DataLoss, "broken"))
	f.answer(f.next(), &call.Delivered{Generation: 4, Ranges: []call.Range{
		{Partition: 0, From: 1, To: 3, Attempt: 1}, {Partition: 1, From: 1, To: 3, Attempt: 1}}})
	if f.replies[1].err == nil {
		t.Fatalf("answered %+v", f.replies[1].result)
	}
	f.idle()
}

// Answers that come at once and bring nothing do not turn the pull into a loop.
func TestPullRoundsArePaced(t *testing.T) {
	broken := model.Errorf(model.DataLoss, "broken")
	fenced := model.Reasoned(model.FailedPrecondition, model.ReasonFenced, 0, "moved")
	for name, round := range map[string]func(f *fake){
		"unreadable": func(f *fake) {
			f.grant(false, call.Range{Partition: 0})
			for len(f.asks) > 0 {
				if _, ok := f.asks[0].req.(*call.Read); !ok {
					return
				}
				f.refuse(f.next(), broken)
			}
		},
		"fenced": func(f *fake) {
			f.grant(false, call.Range{Partition: 0})
			f.answer(f.next(), run(0, 1))
			f.refuse(f.next(), fenced)
		},
		"all taken away": func(f *fake) {
			f.grant(false, call.Range{Partition: 0})
			f.answer(f.next(), run(0, 1))
			f.answer(f.next(), &call.Delivered{Generation: 4})
		},
		"owns nothing": func(f *fake) { f.grant(false) },
	} {
		f := newFake(t)
		f.request(1, pullOf(0, time.Second))
		rounds := 0
		for len(f.replies) == 0 {
			for len(f.asks) > 0 && rounds < 1000 {
				rounds++
				round(f)
			}
			f.pass(time.Millisecond)
		}
		if rounds < 5 || rounds > 60 {
			t.Errorf("%s: %d rounds in a second", name, rounds)
		}
		f.idle()
	}
}

// A pull whose partition is not known here goes on with the others.
func TestPullBesideAnUnknownPartition(t *testing.T) {
	f := newFake(t)
	f.request(1, pullOf(1, 0))
	f.grant(false, call.Range{Partition: 9}, call.Range{Partition: 0}, call.Range{Partition: 8})
	f.answer(f.reads(1)[0], run(0, 1))
	f.delivery()
	f.result(1)
	f.idle()
}

func TestPullTakesNoMoreThanWanted(t *testing.T) {
	f := newFake(t)
	p := pullOf(1, 0)
	p.MaxMessages = 3
	f.request(1, p)
	f.grant(false, call.Range{Partition: 0}, call.Range{Partition: 1})
	rs := f.reads(2)
	f.answer(rs[0], run(0, 2))
	f.answer(rs[1], run(0, 2))
	got := model.Offset(0)
	for _, r := range f.delivery().Ranges {
		got += r.To - r.From
	}
	if got != 3 {
		t.Fatalf("%d messages", got)
	}
}

func TestAckChecksTheEnd(t *testing.T) {
	f := newFake(t)
	f.request(1, &call.Ack{Subscription: "orders/audit", Member: "m", Generation: 4,
		UpTo: []call.PartitionOffset{{Partition: 0, Offset: 9}, {Partition: 2, Offset: 8}}})
	check := model.Reasoned(model.OutOfRange, call.ReasonCheckEnd, 0, "how far does it go?")
	f.answer(f.next(), &call.Acked{Results: []call.AckResult{{Partition: 0, Cursor: 9}, {Partition: 2, Err: check}}})
	bound := f.next()
	if _, ok := bound.req.(*call.Locate); !ok || bound.group != model.FirstPartitionGroup+2 || len(f.asks) != 0 {
		t.Fatalf("asked %T of group %d", bound.req, bound.group)
	}
	f.answer(bound, &call.Located{HighWatermark: 8})
	again := f.next()
	ack := again.req.(*call.AckCursors)
	if len(ack.Ends) != 1 || ack.Ends[0] != (call.PartitionOffset{Partition: 2, Offset: 8}) || len(ack.UpTo) != 1 {
		t.Fatalf("%+v", ack)
	}
	f.answer(again, &call.Acked{Results: []call.AckResult{{Partition: 2, Cursor: 8}}})
	rs := f.result(1).(*call.AckCallResult).Results
	if len(rs) != 2 || rs[0].Cursor != 9 || rs[1].Cursor != 8 {
		t.Fatalf("%+v", rs)
	}
	// It is asked for once only, whatever the answer.
	f.request(2, &call.Ack{Subscription: "orders/audit", Member: "m", UpTo: []call.PartitionOffset{{Offset: 9}}})
	refused := &call.Acked{Results: []call.AckResult{{Err: check}}}
	f.answer(f.next(), refused)
	f.answer(f.next(), &call.Located{HighWatermark: 8})
	f.answer(f.next(), refused)
	f.refused(2, call.ReasonCheckEnd)
	f.idle()
}

// A batch split by key under an older number of partitions is split again.
func TestPublishIsSplitAgain(t *testing.T) {
	f := newFake(t)
	msgs := make([]batch.Message, 20)
	for i := range msgs {
		msgs[i] = batch.Message{Key: []byte{byte(i)}, Payload: []byte("m")}
	}
	f.request(1, &call.Publish{Topic: "orders", Messages: msgs})
	stale := model.Reasoned(model.Unavailable, model.ReasonStaleMap, 0, "another number by now")
	first := f.asks
	f.asks = nil
	for i, a := range first {
		if i == 0 {
			f.answer(a, &call.Appended{Base: 100})
		} else {
			f.refuse(a, stale)
		}
	}
	f.grow()
	f.barrier()
	for _, a := range f.asks {
		if v := batch.View(a.req.(*call.Append).Batch); v.MapVersion() != 2 {
			t.Fatalf("split by version %d", v.MapVersion())
		}
		f.answer(a, &call.Appended{Base: 200})
	}
	n := uint32(len(f.topics[0].Partitions))
	for i, r := range f.result(1).(*call.PublishResult).Results {
		again := r.Offset >= 200
		if r.Err != nil || again && r.Partition != batch.PartitionFor(msgs[i].Key, n) ||
			!again && r.Partition != batch.PartitionFor(msgs[i].Key, n-1) {
			t.Fatalf("message %d: %+v", i, r)
		}
	}
	f.idle()
}

// A topic that keeps growing is not chased for ever.
func TestSplittingEnds(t *testing.T) {
	f := newFake(t)
	f.request(1, &call.Publish{Topic: "orders", Messages: []batch.Message{{Key: []byte("k")}}})
	for i := 0; len(f.asks) > 0; i++ {
		a := f.next()
		if _, ok := a.req.(*call.Append); ok {
			f.refuse(a, model.Reasoned(model.Unavailable, model.ReasonStaleMap, 0, "again"))
		} else {
			f.answer(a, &call.Done{MapVersion: 10})
		}
		if i > 20 {
			t.Fatal("it goes on and on")
		}
	}
	f.refused(1, model.ReasonStaleMap)
}
