package session

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// handful is one batch of five messages from an offset on.
func handful(from model.Offset) call.PulledRange {
	v := batch.Encode(make([]batch.Message, 5), batch.Options{})
	v.Stamp(from, 1)
	return call.PulledRange{Range: call.Range{From: from, To: from + 5}, Batches: []batch.View{v}}
}

// polled is the only request of a type made now.
func polled[T call.Client](t *testing.T, c *Consumer, now model.Mono) (id uint64, req T) {
	t.Helper()
	for _, s := range c.Poll(now) {
		if r, ok := s.Call.(T); ok {
			return s.ID, r
		}
	}
	t.Fatalf("no %T at %v", req, now)
	return 0, req
}

// A heartbeat extends the leases of what is held; when that is refused, the
// next one asks for the session alone, and nothing is dropped.
func TestHeartbeatExtendsLeases(t *testing.T) {
	c := NewConsumer(ConsumerConfig{Subscription: "orders/mail", Member: "a", MaxBuffered: 5})
	now := model.Mono(time.Hour)
	id, _ := polled[*call.Pull](t, c, now)
	c.Done(now, id, &call.PullResult{Member: "a", Generation: 2, Ranges: []call.PulledRange{handful(10)}}, nil)
	now = now.Add(4 * time.Second)
	id, beat := polled[*call.ExtendLease](t, c, now)
	if len(beat.Offsets) != 1 || beat.Offsets[0].Offset != 14 || beat.Generation != 2 {
		t.Fatalf("%+v", beat)
	}
	fenced := model.Reasoned(model.FailedPrecondition, model.ReasonFenced, 0, "the lease has ended")
	c.Done(now, id, nil, fenced)
	now = now.Add(4 * time.Second)
	if id, beat = polled[*call.ExtendLease](t, c, now); len(beat.Offsets) != 0 || c.Held() != 5 {
		t.Fatalf("%+v, %d held", beat, c.Held())
	}
	c.Done(now, id, nil, fenced) // the session is over: all goes
	if c.Held() != 0 {
		t.Fatalf("%d held", c.Held())
	}
}
