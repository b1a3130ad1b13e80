package core

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// Segments go only once the journal says durably that the replica is gone:
// recovery would miss them otherwise.
func TestACrashBetweenDropAndRemoval(t *testing.T) {
	r := newRig(t, 1, Limits{CheckpointBytes: 1})
	r.startAll()
	n := r.nodes["n1"]
	r.createTopic("orders", 1, 1)
	r.publish("n1", "orders", "m0")
	r.checkpoint(n)
	crashed := false
	r.stop = func(n *rigNode, e Effect) bool {
		reset, ok := e.(SegmentReset)
		crashed = crashed || ok && reset.Remove
		return ok && reset.Remove
	}
	n.step(Request{ID: 1, Call: &call.Admin{Request: &call.DeleteTopic{Name: "orders"}}, Deadline: r.now.Add(time.Minute)})
	for range 100 {
		if r.run(10 * time.Millisecond); crashed {
			break
		}
	}
	if !crashed {
		t.Fatal("the segments were never removed")
	}
	r.stop = nil
	n.start() // fails the test if segments are missing
	r.run(time.Second)
	if n.s.Replica(firstPartition) != nil || len(n.stores) != 0 {
		t.Fatal("the replica came back for good")
	}
}

// A replica that is dropped and comes again in one step begins its segments
// behind the removal of the old ones.
func TestDroppedAndCreatedInOneStep(t *testing.T) {
	r := newRig(t, 1, Limits{})
	r.startAll()
	n := r.nodes["n1"]
	r.createTopic("orders", 1, 1)
	r.publish("n1", "orders", "m0")
	m := n.s.byGroup[firstPartition]
	g := *n.s.mustGroup(t, firstPartition)
	n.hold = true
	n.s.Step(r.instant(), Tick{})
	n.s.effects = nil
	n.s.dropMember(m, n.s.version)
	n.s.followCatalog()
	if n.s.byGroup[g.ID] != nil {
		t.Fatal("the next replica is here before the old one's end is durable")
	}
	for _, e := range n.s.effects {
		if _, ok := e.(SegmentReset); ok {
			t.Fatal("segments went before the end of the replica was durable")
		}
	}
	n.sequence = n.s.journal.sequence
	n.step(JournalDone{Upto: n.sequence})
	if n.s.byGroup[g.ID] == nil || count[SegmentReset](n) != 1 {
		t.Fatal("the next replica did not come")
	}
}

func (s *Shard) mustGroup(t *testing.T, id model.GroupID) *model.Group {
	g, ok := s.meta.Catalog().Group(id)
	if !ok {
		t.Fatalf("group %d is not in the catalog", id)
	}
	return g
}

// What a replica still held when it was dropped is answered and forgotten.
func TestADroppedReplicaHoldsNoCalls(t *testing.T) {
	r := newRig(t, 1, Limits{})
	r.startAll()
	n := r.nodes["n1"]
	r.createTopic("orders", 1, 1)
	n.step(Request{ID: 77, Deadline: r.now.Add(5 * time.Second),
		Call: &call.Fetch{Topic: "orders", Wait: 4 * time.Second}})
	r.until("a waiting call", func() bool { return len(n.s.refs) == 1 })
	if _, err := r.call("n1", &call.Admin{Request: &call.DeleteTopic{Name: "orders"}}); err != nil {
		t.Fatal(err)
	}
	r.run(6 * time.Second)
	if len(n.s.refs) != 0 || len(n.s.asked) != 0 || len(n.s.reads) != 0 {
		t.Fatalf("%d refs, %d asks, %d reads are left", len(n.s.refs), len(n.s.asked), len(n.s.reads))
	}
	if n.replies[77].Err == nil {
		t.Fatal("the fetch was not refused")
	}
}
