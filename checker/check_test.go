package checker

import (
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core/model"
)

// book writes histories by hand. Payload n is published with key "k" unless
// said otherwise; partition is 0, the topic t, the subscription t/s.
type book struct {
	h     History
	final Final
	pulls uint64 // pull sequence last used; one counter serves all members
}

// span is an operation's interval.
type span struct{ call, ret Moment }

func (b *book) op(s span, op Op) *Op {
	op.Call, op.Return, op.Outcome = s.call, s.ret, OutcomeOK
	if s.ret == Open {
		op.Outcome = OutcomeUnknown
	}
	b.h.Ops = append(b.h.Ops, op)
	return &b.h.Ops[len(b.h.Ops)-1]
}

func (b *book) publish(s span, key string, payload uint64, offset model.Offset) *Op {
	return b.op(s, Op{Publish: &Publish{Topic: "t", Messages: []Published{{Key: key, Payload: payload}}, Offset: offset}})
}

func (b *book) produce(s span, epoch model.Epoch, sequence model.Sequence, payload uint64, offset model.Offset) *Op {
	op := b.publish(s, "", payload, offset)
	op.Publish.Producer, op.Publish.Epoch, op.Publish.Sequence = 1, epoch, sequence
	return op
}

// messages are those at [from, to), payload = 100 + offset, append time = 1000 + 10 * offset.
func messages(from, to model.Offset) (list []Message) {
	for o := from; o < to; o++ {
		list = append(list, Message{Offset: o, Payload: 100 + uint64(o), AppendTime: 1000 + 10*model.Wall(o)})
	}
	return list
}

func (b *book) fetch(s span, from, to, high model.Offset) *Op {
	return b.op(s, Op{Fetch: &Fetch{Topic: "t", Offset: from, Messages: messages(from, to), HighWatermark: high}})
}

func (b *book) pull(s span, member model.MemberID, gen model.Generation, from, to model.Offset) *Op {
	b.pulls++
	return b.op(s, Op{Pull: &Pull{Subscription: "t/s", Member: member, Sequence: b.pulls, Generation: gen,
		Messages: messages(from, to)}})
}

func (b *book) ack(s span, member model.MemberID, gen model.Generation, next model.Offset) *Op {
	return b.op(s, Op{Ack: &Ack{Subscription: "t/s", Member: member, Generation: gen, Next: next, Cursor: next}})
}

func (b *book) seek(s span, to Target, cursor model.Offset, gen model.Generation) *Op {
	op := b.op(s, Op{Seek: &Seek{Subscription: "t/s", To: to, Generation: gen, Cursors: []Cursor{{0, cursor}}}})
	if to == TargetOffsets {
		op.Seek.Offsets = []Cursor{{0, cursor}}
	}
	return op
}

func (b *book) describe(s span, cursor, high model.Offset) *Op {
	return b.op(s, Op{Describe: &Describe{Subscription: "t/s",
		Partitions: []SubscriptionState{{Cursor: cursor, HighWatermark: high, Lag: uint64(high - cursor)}}}})
}

// log sets the final log to [start, end).
func (b *book) log(start, end model.Offset) *FinalLog {
	l := FinalLog{Topic: "t", LogStart: start, HighWatermark: end}
	for _, m := range messages(start, end) {
		l.Messages = append(l.Messages, LogMessage{Offset: m.Offset, Payload: m.Payload, AppendTime: m.AppendTime})
	}
	b.final.Logs = []FinalLog{l}
	return &b.final.Logs[0]
}

// filled is a book in which payloads 100 to 109 were published to offsets 0 to
// 9, a subscription made, and the final log told. It ends before 1000.
func filled() *book {
	b := &book{}
	b.op(span{0, 1}, Op{Create: &Create{Topic: "t", Partitions: 1}})
	b.op(span{2, 3}, Op{Create: &Create{Subscription: "t/s", Start: TargetEarliest}})
	for i := range 10 {
		at := Moment(10 + 20*i)
		b.publish(span{at, at + 5}, "k", 100+uint64(i), model.Offset(i))
	}
	b.log(0, 10)
	return b
}

// tagged is filled; the messages of these payloads less 100 have the tag that the
// subscription wants, the others none.
func tagged(wanted ...int) *book {
	b := filled()
	create := b.h.Ops[1].Create
	create.Filtered, create.Tag = true, "red"
	for _, i := range wanted {
		b.h.Ops[2+i].Publish.Messages[0].Tag = "red"
	}
	return b
}

// drained adds that all was pulled and acked, as m1 in generation 1, before 2000.
func (b *book) drained() *book {
	b.pull(span{1000, 1010}, "m1", 1, 0, 6)
	b.ack(span{1020, 1030}, "m1", 1, 4)
	b.pull(span{1040, 1050}, "m1", 1, 6, 10)
	b.ack(span{1060, 1070}, "m1", 1, 10)
	b.final.Subscriptions = []FinalSubscription{{"t/s", []Cursor{{0, 10}}}}
	b.final.Drained = true
	return b
}

func TestCorrectHistoriesPass(t *testing.T) {
	for name, make := range correct {
		t.Run(name, func(t *testing.T) {
			b := make()
			if report := Check(&b.h, b.final); report.Result() != OK {
				t.Error(report)
			}
		})
	}
}

var correct = map[string]func() *book{
	"published and drained": func() *book { return filled().drained() },
	"filtered and drained": func() *book {
		b := tagged(3, 7)
		b.pull(span{1000, 1010}, "m1", 1, 3, 4)
		b.ack(span{1020, 1030}, "m1", 1, 4).Ack.Cursor = 7
		b.pull(span{1040, 1050}, "m2", 2, 7, 8)
		b.ack(span{1060, 1070}, "m2", 2, 8).Ack.Cursor = 8
		b.describe(span{1080, 1090}, 10, 10)
		b.pull(span{1100, 1110}, "m3", 3, 7, 8).Pull.Messages = nil
		b.final.Subscriptions = []FinalSubscription{{"t/s", []Cursor{{0, 10}}}}
		b.final.Drained = true
		return b
	},
	"back to a snapshot": func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.ack(span{1020, 1030}, "m1", 1, 4)
		b.describe(span{1040, 1050}, 4, 0).Describe.Snapshot = "a"
		b.ack(span{1060, 1070}, "m1", 1, 6)
		b.seek(span{1080, 1090}, TargetSnapshot, 4, 2).Seek.Snapshot = "a"
		b.pull(span{1100, 1110}, "m1", 2, 4, 6)
		return b
	},
	"publish of unknown outcome happened": func() *book {
		b := filled()
		b.publish(span{300, Open}, "k", 110, 0)
		b.fetch(span{1000, 1001}, 8, 11, 11)
		b.log(0, 11)
		return b
	},
	"publish of unknown outcome did not happen": func() *book {
		b := filled()
		b.publish(span{300, Open}, "k", 110, 0)
		return b
	},
	"publish given up on happens long after": func() *book {
		b := filled()
		op := b.publish(span{300, 400}, "k", 111, 0)
		op.Outcome = OutcomeUnknown
		b.publish(span{500, 510}, "k", 110, 10)
		b.log(0, 12)
		return b
	},
	"retry without a producer duplicates": func() *book {
		b := filled()
		b.publish(span{300, Open}, "k", 110, 0)
		b.publish(span{400, 410}, "k", 110, 10)
		b.log(0, 12).Messages[11].Payload = 110
		return b
	},
	"retry with a producer is told the first offset": func() *book {
		b := filled()
		b.produce(span{300, Open}, 1, 0, 110, 0)
		b.produce(span{400, 410}, 1, 0, 110, 10).Publish.Duplicate = true
		b.log(0, 11)
		return b
	},
	"concurrent publishes of a key in any order": func() *book {
		b := &book{}
		b.publish(span{0, 10}, "k", 101, 1)
		b.publish(span{5, 15}, "k", 100, 0)
		b.log(0, 2)
		return b
	},
	"a newer epoch goes on": func() *book {
		b := &book{}
		b.produce(span{0, 1}, 1, 0, 100, 0)
		b.produce(span{10, 11}, 2, 0, 101, 1)
		op := b.produce(span{20, 21}, 1, 1, 102, 0)
		op.Outcome, op.Reason = OutcomeRefused, model.ReasonFenced
		b.log(0, 2)
		return b
	},
	"redelivered to the next owner from the cursor": func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.ack(span{1020, 1030}, "m1", 1, 4)
		b.pull(span{1040, 1050}, "m2", 2, 4, 10)
		op := b.ack(span{1060, 1070}, "m1", 1, 6)
		op.Outcome, op.Reason = OutcomeRefused, model.ReasonFenced
		b.ack(span{1080, 1090}, "m2", 2, 10)
		b.describe(span{1100, 1110}, 10, 10)
		b.final.Drained = true
		return b
	},
	"ack of unknown outcome happened": func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.ack(span{1020, Open}, "m1", 1, 4)
		b.pull(span{1040, 1050}, "m2", 2, 4, 10)
		return b
	},
	"ack of unknown outcome did not happen": func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.ack(span{1020, Open}, "m1", 1, 4)
		b.pull(span{1040, 1050}, "m2", 2, 0, 10)
		return b
	},
	"position lost, back to the cursor": func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 4)
		b.pull(span{1020, 1030}, "m1", 1, 4, 8)
		b.ack(span{1040, 1050}, "m1", 1, 2)
		b.pull(span{1060, 1070}, "m1", 1, 2, 8)
		return b
	},
	"late answer of the owner before": func() *book {
		b := filled()
		b.pull(span{1000, 1200}, "m1", 1, 0, 4)
		b.pull(span{1020, 1030}, "m2", 2, 0, 4)
		b.pull(span{1210, 1220}, "m2", 2, 4, 8)
		return b
	},
	"rewind to a moment and replay": func() *book {
		b := filled().drained()
		b.seek(span{2000, 2010}, TargetTime, 4, 2).Seek.Time = 1035
		op := b.ack(span{2020, 2030}, "m1", 1, 10)
		op.Outcome, op.Reason = OutcomeRefused, model.ReasonFenced
		b.describe(span{2040, 2050}, 4, 10)
		b.pull(span{2060, 2070}, "m1", 2, 4, 10)
		b.ack(span{2080, 2090}, "m1", 2, 10)
		return b
	},
	"seek of unknown outcome": func() *book {
		b := filled().drained()
		b.seek(span{2000, Open}, TargetEarliest, 0, 0)
		b.pull(span{2060, 2070}, "m1", 2, 0, 10)
		b.pull(span{2080, 2090}, "m1", 1, 3, 5)
		b.final.Subscriptions[0].Partitions[0].Offset = 0
		b.final.Drained = false
		return b
	},
	"ack and seek at once": func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.seek(span{1020, 1060}, TargetEarliest, 0, 2)
		b.ack(span{1030, 1040}, "m1", 1, 6)
		b.pull(span{1050, 1070}, "m1", 2, 0, 6)
		return b
	},
	"retention moves the cursor": func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 2)
		p := b.pull(span{1020, 1030}, "m1", 1, 5, 10).Pull
		p.Skipped = []Range{{0, 2, 5}}
		b.final.Drained = true
		b.log(5, 10)
		return b
	},
	"seek into the time to come": func() *book {
		b := filled()
		b.seek(span{205, 206}, TargetTime, 10, 2).Seek.Time = 5000
		b.publish(span{210, 220}, "k", 110, 10)
		b.log(0, 11)
		return b
	},
	"a stale fetch that does not claim to be current": func() *book {
		b := filled()
		b.fetch(span{1000, 1001}, 0, 5, 6)
		return b
	},
	"a deleted topic": func() *book {
		b := filled().drained()
		b.op(span{3000, 3001}, Op{Delete: &Delete{Topic: "t"}})
		b.final = Final{Drained: true}
		return b
	},
	"retried pull repeats an acked answer": func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 4).Pull.Sequence = 1
		b.ack(span{1020, 1030}, "m1", 1, 4)
		b.pull(span{1040, 1050}, "m1", 1, 0, 4).Pull.Sequence = 1
		return b
	},
	"blind ack": func() *book {
		b := filled()
		b.ack(span{1020, 1030}, "m1", 1, 4).Ack.Blind = true
		b.pull(span{1040, 1050}, "m1", 1, 4, 10)
		b.ack(span{1060, 1070}, "m1", 1, 10)
		b.final.Drained = true
		return b
	},
}

// TestNobodyKnowsWhatTheFilterLeftOut: of a message that nobody was told of only the
// final log says whether a subscription with a filter was to get it.
func TestNobodyKnowsWhatTheFilterLeftOut(t *testing.T) {
	make := func(known model.Offset) *book {
		b := &book{}
		b.op(span{0, 1}, Op{Create: &Create{Topic: "t", Partitions: 1}})
		b.op(span{2, 3}, Op{Create: &Create{Subscription: "t/s", Start: TargetEarliest, Filtered: true, Tag: "red"}})
		for o := model.Offset(0); o < 6; o++ {
			s := span{Moment(10 + 20*o), Moment(15 + 20*o)}
			if o == 2 || o == 3 && o != known {
				s.ret = Open // its publisher was told nothing
			}
			tag := "red"
			if o == 2 {
				tag = "amber"
			}
			b.publish(s, "", 100+uint64(o), o).Publish.Messages[0].Tag = tag
		}
		b.pull(span{1000, 1010}, "m1", 1, 0, 2)
		b.pull(span{1020, 1030}, "m1", 1, 4, 6)
		return b
	}
	for known, want := range map[model.Offset]Result{0: Undecided, 3: Failed} {
		b := make(known)
		if v, _ := Check(&b.h, b.final).Get(SkippedMessage); v.Result != want {
			t.Errorf("without a final log, %d told: %+v", known, v)
		}
	}
	b := make(0)
	b.log(0, 6)
	if v, _ := Check(&b.h, b.final).Get(SkippedMessage); v.Result != Failed {
		t.Errorf("the final log has it: %+v", v)
	}
}

func TestUndecidedIsNoPass(t *testing.T) {
	b := filled().drained()
	b.final.Logs = nil
	report := Check(&b.h, b.final)
	if v, _ := report.Get(LostWrite); v.Result != Undecided {
		t.Errorf("lost write without a final log: %s", report)
	}
	if report.Result() != Undecided || !strings.HasPrefix(report.Line(), "durable undecided") {
		t.Errorf("the report: %s", report)
	}
	b.h.Ops[3].Call = 5
	if report := Check(&b.h, b.final); report.Result() != Undecided {
		t.Errorf("a history that cannot be judged: %s", report)
	}
}

func TestLine(t *testing.T) {
	b := &book{}
	b.publish(span{0, 1}, "a", 100, 0)
	b.log(0, 1)
	if line := Check(&b.h, b.final).Line(); line != "durable ok · ordered ok · no duplicates" {
		t.Errorf("a publish alone: %s", line)
	}
	b = filled().drained()
	want := "durable ok · ordered ok · no duplicates · reads ok · delivered ok · cursors ok"
	if line := Check(&b.h, b.final).Line(); line != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
	b.log(0, 9)
	line := Check(&b.h, b.final).Line()
	if !strings.HasPrefix(line, "durable FAILED (lost write 1) · ordered ok") {
		t.Errorf("got %s", line)
	}
}
