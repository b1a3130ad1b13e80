package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/partition"
)

func (n *rigNode) machine() *partition.Machine {
	m := n.s.byGroup[firstPartition]
	if m == nil {
		return nil
	}
	p, _ := m.partition()
	return p
}

// lapse has n3 miss so much that its next message is gone everywhere: it has to
// empty its segments and begin anew, higher up.
func (r *rig) lapse() {
	r.t.Helper()
	n1, n3 := r.nodes["n1"], r.nodes["n3"]
	end := n3.machine().HighWatermark()
	n3.crash()
	payload := strings.Repeat("x", 8<<10)
	r.until("the log to move on", func() bool {
		r.publish("n1", "orders", payload)
		return n1.machine().LogStart() > end
	})
}

func newLapsing(t *testing.T, limits Limits) *rig {
	limits.WindowEntries, limits.WindowBytes, limits.HotBytes, limits.SegmentBytes = 4, 1, 1, 16<<10
	r := newRig(t, 3, limits)
	r.cfg.Timing.CheckpointAfter = time.Hour
	r.startAll()
	if _, err := r.call("n1", &call.Admin{Request: &call.CreateTopic{Name: "orders", Partitions: 1,
		Settings: model.TopicSettings{Replicas: 3, RetentionBytes: 32 << 10}}}); err != nil {
		t.Fatal(err)
	}
	r.publish("n1", "orders", "m")
	r.until("n3 to follow", func() bool { m := r.nodes["n3"].machine(); return m != nil && m.HighWatermark() == 1 })
	return r
}

func (r *rig) caughtUp() {
	r.t.Helper()
	n1, n3 := r.nodes["n1"], r.nodes["n3"]
	r.until("n3 to catch up", func() bool { return n3.machine().HighWatermark() == n1.machine().HighWatermark() })
	st := n3.stores[firstPartition]
	if st.start > n3.machine().LogStart() || st.end != n3.machine().HighWatermark() {
		r.t.Fatalf("n3's segments hold [%d, %d), its state says [%d, %d)", st.start, st.end,
			n3.machine().LogStart(), n3.machine().HighWatermark())
	}
}

// A checkpoint ends the generation that says that the segments were emptied;
// the next one must say it again.
func TestACheckpointWhileSegmentsBeginAnew(t *testing.T) {
	r := newLapsing(t, Limits{CheckpointBytes: 1})
	n3 := r.nodes["n3"]
	r.checkpoint(n3)
	r.lapse()
	emptied := false
	r.stop = func(n *rigNode, e Effect) bool {
		if _, ok := e.(SegmentReset); ok && n == n3 && !emptied {
			emptied = true
			r.cut = func(_, to model.NodeID) bool { return to == "n3" } // the copy does not get on
		}
		return false
	}
	n3.start()
	r.until("the segments to be emptied", func() bool { return emptied })
	r.checkpoint(n3)
	n3.crash()
	r.cut = nil
	n3.start() // fails the test if segments are missing
	r.caughtUp()
}

// After a second snapshot the second emptying is history, too.
func TestTwoLapsesInOneGeneration(t *testing.T) {
	r := newLapsing(t, Limits{})
	n3 := r.nodes["n3"]
	for lap := range 3 {
		r.lapse()
		n3.start()
		r.caughtUp()
		if got := n3.stores[firstPartition]; got.start == 0 {
			t.Fatalf("lapse %d emptied nothing", lap)
		}
	}
	r.publish("n1", "orders", "the last")
	r.caughtUp()
	n3.crash()
	n3.start()
	r.publish("n1", "orders", fmt.Sprint("after"))
	r.caughtUp()
}
