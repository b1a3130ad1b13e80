package checker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core/model"
)

func TestCorrectHistoriesAreLinearizable(t *testing.T) {
	for name, make := range correct {
		for _, window := range []int{1, 3, 200} {
			b := make()
			report := CheckLinear(&b.h, b.final, Budget{Window: window, Steps: 10_000, Total: 1_000_000})
			if v := report.Verdict(); v.Result != OK {
				t.Errorf("%s, windows of %d: %s: %s", name, window, v.Result, v.Detail)
			}
		}
	}
}

var notLinear = map[string]func() *book{
	"an end goes back": func() *book {
		b := filled()
		b.op(span{1000, 1001}, Op{DescribeTopic: &DescribeTopic{Topic: "t", Partitions: []TopicState{{0, 9, 0}}}})
		return b
	},
	"an end lags behind an acknowledged publish": func() *book {
		b := filled()
		b.fetch(span{206, 207}, 9, 9, 9).Fetch.Fresh = true
		return b
	},
	"an end is ahead": func() *book {
		b := filled()
		b.h.Ops[11].Return = 300
		b.fetch(span{206, 207}, 11, 11, 11).Fetch.Fresh = true
		return b
	},
	"read before it was appended": func() *book {
		b := &book{}
		b.fetch(span{0, 1}, 0, 1, 1)
		b.publish(span{2, 3}, "k", 100, 0)
		return b
	},
	"a read has other contents": func() *book {
		b := filled()
		b.fetch(span{206, 207}, 8, 10, 10).Fetch.Messages[0].Payload = 7
		return b
	},
	"appends against real time": func() *book {
		b := &book{}
		b.publish(span{0, 1}, "k", 101, 1)
		b.publish(span{2, 3}, "l", 100, 0)
		return b
	},
	"a cursor goes back": func() *book {
		b := filled().drained()
		b.describe(span{2000, 2001}, 4, 10)
		return b
	},
	"a cursor appears from nowhere": func() *book {
		b := filled()
		b.describe(span{2000, 2001}, 4, 10)
		return b
	},
	"an ack is lost": func() *book {
		b := filled().drained()
		b.final.Subscriptions[0].Partitions[0].Offset = 4
		return b
	},
	"a pull starts elsewhere": func() *book {
		b := filled()
		b.pull(span{1000, 1001}, "m1", 1, 0, 4)
		b.ack(span{1010, 1011}, "m1", 1, 3)
		b.pull(span{1020, 1021}, "m1", 1, 2, 4).Pull.Sequence = 0
		return b
	},
	"an ack crosses a seek": func() *book {
		b := filled()
		b.pull(span{1000, 1001}, "m1", 1, 0, 10)
		b.seek(span{1010, 1020}, TargetEarliest, 0, 2)
		b.ack(span{1030, 1040}, "m1", 1, 10)
		return b
	},
	"a seek is undone": func() *book {
		b := filled().drained()
		b.seek(span{2000, 2001}, TargetEarliest, 0, 2)
		b.final.Drained = false // the cursor stays at 10
		return b
	},
	"an ack of unknown outcome happens and does not": func() *book {
		b := filled()
		b.ack(span{1000, Open}, "m1", 1, 4)
		b.describe(span{1010, 1011}, 4, 10)
		b.describe(span{1020, 1021}, 0, 10)
		return b
	},
}

func TestIllegalHistoriesAreNotLinearizable(t *testing.T) {
	for name, make := range notLinear {
		for _, window := range []int{1, 3, 200} {
			b := make()
			report := CheckLinear(&b.h, b.final, Budget{Window: window, Steps: 10_000, Total: 1_000_000})
			v := report.Verdict()
			if v.Result != Failed {
				t.Errorf("%s, windows of %d: %s: %s", name, window, v.Result, v.Detail)
				continue
			}
			var picture bytes.Buffer
			err := report.Visualize(&picture, []Annotation{{Tag: "n1", From: 5, To: 9, Text: "crash of n1"}})
			if err != nil || !strings.Contains(picture.String(), "crash of n1") {
				t.Errorf("%s: the picture: %v, %d bytes", name, err, picture.Len())
			}
		}
	}
}

func TestCheckAllJoinsBoth(t *testing.T) {
	b := filled().drained()
	report, _ := CheckAll(&b.h, b.final, DefaultBudget)
	if report.Result() != OK || !strings.HasSuffix(report.Line(), " · linearizable") {
		t.Error(report)
	}
	b.describe(span{2000, 2001}, 4, 10)
	report, linear := CheckAll(&b.h, b.final, DefaultBudget)
	if v, _ := report.Get(NotLinearizable); v.Result != Failed || linear.Visualize(&bytes.Buffer{}, nil) != nil {
		t.Error(report)
	}
	b.h.Ops[0].Outcome = ""
	if report, linear := CheckAll(&b.h, b.final, DefaultBudget); report.Result() != Undecided ||
		linear.Verdict().Result != Undecided {
		t.Errorf("a history that cannot be judged: %s, %v", report, linear)
	}
}

// TestOverlapStaysCheap has every operation open at once but for the order that
// the answers imply: the search must not try the subsets.
func TestOverlapStaysCheap(t *testing.T) {
	b := &book{}
	b.op(span{0, 1}, Op{Create: &Create{Subscription: "t/s"}})
	for i := range model.Offset(150) {
		b.fetch(span{2, 1000}, i, i, i).Fetch.Fresh = true
		b.describe(span{2, 1000}, i, 150)
		b.h.Ops[len(b.h.Ops)-1].Describe.Partitions[0].HighWatermark = i / 2
		b.ack(span{2, Open}, "m1", 1, i)
		b.publish(span{2, Open}, "k", 100+uint64(i), 0)
	}
	b.log(0, 150)
	v := CheckLinear(&b.h, b.final, Budget{Window: 200, Steps: 20_000, Total: 200_000}).Verdict()
	if v.Result != OK {
		t.Errorf("%s: %s", v.Result, v.Detail)
	}
}

func TestSpentBudgetIsNoPass(t *testing.T) {
	b := filled().drained()
	for _, budget := range []Budget{{Window: 200, Steps: 0, Total: 1000}, {Window: 200, Steps: 1000, Total: 5}} {
		v := CheckLinear(&b.h, b.final, budget).Verdict()
		if v.Result != Undecided || v.Detail == "" {
			t.Errorf("%+v: %+v", budget, v)
		}
	}
	if err := (LinearReport{}).Visualize(&bytes.Buffer{}, nil); err == nil {
		t.Error("a picture of nothing")
	}
}

// TestConcurrentCursors draws histories of one cursor from a real register, with
// overlapping and unanswered acks: all are linearizable in few steps, and a
// value moved by hand is noticed in most.
func TestConcurrentCursors(t *testing.T) {
	noticed := 0
	for seed := range uint64(200) {
		b := drawCursor(seed)
		for _, window := range []int{2, 50} {
			v := CheckLinear(&b.h, b.final, Budget{Window: window, Steps: 5000, Total: 1_000_000}).Verdict()
			if v.Result != OK {
				t.Fatalf("seed %d window %d: %s %s", seed, window, v.Result, v.Detail)
			}
		}
		for i := range b.h.Ops {
			if d := b.h.Ops[i].Describe; d != nil && i > 20 {
				d.Partitions[0].Cursor += 3
				break
			}
		}
		results := ""
		for _, window := range []int{2, 50} {
			v := CheckLinear(&b.h, b.final, Budget{Window: window, Steps: 50_000, Total: 1_000_000}).Verdict()
			results += fmt.Sprintf("%s ", v.Result)
		}
		switch results {
		case "FAILED FAILED ":
			noticed++
		case "ok ok ":
		default:
			t.Errorf("seed %d: windows disagree: %s", seed, results)
		}
	}
	if noticed < 100 {
		t.Errorf("only %d of 200 were noticed", noticed)
	}
}

func drawCursor(seed uint64) *book {
	r := rand.New(rand.NewPCG(seed, 1))
	b := &book{}
	b.op(span{0, 1}, Op{Create: &Create{Subscription: "t/s"}})
	cursor := model.Offset(0)
	for i := range 80 {
		at := Moment(10 + 10*i) // when it takes effect
		s := span{at - Moment(r.IntN(5)), at + Moment(r.IntN(60))}
		switch {
		case r.IntN(4) == 0:
			b.describe(s, cursor, 1000).Describe.Partitions[0].HighWatermark = 0
		default:
			next := cursor + model.Offset(r.IntN(8))
			next -= min(next, 3)
			op := b.ack(s, "m", 1, next)
			unknown := r.IntN(5) == 0
			if !unknown || r.IntN(2) == 0 {
				cursor = max(cursor, next)
			}
			op.Ack.Cursor = cursor
			if unknown {
				op.Outcome, op.Return = OutcomeUnknown, Open
			}
		}
	}
	b.final.Subscriptions = []FinalSubscription{{"t/s", []Cursor{{0, cursor}}}}
	return b
}
