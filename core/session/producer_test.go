package session

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// rig drives a producer against the fake broker.
type rig struct {
	*world
	b        *broker
	p        *Producer
	outcomes map[uint64]Outcome
	added    map[uint64]string // token → key
	twice    []uint64
	serve    func(call.Client) (call.ClientResult, *model.Error) // in place of the broker's
	inFlight map[model.Partition]int
	most     int
}

func newRig(seed uint64, cfg ProducerConfig, partitions int) *rig {
	w := newWorld(seed)
	cfg.Topic, cfg.Name, cfg.Seed = "orders", "p1", seed
	return &rig{world: w, b: newBroker(w, partitions), p: NewProducer(cfg), outcomes: map[uint64]Outcome{},
		added: map[uint64]string{}, inFlight: map[model.Partition]int{}}
}

func (r *rig) add(key string, token uint64) *model.Error {
	m := batch.Message{Key: []byte(key), Payload: binary.BigEndian.AppendUint64(nil, token)}
	err := r.p.Add(r.now, m, token)
	if err == nil {
		r.added[token] = key
	}
	r.pump()
	return err
}

// pump makes the requests that are due.
func (r *rig) pump() {
	for _, s := range r.p.Poll(r.now) {
		pb, publishes := s.Call.(*call.PublishBatch)
		if publishes {
			r.inFlight[pb.Partition]++
			r.most = max(r.most, r.inFlight[pb.Partition])
		}
		serve := r.b.serve
		if r.serve != nil {
			serve = r.serve
		}
		r.carry(s, serve, func(id uint64, res call.ClientResult, err *model.Error) {
			if publishes {
				r.inFlight[pb.Partition]--
			}
			r.p.Done(r.now, id, res, err)
			r.drain()
		})
	}
	r.drain()
}

func (r *rig) drain() {
	for _, o := range r.p.Outcomes() {
		if _, ok := r.outcomes[o.Token]; ok {
			r.twice = append(r.twice, o.Token)
		}
		r.outcomes[o.Token] = o
	}
}

// run lets virtual time pass.
func (r *rig) run(d time.Duration) {
	end := r.now.Add(d)
	for {
		r.pump()
		next := min(r.p.Next(), end)
		for r.step(next) {
			r.pump()
			next = min(r.p.Next(), end)
		}
		if r.now >= end {
			return
		}
	}
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// check holds what the broker has against what the producer said.
func (r *rig) check(t fataler) {
	t.Helper()
	if len(r.twice) > 0 {
		t.Fatalf("two outcomes for tokens %v", r.twice)
	}
	if len(r.outcomes) != len(r.added) || !r.p.Idle() {
		n, bytes := r.p.Pending()
		t.Fatalf("%d messages added, %d outcomes; %d messages, %d bytes pending", len(r.added), len(r.outcomes), n, bytes)
	}
	if n, bytes := r.p.Pending(); n != 0 || bytes != 0 {
		t.Fatalf("idle with %d messages of %d bytes pending", n, bytes)
	}
	where := map[uint64]string{}
	for part, l := range r.b.logs {
		last := map[string]uint64{}
		for i, m := range l.messages {
			token := binary.BigEndian.Uint64(m.Payload)
			place := fmt.Sprintf("%d/%d", part, i)
			if was, ok := where[token]; ok {
				t.Fatalf("message %d is there twice: %s and %s", token, was, place)
			}
			where[token] = place
			if len(m.Key) > 0 && token <= last[string(m.Key)] {
				t.Fatalf("key %q: message %d after %d in partition %d", m.Key, token, last[string(m.Key)], part)
			}
			last[string(m.Key)] = token
		}
	}
	for token, o := range r.outcomes {
		place, there := where[token]
		switch {
		case o.Err == nil && place != fmt.Sprintf("%d/%d", o.Partition, o.Offset):
			t.Fatalf("message %d: outcome says %d/%d, the log %q", token, o.Partition, o.Offset, place)
		case o.Err != nil && !o.Maybe && there:
			t.Fatalf("message %d: outcome says not appended (%v), the log has it at %s", token, o.Err, place)
		case o.Err != nil && o.Maybe && o.Err.Reason != model.ReasonUnknownOutcome && o.Err.Reason != model.ReasonFenced:
			t.Fatalf("message %d may be there, its error is %v", token, o.Err)
		}
	}
}

func TestProducerUnderFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(rapid.Uint64().Draw(t, "seed"), ProducerConfig{
			MaxBatchMessages: rapid.IntRange(1, 5).Draw(t, "batch"), InFlight: rapid.IntRange(1, 8).Draw(t, "inflight"),
			DeliveryTimeout: time.Duration(rapid.IntRange(1, 40).Draw(t, "delivery")) * time.Second,
			TryTimeout:      500 * time.Millisecond,
		}, rapid.IntRange(1, 4).Draw(t, "partitions"))
		r.lossy = rapid.SampledFrom([]float64{0, 0.05, 0.3, 0.6}).Draw(t, "lossy")
		r.refuses = rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "refuses")
		r.slow = rapid.SampledFrom([]time.Duration{time.Millisecond, 300 * time.Millisecond, 2 * time.Second}).Draw(t, "slow")
		r.b.forgets = r.lossy == 0 && rapid.Bool().Draw(t, "forgets")
		grow := rapid.IntRange(0, 60).Draw(t, "grow at")
		for i := range rapid.IntRange(1, 60).Draw(t, "messages") {
			if i == grow && grow > 0 {
				r.b.partitions, r.b.mapVersion = r.b.partitions+2, 2
			}
			key := rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "key")
			if err := r.add(key, uint64(i)+1); err != nil {
				t.Fatalf("add: %v", err)
			}
			r.run(time.Duration(rapid.IntRange(0, 30).Draw(t, "pause")) * time.Millisecond)
		}
		r.run(3 * time.Minute)
		r.check(t)
		if r.lossy == 0 && r.slow == time.Millisecond {
			for token, o := range r.outcomes {
				if o.Err != nil && o.Err.Code != model.DeadlineExceeded {
					t.Fatalf("message %d: %v", token, o.Err)
				}
			}
		}
	})
}

func TestProducerKeepsOrderWithoutSequences(t *testing.T) {
	for seed := range uint64(30) {
		r := newRig(seed, ProducerConfig{NoProducer: true, MaxBatchMessages: 2, TryTimeout: 300 * time.Millisecond}, 2)
		r.lossy, r.refuses, r.slow = 0.1, 0.2, 200*time.Millisecond
		for i := range uint64(40) {
			_ = r.add("k", i+1)
			r.run(3 * time.Millisecond)
		}
		r.run(3 * time.Minute)
		r.check(t)
		if r.most > 1 {
			t.Fatalf("%d requests in flight for a partition", r.most)
		}
	}
}

func TestProducerPipelinesAndBatches(t *testing.T) {
	r := newRig(1, ProducerConfig{MaxBatchMessages: 10, InFlight: 4}, 1)
	r.run(time.Second)
	for i := range uint64(1000) {
		if err := r.add("k", i+1); err != nil {
			t.Fatal(err)
		}
	}
	r.run(10 * time.Second)
	r.check(t)
	if r.most != 4 || r.b.largest != 10 || r.b.batches != 100 {
		t.Fatalf("%d in flight at most, %d batches, the largest of %d", r.most, r.b.batches, r.b.largest)
	}
}

// TestProducerNarrowsItsWindow: where requests overtake each other all the time,
// few are sent twice.
func TestProducerNarrowsItsWindow(t *testing.T) {
	r := newRig(1, ProducerConfig{MaxBatchMessages: 1, InFlight: 8}, 1)
	r.run(time.Second)
	gaps := 0
	r.serve = func(c call.Client) (call.ClientResult, *model.Error) {
		res, err := r.b.serve(c)
		if err != nil && err.Reason == model.ReasonSequenceGap {
			gaps++
		}
		return res, err
	}
	for i := range uint64(1000) {
		_ = r.add("k", i+1)
	}
	r.run(time.Minute)
	r.check(t)
	if gaps > 200 {
		t.Fatalf("%d gaps for 1000 batches", gaps)
	}
}

func TestProducerLingers(t *testing.T) {
	r := newRig(1, ProducerConfig{Linger: 50 * time.Millisecond}, 1)
	r.run(time.Second)
	for i := range uint64(10) {
		_ = r.add("k", i+1)
		r.run(time.Millisecond)
	}
	if r.b.batches != 0 {
		t.Fatal("a batch left before the end of its lingering")
	}
	r.p.Flush()
	r.run(20 * time.Millisecond)
	r.check(t)
	if r.b.batches != 1 {
		t.Fatalf("%d batches for ten messages", r.b.batches)
	}
	_ = r.add("k", 11)
	r.run(20 * time.Millisecond)
	if r.b.batches != 1 {
		t.Fatal("after a flush is done, messages linger again")
	}
	r.run(60 * time.Millisecond)
	r.check(t)
}

func TestProducerPushesBack(t *testing.T) {
	r := newRig(1, ProducerConfig{MaxPendingMessages: 20, MaxPendingBytes: 1 << 20}, 1)
	accepted := 0
	for i := range uint64(50) {
		if err := r.add("k", i+1); err == nil {
			accepted++
		} else if err.Reason != model.ReasonThrottled || err.RetryAfter <= 0 {
			t.Fatal(err)
		}
	}
	if n, _ := r.p.Pending(); accepted != 20 || n != 20 {
		t.Fatalf("accepted %d, pending %d of at most 20", accepted, n)
	}
	r.run(5 * time.Second)
	if err := r.add("k", 100); err != nil {
		t.Fatal(err)
	}
	r.run(5 * time.Second)
	r.check(t)
	big := batch.Message{Payload: make([]byte, 700<<10)}
	if err := r.p.Add(r.now, big, 200); err != nil {
		t.Fatal(err)
	}
	if err := r.p.Add(r.now, big, 201); err == nil || err.Reason != model.ReasonThrottled {
		t.Fatalf("a second message above the limit of bytes: %v", err)
	}
}

func TestProducerGivesUp(t *testing.T) {
	refuse := func(code model.Code, reason model.Reason) func(call.Client) *model.Error {
		return func(c call.Client) *model.Error {
			if _, ok := c.(*call.PublishBatch); ok {
				return &model.Error{Code: code, Reason: reason, Message: "as told"}
			}
			return nil
		}
	}
	for _, c := range []struct {
		name   string
		fault  func(call.Client) *model.Error
		code   model.Code
		reason model.Reason
		maybe  bool
	}{
		{"refused all along", refuse(model.Unavailable, model.ReasonNoLeader), model.DeadlineExceeded, "", false},
		{"never answered", refuse(model.Unavailable, model.ReasonUnknownOutcome), model.DeadlineExceeded,
			model.ReasonUnknownOutcome, true},
		{"proxy", refuse(model.Unavailable, ""), model.DeadlineExceeded, model.ReasonUnknownOutcome, true},
		{"invalid", refuse(model.InvalidArgument, ""), model.InvalidArgument, "", false},
		{"fenced", refuse(model.FailedPrecondition, model.ReasonFenced), model.FailedPrecondition,
			model.ReasonFenced, false},
		{"no such topic", func(c call.Client) *model.Error {
			if _, ok := c.(*call.GetTopic); ok {
				return model.Errorf(model.NotFound, "no topic orders")
			}
			return nil
		}, model.NotFound, "", false},
	} {
		r := newRig(7, ProducerConfig{DeliveryTimeout: 5 * time.Second}, 1)
		r.b.fault = c.fault
		if err := r.add("k", 1); err != nil {
			t.Fatal(c.name, err)
		}
		r.run(20 * time.Second)
		o := r.outcomes[1]
		if o.Err == nil || o.Err.Code != c.code || o.Err.Reason != c.reason || o.Maybe != c.maybe {
			t.Errorf("%s: %+v, maybe %v", c.name, o.Err, o.Maybe)
		}
		r.b.fault = nil
		err := r.add("k", 2)
		if c.reason == model.ReasonFenced {
			if err == nil || err.Reason != model.ReasonFenced {
				t.Errorf("%s: a fenced producer took a message: %v", c.name, err)
			}
			continue
		}
		r.run(10 * time.Second)
		if r.outcomes[2].Err != nil {
			t.Errorf("%s: the next message: %v", c.name, r.outcomes[2].Err)
		}
		r.check(t)
	}
}

// TestProducerSeesItWasReplaced: another opened the name while this one was
// about to open a newer epoch; it must not fence the other in turn.
func TestProducerSeesItWasReplaced(t *testing.T) {
	r := newRig(3, ProducerConfig{DeliveryTimeout: 2 * time.Second}, 1)
	_ = r.add("k", 1)
	r.run(time.Second)
	r.b.epoch += 5
	r.b.fault = func(c call.Client) *model.Error {
		if _, ok := c.(*call.PublishBatch); ok {
			return model.Errorf(model.Unavailable, "gone")
		}
		return nil
	}
	_ = r.add("k", 2)
	r.run(3 * time.Second)
	r.b.fault = nil
	if err := r.add("k", 3); err == nil || err.Reason != model.ReasonFenced {
		t.Fatalf("message 3: %v", err)
	}
}

func TestProducerSpreadsKeylessMessages(t *testing.T) {
	r := newRig(5, ProducerConfig{MaxBatchMessages: 5}, 4)
	r.run(time.Second)
	for i := range uint64(200) {
		_ = r.add("", i+1)
	}
	if err := r.p.AddTo(r.now, 3, batch.Message{Payload: make([]byte, 8)}, 999); err != nil {
		t.Fatal(err)
	}
	r.added[999] = ""
	if err := r.p.AddTo(r.now, 4, batch.Message{}, 1000); err == nil || err.Field != "partition" {
		t.Fatalf("partition 4 of 0 to 3: %v", err)
	}
	r.run(time.Second)
	if o := r.outcomes[999]; o.Err != nil || o.Partition != 3 {
		t.Fatalf("%+v", o)
	}
	for p := range model.Partition(4) {
		if n := len(r.b.log(p).messages); n < 50 || n > 51 {
			t.Fatalf("partition %d got %d of 200 messages", p, n)
		}
	}
}

// TestProducerRemembersWhyItIsNotReady: one request's success does not hide the
// other's failure.
func TestProducerRemembersWhyItIsNotReady(t *testing.T) {
	for _, failing := range []string{"*call.GetTopic", "*call.OpenProducerCall"} {
		r := newRig(1, ProducerConfig{}, 1)
		r.b.fault = func(c call.Client) *model.Error {
			if fmt.Sprintf("%T", c) == failing {
				return model.Errorf(model.NotFound, "not there")
			}
			return nil
		}
		for range 20 {
			r.run(time.Second)
			if ok, err := r.p.Ready(); ok || err == nil || err.Code != model.NotFound {
				t.Fatalf("%s fails: ready %v, error %v", failing, ok, err)
			}
		}
	}
}

func TestBackoffStaysWithinBounds(t *testing.T) {
	b := newBackoff(20*time.Millisecond, 2*time.Second, 9)
	for n := 1; n < 100; n++ {
		ceiling := min(2*time.Second, time.Duration(20*math.Pow(2, float64(n-1)))*time.Millisecond)
		if n > 15 {
			ceiling = 2 * time.Second
		}
		if d := b.after(n, nil); d < 0 || d > ceiling {
			t.Fatalf("failure %d: wait %v, at most %v", n, d, ceiling)
		}
		hint := &model.Error{RetryAfter: time.Second}
		if d := b.after(n, hint); d < time.Second {
			t.Fatalf("failure %d: wait %v although told to wait 1s", n, d)
		}
	}
}

// TestProducerSettlesWhatCameAfterAHole: both batches were appended, both
// answers are lost, and the first one's time ends while the second has time
// left. Sent anew in another epoch, the second would be there twice.
func TestProducerSettlesWhatCameAfterAHole(t *testing.T) {
	r := newRig(3, ProducerConfig{DeliveryTimeout: 4 * time.Second, TryTimeout: 3 * time.Second}, 1)
	r.run(time.Second)
	broken := func(c call.Client) (call.ClientResult, *model.Error) {
		res, err := r.b.serve(c)
		if _, ok := c.(*call.PublishBatch); ok && err == nil {
			err = model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, 10*time.Second, "the leader is gone")
		}
		return res, err
	}
	m := batch.Message{Key: []byte("k"), Payload: binary.BigEndian.AppendUint64(nil, 1)}
	if err := r.p.Add(r.now, m, 1); err != nil {
		t.Fatal(err)
	}
	r.added[1] = "k"
	r.p.Flush()
	slowFirst := r.p.Poll(r.now)
	if len(slowFirst) != 1 {
		t.Fatalf("%d requests for one message", len(slowFirst))
	}
	if _, err := r.b.serve(slowFirst[0].Call); err != nil {
		t.Fatal(err)
	}
	r.serve = broken
	r.run(2 * time.Second)
	_ = r.add("k", 2)
	r.run(time.Second)
	r.p.Done(r.now, slowFirst[0].ID, nil, model.Errorf(model.DeadlineExceeded, "no answer"))
	r.run(1500 * time.Millisecond)
	r.serve = nil
	r.run(20 * time.Second)
	r.check(t)
	if !r.outcomes[1].Maybe || !r.outcomes[2].Maybe {
		t.Fatalf("outcomes: %+v", r.outcomes)
	}
}

func TestProducerNamesThePartitionAfterStaleMap(t *testing.T) {
	r := newRig(3, ProducerConfig{}, 2)
	r.run(time.Second)
	_ = r.add("k", 1)
	r.run(time.Second)
	before := r.outcomes[1].Partition
	r.b.partitions, r.b.mapVersion = 7, 2
	for token := uint64(2); token < 30; token++ {
		_ = r.add("k", token)
	}
	r.p.Flush()
	r.run(time.Second)
	_ = r.add("k", 30)
	r.run(time.Second)
	r.check(t)
	if o := r.outcomes[2]; o.Err != nil || o.Partition != before {
		t.Fatalf("a batch that had been sent went elsewhere: %+v, before %d", o, before)
	}
	if o := r.outcomes[30]; o.Err != nil || o.Partition != batch.PartitionFor([]byte("k"), 7) {
		t.Fatalf("a later message is split by the old count: %+v", o)
	}
}
