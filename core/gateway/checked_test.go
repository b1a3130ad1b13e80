package gateway

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

var (
	checkEnd  = model.Reasoned(model.FailedPrecondition, call.ReasonCheckEnd, 0, "how far does it go?")
	throttled = model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, 0, "later")
)

func ackOfTwo() *call.Ack {
	return &call.Ack{Subscription: "orders/audit", Member: "m", Generation: 4,
		UpTo:    []call.PartitionOffset{{Offset: 9}, {Partition: 1, Offset: 8}},
		Offsets: []call.PartitionOffset{{Offset: 12}, {Partition: 1, Offset: 11}, {Partition: 1, Offset: 12}}}
}

// wantResults looks at an ack's answer, partition by partition; "" is a success.
func (f *fake) wantResults(id uint64, reasons ...model.Reason) {
	f.t.Helper()
	rs := f.result(id).(*call.AckCallResult).Results
	for i, want := range reasons {
		if r := rs[i]; r.Partition != model.Partition(i) || (r.Err != nil) != (want != "") ||
			r.Err != nil && r.Err.Reason != want {
			f.t.Fatalf("partition %d: %+v; want %q", i, r, want)
		}
	}
	f.idle()
}

// What was acked stays acked, whatever becomes of the partition whose end is asked for.
func TestWhatIsDecidedStandsWhenAnEndIsAskedFor(t *testing.T) {
	first := &call.Acked{Results: []call.AckResult{{Cursor: 9}, {Partition: 1, Err: checkEnd}}}
	f := newFake(t)
	f.request(1, ackOfTwo())
	f.answer(f.next(), first)
	f.answer(f.next(), &call.Located{HighWatermark: 20})
	again := f.next()
	if ack := again.req.(*call.AckCursors); len(ack.UpTo) != 1 || ack.UpTo[0].Partition != 1 || len(ack.Offsets) != 2 {
		t.Fatalf("asked again of what is decided: %+v", ack)
	}
	f.refuse(again, throttled)
	f.wantResults(1, "", model.ReasonThrottled)

	f.request(2, ackOfTwo()) // nobody tells the end
	f.answer(f.next(), first)
	for f.next(); len(f.replies) == 1; f.pass(100 * time.Millisecond) {
		f.asks = nil
	}
	f.wantResults(2, "", model.ReasonNoLeader)

	f.request(3, ackOfTwo())
	f.answer(f.next(), first)
	f.answer(f.next(), &call.Located{HighWatermark: 20})
	f.answer(f.next(), &call.Acked{Results: []call.AckResult{{Partition: 1, Cursor: 8}}})
	f.wantResults(3, "", "")
}

// An earlier try that may have taken effect is not forgotten over the question for an end.
func TestAnUnknownTryIsNotForgottenOverAnEnd(t *testing.T) {
	both := &call.Acked{Results: []call.AckResult{{Err: checkEnd}, {Partition: 1, Err: checkEnd}}}
	f := newFake(t)
	f.request(1, ackOfTwo())
	f.g.PeerDown(f.next().to)
	f.pass(50 * time.Millisecond)
	f.answer(f.next(), both)
	f.answer(f.next(), &call.Located{HighWatermark: 20})
	f.answer(f.next(), &call.Located{HighWatermark: 20})
	f.refuse(f.next(), throttled)
	f.refused(1, model.ReasonUnknownOutcome)

	f.request(2, ackOfTwo()) // nor where one end is not told
	f.g.PeerDown(f.next().to)
	f.pass(50 * time.Millisecond)
	f.answer(f.next(), both)
	f.answer(f.next(), &call.Located{HighWatermark: 20})
	f.refuse(f.next(), model.Errorf(model.NotFound, "gone"))
	f.answer(f.next(), &call.Acked{Results: []call.AckResult{{Cursor: 9}}})
	f.wantResults(2, "", model.ReasonUnknownOutcome)
}

func TestANackIsNotRepeatedForAnothersEnd(t *testing.T) {
	f := newFake(t)
	f.request(1, &call.Nack{Subscription: "orders/audit", Member: "m", Generation: 4, Deliveries: []uint64{5, 6},
		Offsets: []call.PartitionOffset{{Offset: 9}, {Partition: 1, Offset: 8}}})
	f.answer(f.next(), &call.Acked{Results: []call.AckResult{{Cursor: 9}, {Partition: 1, Err: checkEnd}}})
	f.answer(f.next(), &call.Located{HighWatermark: 20})
	again := f.next()
	nack := again.req.(*call.NackCursors)
	if len(nack.Offsets) != 1 || nack.Offsets[0].Partition != 1 || len(nack.Deliveries) != 1 || nack.Deliveries[0] != 6 {
		t.Fatalf("%+v", nack)
	}
	f.refuse(again, throttled)
	f.refused(1, model.ReasonThrottled)
	f.idle()
}
