package checker

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core/model"
)

// planted are histories with one error each.
var planted = []struct {
	verdict string
	name    string
	make    func() *book
}{
	{LostWrite, "acked above the final end", func() *book {
		b := filled()
		b.log(0, 9)
		return b
	}},
	{LostWrite, "acked, another payload in its place", func() *book {
		b := filled()
		b.publish(span{300, 310}, "x", 999, 4)
		return b
	}},
	{LostWrite, "dedupe swallowed it", func() *book {
		b := filled()
		b.produce(span{300, 310}, 1, 0, 200, 3).Publish.Duplicate = true
		return b
	}},
	{PhantomWrite, "refused, yet written", func() *book {
		b := filled()
		op := b.publish(span{300, 310}, "x", 110, 0)
		op.Outcome, op.Reason = OutcomeRefused, model.ReasonThrottled
		b.log(0, 11)
		return b
	}},
	{PhantomWrite, "never published", func() *book {
		b := filled()
		b.log(0, 11)
		return b
	}},
	{Gap, "hole in the final log", func() *book {
		b := &book{}
		b.publish(span{0, 1}, "k", 100, 0)
		l := b.log(0, 3)
		l.Messages = l.Messages[:1]
		return b
	}},
	{Gap, "hole in a fetch", func() *book {
		b := filled()
		op := b.fetch(span{1000, 1001}, 2, 6, 10)
		op.Fetch.Messages = slices.Delete(op.Fetch.Messages, 1, 2)
		return b
	}},
	{Inconsistent, "fetch and final differ", func() *book {
		b := filled()
		b.fetch(span{1000, 1001}, 2, 6, 10).Fetch.Messages[1].Payload = 108
		return b
	}},
	{Inconsistent, "append times differ", func() *book {
		b := filled()
		b.pull(span{1000, 1001}, "m1", 1, 0, 6).Pull.Messages[1].AppendTime = 7
		return b
	}},
	{Inconsistent, "acked at another offset", func() *book {
		b := filled()
		b.h.Ops[5].Publish.Offset = 7
		return b
	}},
	{ReadOfFuture, "read, then gone", func() *book {
		b := filled()
		b.publish(span{300, Open}, "k", 110, 0)
		b.fetch(span{1000, 1001}, 8, 11, 11)
		return b
	}},
	{ReadOfFuture, "above its own high watermark", func() *book {
		b := filled()
		b.fetch(span{1000, 1001}, 0, 6, 5)
		return b
	}},
	{ReadOfFuture, "before it was published", func() *book {
		b := filled()
		op := b.fetch(span{0, 9}, 0, 1, 1)
		b.h.Ops = append([]Op{*op}, b.h.Ops[:len(b.h.Ops)-1]...)
		return b
	}},
	{WatermarkBack, "a fresh fetch shows less", func() *book {
		b := filled()
		b.fetch(span{1000, 1001}, 9, 9, 9).Fetch.Fresh = true
		return b
	}},
	{WatermarkBack, "describe shows less", func() *book {
		b := filled()
		b.op(span{1000, 1001}, Op{DescribeTopic: &DescribeTopic{Topic: "t", Partitions: []TopicState{{0, 9, 0}}}})
		return b
	}},
	{Reordered, "two of a key", func() *book {
		b := filled()
		m, n := b.h.Ops[4].Publish, b.h.Ops[5].Publish
		m.Messages, n.Messages = n.Messages, m.Messages
		m.Offset, n.Offset = n.Offset, m.Offset
		return b
	}},
	{Reordered, "sequences of a producer", func() *book {
		b := &book{}
		b.produce(span{0, 10}, 1, 0, 101, 1)
		b.produce(span{1, 10}, 1, 1, 100, 0)
		b.log(0, 2)
		return b
	}},
	{AppendTimeBack, "in the log", func() *book {
		b := filled()
		b.final.Logs[0].Messages[5].AppendTime = 3
		return b
	}},
	{Duplicate, "idempotent retry appended again", func() *book {
		b := filled()
		b.produce(span{300, Open}, 1, 0, 110, 0)
		b.produce(span{400, 410}, 1, 0, 110, 11)
		b.log(0, 12).Messages[11].Payload = 110
		return b
	}},
	{Duplicate, "one attempt, two copies", func() *book {
		b := filled()
		b.log(0, 11).Messages[10].Payload = 104
		return b
	}},
	{Duplicate, "stored sequence twice", func() *book {
		b := filled()
		for _, i := range []int{3, 7} {
			m := &b.final.Logs[0].Messages[i]
			m.Producer, m.Epoch, m.Sequence = 1, 1, 5
		}
		return b
	}},
	{FencedProducer, "older epoch after newer", func() *book {
		b := &book{}
		b.produce(span{0, 1}, 1, 0, 100, 0)
		b.produce(span{10, 11}, 2, 0, 101, 1)
		b.produce(span{20, 21}, 1, 1, 102, 2)
		b.log(0, 3)
		return b
	}},
	{FencedProducer, "after an explicit fence", func() *book {
		b := &book{}
		b.produce(span{0, 1}, 1, 0, 100, 0)
		b.op(span{10, 11}, Op{OpenProducer: &OpenProducer{Name: "p", Fence: true, Topic: "t", Producer: 1, Epoch: 2}})
		b.produce(span{20, 21}, 1, 1, 101, 1)
		b.log(0, 2)
		return b
	}},
	{NonMonotonic, "within one answer", func() *book {
		b := filled()
		m := b.pull(span{1000, 1001}, "m1", 1, 0, 6).Pull.Messages
		m[2], m[3] = m[3], m[2]
		b.h.Ops[len(b.h.Ops)-1].Pull.Messages = slices.Delete(m, 4, 6)
		return b
	}},
	{NonMonotonic, "back to where no cursor was", func() *book {
		b := filled()
		b.pull(span{1000, 1001}, "m1", 1, 0, 6)
		b.ack(span{1010, 1011}, "m1", 1, 2)
		b.pull(span{1020, 1021}, "m1", 1, 4, 8)
		return b
	}},
	{SkippedMessage, "between answers", func() *book {
		b := filled()
		b.pull(span{1000, 1001}, "m1", 1, 0, 4)
		b.pull(span{1020, 1021}, "m1", 1, 5, 8)
		return b
	}},
	{SkippedMessage, "within an answer", func() *book {
		b := filled()
		p := b.pull(span{1000, 1001}, "m1", 1, 0, 6).Pull
		p.Messages = slices.Delete(p.Messages, 3, 4)
		return b
	}},
	{SkippedMessage, "the first of a new owner is not the cursor", func() *book {
		b := filled()
		b.pull(span{1000, 1001}, "m1", 1, 0, 6)
		b.ack(span{1010, 1011}, "m1", 1, 2)
		b.pull(span{1020, 1021}, "m2", 2, 6, 8)
		return b
	}},
	{SkippedMessage, "after a seek back", func() *book {
		b := filled().drained()
		b.seek(span{2000, 2001}, TargetEarliest, 0, 2)
		b.pull(span{2010, 2011}, "m1", 2, 3, 10)
		b.final.Drained = false
		b.final.Subscriptions = nil
		return b
	}},
	{UnseenMessage, "never delivered", func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.ack(span{1060, 1070}, "m1", 1, 10)
		b.final.Drained = true
		return b
	}},
	{UnseenMessage, "not drained, though said so", func() *book {
		b := filled().drained()
		b.final.Logs[0].Messages = append(b.final.Logs[0].Messages, LogMessage{Offset: 10, Payload: 110})
		b.final.Logs[0].HighWatermark = 11
		b.publish(span{2000, Open}, "k", 110, 0)
		return b
	}},
	{Unwanted, "of another tag", func() *book {
		b := tagged(3, 7)
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		return b
	}},
	{SkippedMessage, "a wanted one among unwanted ones", func() *book {
		b := tagged(3, 5, 7)
		b.pull(span{1000, 1010}, "m1", 1, 3, 4)
		b.pull(span{1020, 1030}, "m1", 1, 7, 8)
		return b
	}},
	{UnseenMessage, "a wanted one among unwanted ones", func() *book {
		b := tagged(3, 7)
		b.pull(span{1000, 1010}, "m1", 1, 3, 4)
		b.ack(span{1060, 1070}, "m1", 1, 8).Ack.Cursor = 10
		b.final.Drained = true
		return b
	}},
	{SeekWrong, "to a snapshot", func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.ack(span{1020, 1030}, "m1", 1, 4)
		b.describe(span{1040, 1050}, 4, 0).Describe.Snapshot = "a"
		b.seek(span{1060, 1070}, TargetSnapshot, 3, 2).Seek.Snapshot = "a"
		return b
	}},
	{TwoOwners, "in one generation", func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.pull(span{1020, 1030}, "m2", 1, 0, 6)
		return b
	}},
	{CursorBack, "describe shows less", func() *book {
		b := filled().drained()
		b.describe(span{2000, 2001}, 4, 10)
		return b
	}},
	{CursorBack, "the final cursor is less", func() *book {
		b := filled().drained()
		b.final.Subscriptions[0].Partitions[0].Offset = 4
		b.final.Drained = false
		return b
	}},
	{CursorBack, "an ack did nothing", func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.ack(span{1020, 1030}, "m1", 1, 4).Ack.Cursor = 2
		return b
	}},
	{AckAfterSeek, "a late ack after a rewind", func() *book {
		b := filled().drained()
		b.seek(span{2000, 2001}, TargetEarliest, 0, 2)
		b.ack(span{2010, 2011}, "m1", 1, 10)
		b.final = Final{Logs: b.final.Logs}
		return b
	}},
	{StaleAck, "of the owner before", func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.pull(span{1020, 1030}, "m2", 2, 0, 6)
		b.ack(span{1040, 1050}, "m1", 1, 6)
		return b
	}},
	{RefusedAck, "the next owner starts behind it", func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		op := b.ack(span{1020, 1050}, "m1", 1, 6)
		op.Outcome, op.Reason = OutcomeRefused, model.ReasonFenced
		b.pull(span{1060, 1070}, "m2", 2, 6, 10)
		return b
	}},
	{Redelivered, "below an answered ack", func() *book {
		b := filled()
		b.pull(span{1000, 1010}, "m1", 1, 0, 6)
		b.ack(span{1040, 1050}, "m1", 1, 6)
		b.pull(span{1060, 1070}, "m2", 2, 0, 6)
		return b
	}},
	{SeekWrong, "time: too far", func() *book {
		b := filled().drained()
		b.seek(span{2000, 2001}, TargetTime, 5, 2).Seek.Time = 1040
		b.final = Final{Logs: b.final.Logs}
		return b
	}},
	{SeekWrong, "time: too early", func() *book {
		b := filled().drained()
		b.seek(span{2000, 2001}, TargetTime, 3, 2).Seek.Time = 1040
		b.final = Final{Logs: b.final.Logs}
		return b
	}},
	{SeekWrong, "latest is stale", func() *book {
		b := filled()
		b.seek(span{2000, 2001}, TargetLatest, 9, 2)
		return b
	}},
	{SeekWrong, "earliest is not", func() *book {
		b := filled()
		b.seek(span{2000, 2001}, TargetEarliest, 1, 2)
		return b
	}},
	{SeekWrong, "offset is another", func() *book {
		b := filled()
		b.seek(span{2000, 2001}, TargetOffsets, 6, 2).Seek.Offsets[0].Offset = 5
		return b
	}},
}

// Each planted error is named by the verdict it is of, from a file as from memory,
// and by no other that does not follow from it.
func TestPlantedErrorsAreNamed(t *testing.T) {
	named := map[string]bool{}
	for _, c := range planted {
		t.Run(c.verdict+"/"+c.name, func(t *testing.T) {
			b := c.make()
			var file bytes.Buffer
			if err := Write(&file, &b.h, b.final); err != nil {
				t.Fatal(err)
			}
			h, final, err := Read(&file)
			if err != nil {
				t.Fatal(err)
			}
			report := Check(h, final)
			v, _ := report.Get(c.verdict)
			if v.Result != Failed {
				t.Fatalf("not seen: %s", report)
			}
			if v.Detail == "" || v.Count == 0 {
				t.Fatalf("without detail: %+v", v)
			}
			if !strings.Contains(report.Line(), "FAILED ("+c.verdict) && !strings.Contains(report.Line(), ", "+c.verdict) {
				t.Errorf("the line does not name it: %s", report.Line())
			}
			for _, other := range report.Failures() {
				if other.Name != c.verdict && !follows(c.verdict, other.Name) {
					t.Errorf("also %s: %s %v", other.Name, other.Detail, other.Ops)
				}
			}
		})
		named[c.verdict] = true
	}
	for _, name := range order {
		if !named[name] {
			t.Errorf("no planted error for %s", name)
		}
	}
}

// follows says that one error cannot be had without the other showing, too.
func follows(planted, other string) bool {
	switch planted {
	case LostWrite:
		return other == Inconsistent || other == ReadOfFuture || other == WatermarkBack
	case ReadOfFuture:
		return other == WatermarkBack
	case NonMonotonic:
		return other == SkippedMessage
	case SkippedMessage:
		return other == UnseenMessage
	case TwoOwners, StaleAck:
		return false
	case AckAfterSeek, SeekWrong:
		return other == CursorBack
	case FencedProducer, Duplicate:
		return other == LostWrite
	}
	return false
}
