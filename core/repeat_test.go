package core

import (
	"strings"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

// A node that comes back with a slow disk is not sent what it lacks over and
// over until the disk is done.
func TestANodeThatIsSlowToComeBackIsNotBuriedInRepetitions(t *testing.T) {
	r := newRig(t, 3, Limits{})
	r.startAll()
	r.createTopic("orders", 1, 3)
	r.publish("n1", "orders", "first")
	n3 := r.nodes["n3"]
	r.until("another leader than n3", func() bool {
		at, ok := r.nodes["n1"].s.Replica(firstPartition).LeaderNode()
		return ok && at != "n3"
	})
	n3.crash()
	lacks := 0
	for range 20 {
		payload := strings.Repeat("x", 20_000)
		r.publish("n1", "orders", payload)
		lacks += len(payload)
	}
	n3.hold = true
	r.sent = map[model.NodeID]int{}
	n3.start()
	r.run(3 * time.Second)
	if sent := r.sent["n3"]; sent < lacks || sent > 6*lacks {
		t.Fatalf("in 3 s a node that lacks %d bytes and whose disk stands still was sent %d", lacks, sent)
	}
	n3.hold = false
	r.until("n3 to have caught up", func() bool {
		return n3.s.Replica(firstPartition).Applied() == r.nodes["n1"].s.Replica(firstPartition).Applied()
	})
}
