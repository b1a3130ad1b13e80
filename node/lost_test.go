package node_test

import (
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// The only replica of a partition goes with its folder. Nobody can lead the group
// again: no change of its members is begun that nobody could end, everyone is told
// what is lost and what to do, and the rest of the cluster is as before.
func TestAPartitionIsLostWithItsOnlyFolder(t *testing.T) {
	for _, drained := range []bool{false, true} {
		c := newCluster(t, 4, small())
		c.createTopic("orders", 1, 1)
		c.publish("n1", "orders", "k", "m")
		home := c.nodesOf("n1")[0]
		var others []model.NodeID
		for _, id := range c.names {
			if id != home {
				others = append(others, id)
			}
		}
		c.crash(home)
		if drained { // while the leader is down, so that it can do nothing
			must[*call.Done](t)(c.call(others[0], &call.Admin{Request: &call.DrainNode{Node: home}}))
			g, _ := c.nodes[others[0]].host.Shard().Catalog().Group(model.FirstPartitionGroup)
			if g.Change.Remove == 0 || g.Change.Add.Node == home {
				t.Fatalf("no move of the partition is under way: %+v", g.Change)
			}
		}
		c.wipe(home)
		c.until(string(home)+" to be whole again", func() bool {
			cat := c.nodes[others[0]].host.Shard().Catalog()
			if c.nodes[home].host.Shard().Catalog() == nil {
				return false
			}
			for _, g := range cat.Groups() {
				if g.Change.ID != 0 {
					return false
				}
			}
			g, _ := cat.Group(model.FirstPartitionGroup)
			return g.Lost(cat.Nodes())
		})
		c.saysLost(others[0], home)
		must[*call.Done](t)(c.call(others[0], &call.Admin{Request: &call.DeleteTopic{Name: "orders"}}))
		if drained {
			must[*call.Done](t)(c.call(others[0], &call.Admin{Request: &call.RemoveNode{Node: home}}))
			continue
		}
		c.createTopic("orders", 3, 1)
		for range 9 {
			c.publish(home, "orders", "", "m")
		}
	}
}

// saysLost asks for everything that a lost partition has to refuse.
func (c *cluster) saysLost(via, home model.NodeID) {
	c.t.Helper()
	p := must[*call.GetTopicResult](c.t)(c.call(via, &call.GetTopic{Name: "orders"})).Partitions[0]
	if !p.AtRisk || p.Err == nil || !strings.Contains(p.Err.Message, "is lost") {
		c.t.Fatalf("GetTopic says %+v, %v", p, p.Err)
	}
	for _, q := range []call.Client{
		&call.Publish{Topic: "orders", Messages: []batch.Message{{Payload: []byte("m")}}},
		&call.Admin{Request: &call.MovePartition{Topic: "orders", From: home, To: via}},
		&call.Admin{Request: &call.RemoveNode{Node: home}},
	} {
		r, err := c.call(via, q)
		if pub, ok := r.(*call.PublishResult); ok {
			err = pub.Results[0].Err
		}
		if err == nil || !strings.Contains(err.Message, "partition 0 of topic \"orders\" is lost") ||
			!strings.Contains(err.Message, string(home)) {
			c.t.Fatalf("%T: %v, %v", q, r, err)
		}
	}
}
