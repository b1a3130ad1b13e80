package node_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// writer publishes numbered messages, each once.
type writer struct {
	c        *cluster
	producer *call.OpenProducerCallResult
	next     int
}

func (c *cluster) writer() *writer {
	open := must[*call.OpenProducerCallResult](c.t)
	return &writer{c: c, producer: open(c.call("n1", &call.OpenProducerCall{Name: "w"}))}
}

func (w *writer) send(via model.NodeID, n int) {
	w.c.t.Helper()
	for range n {
		must[*call.PublishResult](w.c.t)(w.c.call(via, &call.Publish{Topic: "orders", Producer: w.producer.ID,
			Epoch: w.producer.Epoch, Sequence: model.Sequence(w.next),
			Messages: []batch.Message{{Key: []byte("k"), Payload: []byte(fmt.Sprint(w.next))}}}))
		w.next++
	}
}

// check reads everything back.
func (w *writer) check(via model.NodeID) {
	w.c.t.Helper()
	got := w.c.fetchAll(via, "orders", 0)
	if len(got) != w.next {
		w.c.t.Fatalf("%d of %d messages", len(got), w.next)
	}
	for i, p := range got {
		if p != fmt.Sprint(i) {
			w.c.t.Fatalf("message %d is %q", i, p)
		}
	}
}

// settled says that no group is changing members and every replica has caught up.
func (c *cluster) settled(via model.NodeID) bool {
	cat := c.nodes[via].host.Shard().Catalog()
	for _, g := range cat.Groups() {
		if g.Change.ID != 0 {
			return false
		}
		var applied []uint64
		for _, r := range g.Replicas {
			n := c.nodes[r.Node]
			if n.host == nil {
				return false
			}
			mine := n.host.Shard().Replica(g.ID)
			if mine == nil || mine.Self() != r.ID {
				return false
			}
			applied = append(applied, mine.Applied())
		}
		if slices.Min(applied) != slices.Max(applied) {
			return false
		}
	}
	return true
}

func (c *cluster) nodesOf(via model.NodeID) []model.NodeID {
	r := must[*call.GetTopicResult](c.t)(c.call(via, &call.GetTopic{Name: "orders"}))
	return slices.Sorted(slices.Values(r.Partitions[0].Replicas))
}

func small() core.Limits {
	return core.Limits{CheckpointBytes: 4 << 10, SegmentBytes: 2 << 10, WindowEntries: 8, HotBytes: 1 << 10}
}

func TestWipedNodeComesBackAsNewReplicas(t *testing.T) {
	c := newCluster(t, 3, small())
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 40)
	for _, id := range []model.NodeID{"n1", "n2", "n3", "n1"} {
		others := slices.DeleteFunc(slices.Clone(c.names), func(n model.NodeID) bool { return n == id })
		c.crash(id)
		w.send(others[0], 20)
		c.wipe(id)
		w.send(others[1], 20)
		c.until(string(id)+" to be whole again", func() bool {
			return c.nodes[id].host.Shard().Catalog() != nil && c.settled(others[0])
		})
		w.send(id, 5)
	}
	// What is left of the first folders is nothing, and still nothing is lost.
	w.check("n2")
	for _, id := range c.names {
		c.crash(id)
	}
	for _, id := range c.names {
		c.start(id)
	}
	w.send("n3", 5)
	w.check("n1")
}

// Founders that start again learn from their catalog alone where a node is that
// joined: it is up all the time, and has nothing to tell them.
func TestFoundersFindTheNodeThatJoinedAfterARestart(t *testing.T) {
	c := newCluster(t, 3, small())
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 10)
	c.add("n4")
	c.until("n4 to be part of the cluster", func() bool {
		return c.nodes["n4"].host.Shard().Catalog() != nil && c.settled("n1") && len(c.nodes["n1"].host.Shard().Nodes()) == 4
	})
	must[*call.Done](t)(c.call("n1", &call.Admin{Request: &call.MovePartition{Topic: "orders", From: "n2", To: "n4"}}))
	c.until("the move", func() bool { return c.settled("n1") })
	for _, id := range []model.NodeID{"n2", "n1", "n3"} {
		c.crash(id)
		c.start(id)
		if _, err := c.call("n4", &call.TransferPartition{Topic: "orders", To: "n4"}); err != nil {
			t.Fatal(err)
		}
		c.until("n4 to lead", func() bool {
			return must[*call.GetTopicResult](t)(c.call("n4", &call.GetTopic{Name: "orders"})).Partitions[0].Leader == "n4"
		})
		w.send(id, 5)
	}
	w.check("n2")
}

func TestTwoOfFiveNodesWiped(t *testing.T) {
	c := newCluster(t, 5, small())
	c.createTopic("orders", 1, 5)
	w := c.writer()
	w.send("n1", 40)
	c.crash("n2")
	c.crash("n4")
	w.send("n1", 20)
	atRisk := func() bool {
		return must[*call.GetTopicResult](t)(c.call("n1", &call.GetTopic{Name: "orders"})).Partitions[0].AtRisk
	}
	c.until("the topic to be at risk", atRisk)
	c.wipe("n2")
	c.wipe("n4")
	w.send("n5", 20)
	c.until("both to be whole again", func() bool { return c.settled("n1") && !atRisk() })
	w.check("n4")
}

func TestFourthNodeJoinsTakesAPartitionAndAnotherLeaves(t *testing.T) {
	c := newCluster(t, 3, small())
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 60)
	c.add("n4")
	c.until("n4 to be part of the cluster", func() bool {
		return c.nodes["n4"].host.Shard().Catalog() != nil && c.settled("n1") && len(c.nodes["n1"].host.Shard().Nodes()) == 4
	})
	must[*call.Done](t)(c.call("n4", &call.Admin{Request: &call.MovePartition{Topic: "orders", From: "n2", To: "n4"}}))
	w.send("n3", 20)
	c.until("the move", func() bool { return c.settled("n1") })
	if got := c.nodesOf("n1"); !slices.Equal(got, []model.NodeID{"n1", "n3", "n4"}) {
		t.Fatalf("after the move the partition is on %v", got)
	}
	must[*call.Done](t)(c.call("n2", &call.Admin{Request: &call.DrainNode{Node: "n1"}}))
	w.send("n3", 20)
	c.until("n1 to be empty", func() bool {
		if !c.settled("n3") {
			return false
		}
		for _, g := range c.nodes["n3"].host.Shard().Catalog().Groups() {
			for _, r := range g.Replicas {
				if r.Node == "n1" && g.Kind != model.GroupMeta {
					return false
				}
			}
		}
		return true
	})
	must[*call.Done](t)(c.call("n2", &call.Admin{Request: &call.RemoveNode{Node: "n1"}}))
	c.until("n1 to be gone", func() bool { return len(c.nodes["n2"].host.Shard().Nodes()) == 3 })
	c.crash("n1")
	w.send("n2", 20)
	w.check("n4")
	if got := c.nodesOf("n2"); !slices.Equal(got, []model.NodeID{"n2", "n3", "n4"}) {
		t.Fatalf("in the end the partition is on %v", got)
	}
}

// A node that dies for good while a partition is on its way to it can be drained
// and removed: the partition stays where it is.
func TestANodeDiesForGoodWhileAPartitionMovesToIt(t *testing.T) {
	c := newCluster(t, 3, small())
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 40)
	c.add("n4")
	c.until("n4 to be part of the cluster", func() bool {
		return c.nodes["n4"].host.Shard().Catalog() != nil && c.settled("n1") && len(c.nodes["n1"].host.Shard().Nodes()) == 4
	})
	c.crash("n4")
	must[*call.Done](t)(c.call("n1", &call.Admin{Request: &call.MovePartition{Topic: "orders", From: "n2", To: "n4"}}))
	w.send("n3", 20)
	if c.settled("n1") {
		t.Fatal("the partition moved to a node that is down")
	}
	must[*call.Done](t)(c.call("n1", &call.Admin{Request: &call.DrainNode{Node: "n4"}}))
	c.until("n4 to hold nothing", func() bool {
		for _, g := range c.nodes["n1"].host.Shard().Catalog().Groups() {
			if g.Change.ID != 0 {
				return false
			}
		}
		return true
	})
	must[*call.Done](t)(c.call("n1", &call.Admin{Request: &call.RemoveNode{Node: "n4"}}))
	c.until("n4 to be gone", func() bool { return len(c.nodes["n1"].host.Shard().Nodes()) == 3 && c.settled("n1") })
	w.send("n2", 20)
	w.check("n3")
	if got := c.nodesOf("n2"); !slices.Equal(got, []model.NodeID{"n1", "n2", "n3"}) {
		t.Fatalf("in the end the partition is on %v", got)
	}
}

func TestRebuildReplacesEveryReplicaOfANode(t *testing.T) {
	c := newCluster(t, 3, small())
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 40)
	before := c.nodes["n1"].host.Shard().Replica(model.MetaGroup).Self()
	must[*call.Done](t)(c.call("n2", &call.Admin{Request: &call.RebuildNode{Node: "n1"}}))
	w.send("n2", 20)
	c.until("n1 to be rebuilt", func() bool { return c.settled("n2") })
	if after := c.nodes["n1"].host.Shard().Replica(model.MetaGroup).Self(); after == before {
		t.Fatal("the meta replica is still the old one")
	}
	w.check("n1")
}

func TestTransferLeader(t *testing.T) {
	c := newCluster(t, 3, core.Limits{})
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 5)
	for _, to := range []model.NodeID{"n3", "n2", "n1"} {
		if _, err := c.call("n1", &call.TransferPartition{Topic: "orders", To: to}); err != nil {
			t.Fatal(err)
		}
		c.until("the transfer to "+string(to), func() bool {
			r := must[*call.GetTopicResult](t)(c.call("n1", &call.GetTopic{Name: "orders"}))
			return r.Partitions[0].Leader == to
		})
	}
	w.check("n2")
}

// dump shows where every replica is, for a failure.
func (c *cluster) dump(via model.NodeID) {
	for _, g := range c.nodes[via].host.Shard().Catalog().Groups() {
		c.t.Logf("group %d replicas %+v change %+v", g.ID, g.Replicas, g.Change)
		for _, n := range c.names {
			if h := c.nodes[n].host; h != nil {
				if r := h.Shard().Replica(g.ID); r != nil {
					v := r.View()
					c.t.Logf("   %s replica %d %v term %d lead %d commit %d applied %d log [%d,%d] voters %v", n, v.Replica,
						v.Role, v.Term, v.Leader, v.Commit, v.Applied, v.First, v.Last, r.Voters())
				}
			}
		}
	}
}
