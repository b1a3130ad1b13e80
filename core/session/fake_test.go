package session

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// world is virtual time with a bad network in it: requests and answers take
// time, overtake each other and get lost.
type world struct {
	now    model.Mono
	rand   *rand.Rand
	events []event
	count  int

	lossy   float64 // share of requests and of answers lost
	refuses float64 // share of requests refused by the broker, retryably
	slow    time.Duration
}

type event struct {
	at    model.Mono
	order int
	do    func()
}

func newWorld(seed uint64) *world {
	return &world{rand: rand.New(rand.NewPCG(seed, 1)), slow: 5 * time.Millisecond}
}

func (w *world) at(d time.Duration, do func()) {
	w.count++
	w.events = append(w.events, event{w.now.Add(d), w.count, do})
}

// step runs the next event up to the given moment and says whether there was one.
func (w *world) step(until model.Mono) bool {
	best := -1
	for i, e := range w.events {
		if b := best; b < 0 || e.at < w.events[b].at || (e.at == w.events[b].at && e.order < w.events[b].order) {
			best = i
		}
	}
	if best < 0 || w.events[best].at > until {
		w.now = max(w.now, until)
		return false
	}
	e := w.events[best]
	w.events = slices.Delete(w.events, best, best+1)
	w.now = max(w.now, e.at)
	e.do()
	return true
}

func (w *world) delay() time.Duration { return time.Duration(w.rand.Int64N(int64(w.slow) + 1)) }

// carry brings a request to the broker and its answer back, or the news that none came.
func (w *world) carry(s Send, serve func(call.Client) (call.ClientResult, *model.Error),
	done func(id uint64, r call.ClientResult, err *model.Error)) {
	answered := false
	finish := func(r call.ClientResult, err *model.Error) {
		if !answered {
			answered = true
			done(s.ID, r, err)
		}
	}
	w.at(s.Deadline, func() { finish(nil, model.Errorf(model.DeadlineExceeded, "no answer")) })
	if w.rand.Float64() < w.lossy {
		return
	}
	w.at(w.delay(), func() {
		r, err := serve(s.Call)
		if w.rand.Float64() < w.lossy {
			return
		}
		w.at(w.delay(), func() { finish(r, err) })
	})
}

// broker is a topic with producers, done as semantics has it, and nothing more.
type broker struct {
	w          *world
	partitions int
	mapVersion uint32
	epoch      model.Epoch
	logs       map[model.Partition]*fakeLog
	forgets    bool // answers SEQUENCE_UNKNOWN once per partition, after the first batch
	fault      func(call.Client) *model.Error
	inFlight   map[model.Partition]int
	batches    int
	largest    uint32
}

type fakeLog struct {
	messages []batch.Message
	epoch    model.Epoch
	expected model.Sequence
	known    map[model.Sequence]remembered
	forgot   bool
	unknown  bool
}

type remembered struct {
	count uint32
	base  model.Offset
}

func newBroker(w *world, partitions int) *broker {
	return &broker{w: w, partitions: partitions, mapVersion: 1, logs: map[model.Partition]*fakeLog{}}
}

func (b *broker) log(p model.Partition) *fakeLog {
	if b.logs[p] == nil {
		b.logs[p] = &fakeLog{known: map[model.Sequence]remembered{}}
	}
	return b.logs[p]
}

func (b *broker) serve(c call.Client) (call.ClientResult, *model.Error) {
	if b.fault != nil {
		if err := b.fault(c); err != nil {
			return nil, err
		}
	}
	if b.w.rand.Float64() < b.w.refuses {
		return nil, model.Reasoned(model.Unavailable, model.ReasonNoLeader, time.Millisecond, "no leader")
	}
	switch c := c.(type) {
	case *call.GetTopic:
		t := model.Topic{Name: c.Name, MapVersion: b.mapVersion, Partitions: make([]model.GroupID, b.partitions)}
		return &call.GetTopicResult{Topic: t}, nil
	case *call.OpenProducerCall:
		b.epoch++
		return &call.OpenProducerCallResult{ID: 1, Epoch: b.epoch}, nil
	case *call.PublishBatch:
		return b.publish(c)
	}
	return nil, model.Errorf(model.Unimplemented, "%T", c)
}

func (b *broker) publish(c *call.PublishBatch) (call.ClientResult, *model.Error) {
	v, err := batch.Parse(c.Batch)
	if err != nil {
		return nil, model.Invalid("batch", "%v", err)
	}
	if v.MapVersion() != 0 && v.MapVersion() < b.mapVersion {
		return nil, model.Reasoned(model.Unavailable, model.ReasonStaleMap, 0, "newer count of partitions")
	}
	l := b.log(c.Partition)
	if v.Producer() == 0 {
		return l.append(v), nil
	}
	switch {
	case v.Epoch() < l.epoch:
		return nil, &model.Error{Code: model.FailedPrecondition, Reason: model.ReasonFenced, Message: "older epoch"}
	case v.Epoch() > l.epoch:
		if v.Sequence() != 0 {
			return nil, &model.Error{Code: model.FailedPrecondition, Reason: model.ReasonSequenceUnknown, Message: "start at 0"}
		}
		l.epoch, l.expected = v.Epoch(), 0
		clear(l.known)
	}
	if b.forgets && !l.forgot && v.Sequence() > 0 && v.Sequence() == l.expected {
		l.forgot, l.unknown = true, true
	}
	if l.unknown {
		if !c.Start {
			return nil, &model.Error{Code: model.FailedPrecondition, Reason: model.ReasonSequenceUnknown, Message: "forgotten"}
		}
		l.unknown, l.expected = false, v.Sequence()
	}
	if k, ok := l.known[v.Sequence()]; ok && k.count == v.Count() {
		return &call.PublishBatchResult{Base: k.base, Duplicate: true}, nil
	}
	switch {
	case v.Sequence() < l.expected:
		return nil, model.Invalid("sequence", "overlaps")
	case v.Sequence() > l.expected:
		return nil, &model.Error{Code: model.FailedPrecondition, Reason: model.ReasonSequenceGap,
			Expected: uint64(l.expected), Message: "gap"}
	}
	r := l.append(v)
	l.known[v.Sequence()] = remembered{v.Count(), r.Base}
	l.expected = v.Sequence() + model.Sequence(v.Count())
	b.batches++
	b.largest = max(b.largest, v.Count())
	return r, nil
}

func (l *fakeLog) append(v batch.View) *call.PublishBatchResult {
	messages, err := v.Messages(nil)
	if err != nil {
		panic(err)
	}
	r := &call.PublishBatchResult{Base: model.Offset(len(l.messages))}
	l.messages = append(l.messages, messages...)
	return r
}
