package checker_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/checker/drawn"
)

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
	h, final := drawn.History(7, n, 16)
	held := memory() - before
	var start runtime.MemStats
	runtime.ReadMemStats(&start)
	began := time.Now()
	report := checker.Check(h, final)
	took := time.Since(began)
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	if report.Result() != checker.OK {
		t.Fatal(report)
	}
	t.Logf("%d operations: %s", len(h.Ops), report.Line())
	t.Logf("the history holds %d MB; Check took %v and allocated %d MB in all, heap taken from the system %d MB",
		held>>20, took.Round(time.Millisecond), (after.TotalAlloc-start.TotalAlloc)>>20, after.HeapSys>>20)
	began = time.Now()
	linear := checker.CheckLinear(h, final, checker.DefaultBudget).Verdict()
	if linear.Result != checker.OK {
		t.Fatalf("%s: %s", linear.Result, linear.Detail)
	}
	t.Logf("CheckLinear took %v for %d operations", time.Since(began).Round(time.Millisecond), linear.Checked)
}

// TestDrawnHistories plants one change in drawn histories and wants it noticed.
func TestDrawnHistories(t *testing.T) {
	changes := map[string]func(h *checker.History, f *checker.Final) bool{
		checker.LostWrite: func(_ *checker.History, f *checker.Final) bool {
			l := &f.Logs[1]
			l.HighWatermark--
			l.Messages = l.Messages[:len(l.Messages)-1]
			return true
		},
		checker.Inconsistent: func(h *checker.History, _ *checker.Final) bool {
			for i := range h.Ops {
				if p := h.Ops[i].Pull; p != nil && i > len(h.Ops)/2 && len(p.Messages) > 0 {
					p.Messages[0].Payload++
					return true
				}
			}
			return false
		},
		checker.AckAfterSeek: func(h *checker.History, _ *checker.Final) bool {
			for i, sought := 0, (*checker.Seek)(nil); i < len(h.Ops); i++ {
				if s := h.Ops[i].Seek; s != nil {
					sought = s
				}
				if a := h.Ops[i].Ack; a != nil && sought != nil && h.Ops[i].Outcome == checker.OutcomeOK &&
					a.Subscription == sought.Subscription && a.Partition == sought.Partitions[0] {
					a.Generation = sought.Generation - 1
					return true
				}
			}
			return false
		},
		checker.CursorBack: func(_ *checker.History, f *checker.Final) bool {
			f.Subscriptions[0].Partitions[2].Offset--
			return true
		},
	}
	for seed := range uint64(6) {
		for name, change := range changes {
			h, final := drawn.History(seed, 5000, 4)
			if report := checker.Check(h, final); report.Result() != checker.OK {
				t.Fatalf("seed %d: %s", seed, report)
			}
			changed := change(h, &final)
			if v, _ := checker.Check(h, final).Get(name); changed && v.Result != checker.Failed {
				t.Errorf("seed %d: %s was not noticed", seed, name)
			}
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	h, final := drawn.History(7, 100_000, 16)
	b.ReportAllocs()
	for b.Loop() {
		if checker.Check(h, final).Result() != checker.OK {
			b.Fatal("not ok")
		}
	}
	b.ReportMetric(float64(len(h.Ops))*float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}
