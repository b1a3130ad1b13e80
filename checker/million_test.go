package checker

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

// drawHistory makes a correct history of n operations or a few more: publishes
// with retries, fetches, two subscriptions whose members come, go and rewind.
func drawHistory(seed uint64, n, partitions int) (*History, Final) {
	d := &drawer{r: rand.New(rand.NewPCG(seed, 2)), logs: make([]FinalLog, partitions), h: &History{}}
	for i := range d.logs {
		d.logs[i] = FinalLog{Topic: "t", Partition: model.Partition(i)}
	}
	for _, name := range []string{"t/a", "t/b"} {
		d.add(Op{Create: &Create{Subscription: name}}, true)
		d.subs = append(d.subs, drawnSub{name: name, generation: 1, cursors: make([]model.Offset, partitions),
			members: make([]int, partitions), since: make([]model.Generation, partitions)})
	}
	for len(d.h.Ops) < n {
		switch k := d.r.IntN(100); {
		case k < 50:
			d.publish()
		case k < 60:
			d.fetch()
		default:
			d.consume(&d.subs[d.r.IntN(2)])
		}
	}
	final := Final{Logs: d.logs}
	for _, s := range d.subs {
		f := FinalSubscription{Subscription: s.name}
		for i, c := range s.cursors {
			f.Partitions = append(f.Partitions, Cursor{model.Partition(i), c})
		}
		final.Subscriptions = append(final.Subscriptions, f)
	}
	return d.h, final
}

type drawer struct {
	r    *rand.Rand
	h    *History
	now  Moment
	logs []FinalLog
	subs []drawnSub
	sent uint64
}

type drawnSub struct {
	name       string
	generation model.Generation
	cursors    []model.Offset
	members    []int
	since      []model.Generation
	pulls      uint64
}

// add appends an operation that takes effect about now.
func (d *drawer) add(op Op, answered bool) {
	d.now += 1000
	op.Client = ClientID(d.r.IntN(50))
	op.Call, op.Return, op.Outcome = d.now, d.now+Moment(d.r.IntN(900)), OutcomeOK
	if !answered {
		op.Return, op.Outcome = Open, OutcomeUnknown
	}
	d.h.Ops = append(d.h.Ops, op)
}

func (d *drawer) publish() {
	l := &d.logs[d.r.IntN(len(d.logs))]
	p := Publish{Topic: "t", Partition: l.Partition, Producer: model.ProducerID(1 + l.Partition), Epoch: 1,
		Sequence: model.Sequence(l.HighWatermark), Offset: l.HighWatermark}
	for range 1 + d.r.IntN(3) {
		d.sent++
		p.Messages = append(p.Messages, Published{"key" + strconv.Itoa(d.r.IntN(1000)), d.sent})
		l.Messages = append(l.Messages, LogMessage{Offset: l.HighWatermark, Payload: d.sent, AppendTime: model.Wall(d.now),
			Producer: p.Producer, Epoch: 1, Sequence: model.Sequence(l.HighWatermark)})
		l.HighWatermark++
	}
	if d.r.IntN(50) == 0 { // the answer is lost, the retry finds it there
		lost := p
		lost.Offset = 0
		d.add(Op{Publish: &lost}, false)
		p.Duplicate = true
	}
	d.add(Op{Publish: &p}, true)
}

func (d *drawer) take(l *FinalLog, from model.Offset, partition model.Partition) (list []Message) {
	for o := from; o < min(from+4, l.HighWatermark); o++ {
		m := l.Messages[o]
		list = append(list, Message{Partition: partition, Offset: o, Payload: m.Payload, AppendTime: m.AppendTime})
	}
	return list
}

func (d *drawer) fetch() {
	l := &d.logs[d.r.IntN(len(d.logs))]
	from := l.HighWatermark - min(l.HighWatermark, model.Offset(d.r.IntN(20)))
	d.add(Op{Fetch: &Fetch{Topic: "t", Partition: l.Partition, Offset: from, Messages: d.take(l, from, 0),
		HighWatermark: l.HighWatermark, Fresh: true}}, true)
}

func (d *drawer) consume(s *drawnSub) {
	i := d.r.IntN(len(d.logs))
	part, log := model.Partition(i), &d.logs[i]
	switch k := d.r.IntN(1000); {
	case k == 0 && s.generation < 200: // rewind
		s.generation++
		s.cursors[i] -= min(s.cursors[i], 50)
		s.since[i] = s.generation
		c := Cursor{part, s.cursors[i]}
		d.add(Op{Seek: &Seek{Subscription: s.name, To: TargetOffsets, Offsets: []Cursor{c},
			Partitions: []model.Partition{part}, Generation: s.generation, Cursors: []Cursor{c}}}, true)
		return
	case k < 5: // another owner
		s.generation++
		s.members[i]++
		s.since[i] = s.generation
	}
	member := model.MemberID("m" + strconv.Itoa(s.members[i]))
	list := d.take(log, s.cursors[i], part)
	s.pulls++
	d.add(Op{Pull: &Pull{Subscription: s.name, Member: member, Sequence: s.pulls, Generation: s.generation,
		Messages: list}}, true)
	if n := len(list); n > 0 {
		s.cursors[i] = list[n-1].Offset + 1
		d.add(Op{Ack: &Ack{Subscription: s.name, Member: member, Generation: s.generation, Partition: part,
			Next: s.cursors[i], Cursor: s.cursors[i]}}, d.r.IntN(20) != 0)
	}
}

// memory is what the heap holds now, garbage left out.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMillion prints what a million operations cost. It judges the results; time
// and memory are for people to read, since they depend on the machine.
func TestMillion(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 20_000
	}
	before := memory()
	h, final := drawHistory(7, n, 16)
	held := memory() - before
	var start runtime.MemStats
	runtime.ReadMemStats(&start)
	began := time.Now()
	report := Check(h, final)
	took := time.Since(began)
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	if report.Result() != OK {
		t.Fatal(report)
	}
	t.Logf("%d operations: %s", len(h.Ops), report.Line())
	t.Logf("the history holds %d MB; Check took %v and allocated %d MB in all, heap taken from the system %d MB",
		held>>20, took.Round(time.Millisecond), (after.TotalAlloc-start.TotalAlloc)>>20, after.HeapSys>>20)
	began = time.Now()
	linear := CheckLinear(h, final, DefaultBudget).Verdict()
	if linear.Result != OK {
		t.Fatalf("%s: %s", linear.Result, linear.Detail)
	}
	t.Logf("CheckLinear took %v for %d operations", time.Since(began).Round(time.Millisecond), linear.Checked)
}

// TestDrawnHistories plants one change in drawn histories and wants it noticed.
func TestDrawnHistories(t *testing.T) {
	changes := map[string]func(h *History, f *Final) bool{
		LostWrite: func(_ *History, f *Final) bool {
			l := &f.Logs[1]
			l.HighWatermark--
			l.Messages = l.Messages[:len(l.Messages)-1]
			return true
		},
		Inconsistent: func(h *History, _ *Final) bool {
			for i := range h.Ops {
				if p := h.Ops[i].Pull; p != nil && i > len(h.Ops)/2 && len(p.Messages) > 0 {
					p.Messages[0].Payload++
					return true
				}
			}
			return false
		},
		AckAfterSeek: func(h *History, _ *Final) bool {
			for i, sought := 0, (*Seek)(nil); i < len(h.Ops); i++ {
				if s := h.Ops[i].Seek; s != nil {
					sought = s
				}
				if a := h.Ops[i].Ack; a != nil && sought != nil && h.Ops[i].Outcome == OutcomeOK &&
					a.Subscription == sought.Subscription && a.Partition == sought.Partitions[0] {
					a.Generation = sought.Generation - 1
					return true
				}
			}
			return false
		},
		CursorBack: func(_ *History, f *Final) bool {
			f.Subscriptions[0].Partitions[2].Offset--
			return true
		},
	}
	for seed := range uint64(6) {
		for name, change := range changes {
			h, final := drawHistory(seed, 5000, 4)
			if report := Check(h, final); report.Result() != OK {
				t.Fatalf("seed %d: %s", seed, report)
			}
			changed := change(h, &final)
			if v, _ := Check(h, final).Get(name); changed && v.Result != Failed {
				t.Errorf("seed %d: %s was not noticed", seed, name)
			}
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	h, final := drawHistory(7, 100_000, 16)
	b.ReportAllocs()
	for b.Loop() {
		if Check(h, final).Result() != OK {
			b.Fatal("not ok")
		}
	}
	b.ReportMetric(float64(len(h.Ops))*float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}
