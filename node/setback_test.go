package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// putBack starts a node that is down on an old copy of its folder, and waits
// until it has ended itself.
func (c *cluster) putBack(id model.NodeID, old *simdisk.Disk) {
	c.t.Helper()
	n := c.nodes[id]
	n.disk = old
	var failure error
	n.fatal = func(err error) { failure = err }
	c.start(id)
	before := c.votesOf(id)
	c.until(string(id)+" to end itself", func() bool { return failure != nil })
	var r *record.Refused
	if !errors.As(failure, &r) || !strings.Contains(r.Cause, "old copy") {
		c.t.Fatal(failure)
	}
	if after := c.votesOf(id); after != before {
		c.t.Fatalf("%s voted or took entries: %v, before %v", id, after, before)
	}
	n.fatal = nil
	c.crash(id)
	// A second start needs nobody to tell it.
	if again := c.refused(id); again.File != "IDENTITY" || again.Cause != r.Cause {
		c.t.Fatal(again)
	}
}

// votesOf sums up what a node's replicas have promised to anyone.
func (c *cluster) votesOf(id model.NodeID) (sum [3]uint64) {
	s := c.nodes[id].host.Shard()
	for _, g := range s.Replicas() {
		v := s.Replica(g).View()
		sum[0], sum[1], sum[2] = sum[0]+v.Term, sum[1]+v.Last, sum[2]+v.Commit
	}
	return sum
}

func TestAFolderSetBackToAnOldCopyIsNotHeard(t *testing.T) {
	for what, limits := range map[string]core.Limits{"in the journal": {}, "in the checkpoint": small()} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t, 3, limits)
			c.createTopic("orders", 1, 3)
			w := c.writer()
			w.send("n1", 20)
			running := c.nodes["n2"].disk.Clone() // as a tool would copy it from under the node
			w.send("n1", 80)
			c.crash("n2")
			stopped := c.nodes["n2"].disk.Clone()
			c.start("n2")
			w.send("n1", 20)
			c.until("n2 to have all", func() bool { return c.settled("n1") })
			c.crash("n2")

			c.putBack("n2", stopped)
			c.putBack("n2", running)
			w.send("n1", 5)

			// Those who remember may be started again.
			for _, id := range []model.NodeID{"n1", "n3"} {
				c.crash(id)
			}
			for _, id := range []model.NodeID{"n1", "n3"} {
				c.start(id)
			}
			c.nodes["n2"].disk = simdisk.New()
			c.rebuilt("n2", "n1")
			c.crash("n3")
			w.send("n2", 5)
			w.check("n2")
		})
	}
}

func TestWhatIsKnownOfFoldersOutlivesThoseWhoKnow(t *testing.T) {
	for what, limits := range map[string]core.Limits{"in the journal": {}, "in the checkpoint": small()} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t, 3, limits)
			c.createTopic("orders", 1, 3)
			w := c.writer()
			c.crash("n2")
			old := c.nodes["n2"].disk.Clone()
			for range 3 {
				c.start("n2")
				w.send("n1", 40)
				c.until("n2 to have all", func() bool { return c.settled("n1") })
				c.crash("n2")
				w.send("n1", 5)
			}
			c.crash("n1")
			c.crash("n3")
			c.start("n1")
			c.start("n3")
			c.putBack("n2", old)
		})
	}
}

// A node that was down, cut off or started often is no old copy.
func TestANodeThatWasAwayIsHeard(t *testing.T) {
	c := newCluster(t, 3, small())
	c.createTopic("orders", 1, 3)
	w := c.writer()
	for range 5 {
		w.send("n1", 20)
		c.crash("n2")
		for range 3 {
			c.start("n2")
			c.crash("n2")
		}
		w.send("n1", 20)
		c.start("n2")
	}
	c.until("n2 to have all", func() bool { return c.settled("n1") })
	must[*call.GetTopicResult](t)(c.call("n2", &call.GetTopic{Name: "orders"}))
	w.check("n2")
}
