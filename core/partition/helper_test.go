package partition

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/group/grouptest"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

const testTopic model.TopicID = 7

// lead makes a partition that leads, of a topic without a set retention.
func lead(t testing.TB, limits Limits) (*grouptest.Host, *Machine) {
	t.Helper()
	m := New(Config{Group: 1024, Topic: testTopic, Limits: limits})
	h := grouptest.New(m)
	putTopic(h, 1, model.TopicSettings{})
	h.Lead()
	h.Settle()
	return h, m
}

func putTopic(h *grouptest.Host, mapVersion uint32, s model.TopicSettings) {
	h.Cat.PutTopic(&model.Topic{ID: testTopic, Name: "orders", MapVersion: mapVersion, Settings: s})
}

// messages makes a batch of n messages of 10 bytes each.
func messages(n int, o batch.Options) batch.View {
	msgs := make([]batch.Message, n)
	for i := range msgs {
		msgs[i].Payload = []byte("0123456789")
	}
	return batch.Encode(msgs, o)
}

func from(p model.ProducerID, e model.Epoch, s model.Sequence) batch.Options {
	return batch.Options{Producer: p, Epoch: e, Sequence: s}
}

func put(t testing.TB, h *grouptest.Host, v batch.View) *call.Appended {
	t.Helper()
	resp, err := h.Do(&call.Append{Batch: v})
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return resp.(*call.Appended)
}

// fill appends n batches of one message each, gap of time apart.
func fill(t testing.TB, h *grouptest.Host, n int, gap time.Duration) {
	t.Helper()
	for range n {
		h.Advance(gap)
		put(t, h, messages(1, batch.Options{}))
	}
}

func wantErr(t testing.TB, err *model.Error, code model.Code, reason model.Reason) {
	t.Helper()
	if err == nil || err.Code != code || err.Reason != reason {
		t.Fatalf("got error %+v; want code %d, reason %q", err, code, reason)
	}
}

func answered(t testing.TB, h *grouptest.Host, ref group.Ref) grouptest.Answer {
	t.Helper()
	a, ok := h.Answers[ref]
	if !ok {
		t.Fatalf("request %d has no answer", ref)
	}
	return a
}

func waiting(t testing.TB, h *grouptest.Host, ref group.Ref) {
	t.Helper()
	if a, ok := h.Answers[ref]; ok {
		t.Fatalf("request %d is answered already: %+v", ref, a)
	}
}

// offsets lists [base, next) of each batch of a run.
func offsets(t testing.TB, run []byte) [][2]model.Offset {
	t.Helper()
	list, err := batch.Split(run)
	if err != nil {
		t.Fatal(err)
	}
	var out [][2]model.Offset
	for _, v := range list {
		out = append(out, [2]model.Offset{v.Base(), v.Next()})
	}
	return out
}

func encodeCommand(c command) []byte { return wire.Encode(&c) }

func appendOf(v batch.View) *call.Append { return &call.Append{Batch: v} }
