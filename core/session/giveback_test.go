package session

import (
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func offsetsOf(ds []Delivery) (out []model.Offset) {
	for i := range ds {
		out = append(out, ds[i].Offset)
	}
	return out
}

func wantOffsets(t *testing.T, ds []Delivery, want ...model.Offset) {
	t.Helper()
	if got := offsetsOf(ds); !slices.Equal(got, want) {
		t.Fatalf("offsets %v; want %v", got, want)
	}
}

// What is nacked comes again with all that follows, and no answer that was made
// before is taken for what follows it.
func TestNackInOrder(t *testing.T) {
	c := NewConsumer(ConsumerConfig{Subscription: "orders/mail", Member: "a", MemberIsNew: true, AckInterval: -1})
	now := model.Mono(time.Hour)
	gave := func(id uint64, from model.Offset) {
		c.Done(now, id, &call.PullResult{Member: "a", Generation: 2, Ranges: []call.PulledRange{handful(from)}}, nil)
	}
	id, _ := polled[*call.Pull](t, c, now)
	gave(id, 10)
	ds := c.Take(0)
	ahead, _ := polled[*call.Pull](t, c, now) // under way when the nack is made
	c.Processed(now, ds[0])
	c.Nack(now, ds[2], time.Second)
	c.Processed(now, ds[3]) // it comes again with the one before: this acks nothing
	id, nack := polled[*call.Nack](t, c, now)
	if len(nack.Offsets) != 1 || nack.Offsets[0].Offset != 12 || nack.Delay != time.Second || nack.Generation != 2 {
		t.Fatalf("%+v", nack)
	}
	gave(ahead, 15)
	if n := len(c.Take(0)); n != 0 {
		t.Fatalf("%d messages beyond the nacked one were taken in", n)
	}
	c.Done(now, id, &call.Empty{}, nil)
	id, pull := polled[*call.Pull](t, c, now)
	if pull.PullSequence != 1 {
		t.Fatalf("the next pull goes on from %d; it would confirm what was not taken in", pull.PullSequence)
	}
	gave(id, 10)
	wantOffsets(t, c.Take(0), 12, 13, 14)
	c.Processed(now, ds[1])
	c.Processed(now, ds[4])
	for _, s := range c.Poll(now) {
		if r, ok := s.Call.(*call.Ack); ok && r.UpTo[0].Offset > 12 {
			t.Fatalf("acked up to %d", r.UpTo[0].Offset)
		}
	}
}

// A nack that cannot be brought home leaves the message to its deadline.
func TestANackGivenUp(t *testing.T) {
	c := NewConsumer(ConsumerConfig{Subscription: "orders/mail", Member: "a", MemberIsNew: true})
	now := model.Mono(time.Hour)
	id, _ := polled[*call.Pull](t, c, now)
	c.Done(now, id, &call.PullResult{Member: "a", Generation: 2, Ranges: []call.PulledRange{handful(10)}}, nil)
	ds := c.Take(0)
	c.Nack(now, ds[0], 0)
	for range giveUpAfter {
		id, _ = polled[*call.Nack](t, c, now)
		c.Done(now, id, nil, model.Errorf(model.Unavailable, "no answer"))
		now = now.Add(time.Minute)
	}
	if c.nackReady() != model.Never || !c.restart {
		t.Fatalf("still %v, restart %v", c.nacks, c.restart)
	}
}

func TestSharedMode(t *testing.T) {
	c := NewConsumer(ConsumerConfig{Subscription: "orders/mail", Member: "a", Shared: true, AckInterval: -1})
	now := model.Mono(time.Hour)
	gave := func(id, delivery uint64, g model.Generation, from model.Offset) {
		c.Done(now, id, &call.PullResult{Member: "a", Generation: g, Delivery: delivery,
			Ranges: []call.PulledRange{handful(from)}}, nil)
	}
	id, _ := polled[*call.Pull](t, c, now)
	gave(id, 7, 2, 10)
	ds := c.Take(0)
	wantOffsets(t, ds, 10, 11, 12, 13, 14)
	c.Processed(now, ds[3])
	c.Nack(now, ds[1], 0)
	c.Extend(ds[2], time.Minute)
	sends := c.Poll(now)
	var ack *call.Ack
	for _, s := range sends {
		switch r := s.Call.(type) {
		case *call.Ack:
			ack, id = r, s.ID
		case *call.Nack:
			if r.Offsets[0].Offset != 11 || r.Deliveries[0] != 7 {
				t.Fatalf("%+v", r)
			}
		case *call.ExtendLease:
			if r.Offsets[0].Offset != 12 || r.Deliveries[0] != 7 || r.Extension != time.Minute {
				t.Fatalf("%+v", r)
			}
		}
	}
	if len(sends) != 4 || len(ack.UpTo) != 0 || len(ack.Offsets) != 1 || ack.Offsets[0].Offset != 13 {
		t.Fatalf("%d requests, %+v", len(sends), ack)
	}
	c.Done(now, id, nil, model.Errorf(model.Unavailable, "no answer"))
	now = now.Add(4 * time.Second)
	id, ack = polled[*call.Ack](t, c, now) // again
	if len(ack.Offsets) != 1 || c.Held() != 3 {
		t.Fatalf("%+v, %d held", ack, c.Held())
	}
	c.Done(now, id, &call.AckCallResult{Results: []call.AckResult{{}}}, nil)
	now = now.Add(4 * time.Second)
	_, beat := polled[*call.ExtendLease](t, c, now)
	if len(beat.Offsets) != 3 || len(beat.Deliveries) != 3 {
		t.Fatalf("%+v", beat)
	}
}

// After a seek what was buffered before it goes, and what came after it stays.
func TestSharedModeAfterASeek(t *testing.T) {
	c := NewConsumer(ConsumerConfig{Subscription: "orders/mail", Member: "a", Shared: true, AckInterval: -1})
	now := model.Mono(time.Hour)
	id, _ := polled[*call.Pull](t, c, now)
	c.Done(now, id, &call.PullResult{Member: "a", Generation: 2, Delivery: 1,
		Ranges: []call.PulledRange{handful(10)}}, nil)
	d := c.Take(1)[0]
	id, _ = polled[*call.Pull](t, c, now)
	c.Done(now, id, &call.PullResult{Member: "a", Generation: 3, Delivery: 2,
		Ranges: []call.PulledRange{handful(20)}}, nil)
	c.Processed(now, d)
	id, _ = polled[*call.Ack](t, c, now)
	fenced := model.Reasoned(model.FailedPrecondition, model.ReasonFenced, 0, "a seek came")
	c.Done(now, id, &call.AckCallResult{Results: []call.AckResult{{Err: fenced}}}, nil)
	wantOffsets(t, c.Take(0), 20, 21, 22, 23, 24)
}
