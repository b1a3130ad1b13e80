package node_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/partition"
	"github.com/tapedeck/tapedeck/core/replica"
)

// Each test here floods one thing that is bounded, and looks at it after every
// step of the flood.

const kilo = 1 << 10

// part is a node's replica of the topic's only partition.
func (c *cluster) part(id model.NodeID) (*replica.Replica, *partition.Machine) {
	c.t.Helper()
	s := c.nodes[id].host.Shard()
	for _, g := range s.Replicas() {
		if m, ok := s.Replica(g).Machine().(*partition.Machine); ok {
			return s.Replica(g), m
		}
	}
	c.t.Fatalf("%s has no replica of the partition", id)
	return nil, nil
}

// flood sends publishes of a kilobyte without waiting for their answers.
func (c *cluster) flood(via model.NodeID, n int, look func()) (ids []uint64) {
	c.t.Helper()
	for range n {
		c.seq++
		ids = append(ids, c.seq)
		c.nodes[via].host.Step(core.Request{ID: c.seq, Deadline: c.now.Add(30 * time.Second),
			Call: &call.Publish{Topic: "orders",
				Messages: []batch.Message{{Key: []byte("k"), Payload: []byte(strings.Repeat("x", kilo))}}}})
		look()
	}
	return ids
}

// answers waits for all, and counts those that succeeded and that were throttled.
func (c *cluster) answers(via model.NodeID, ids []uint64) (done, throttled int) {
	c.t.Helper()
	n := c.nodes[via]
	c.until("all answers", func() bool {
		return !slices.ContainsFunc(ids, func(id uint64) bool { return n.replies[id] == nil })
	})
	for _, id := range ids {
		switch r := n.replies[id]; {
		case r.err == nil:
			done++
		case r.err.Reason == model.ReasonThrottled:
			throttled++
		}
	}
	return done, throttled
}

func (c *cluster) rest(d time.Duration) {
	end := c.now.Add(d)
	c.at(d, func() {})
	c.until("a while", func() bool { return c.now >= end })
}

func TestProposalsAreBounded(t *testing.T) {
	c := newCluster(t, 3, core.Limits{UncommittedBytes: 64 * kilo})
	c.createTopic("orders", 1, 3)
	c.try("n1")
	leader := c.leader()
	for _, id := range c.names {
		if id != leader {
			c.crash(id) // nothing commits
		}
	}
	r, _ := c.part(leader)
	ids := c.flood(leader, 300, func() {
		if got := r.Uncommitted(); got > 64*kilo {
			t.Fatalf("%d bytes of proposals wait", got)
		}
	})
	if got := r.Uncommitted(); got < 32*kilo {
		t.Fatalf("%d bytes wait: this was no flood", got)
	}
	if got := c.nodes[leader].host.Shard().Load().Calls; got > 100 {
		t.Fatalf("%d calls wait at the group", got)
	}
	for _, id := range c.names {
		if id != leader {
			c.start(id)
		}
	}
	if done, _ := c.answers(leader, ids); done == 0 {
		t.Fatal("none of it was taken in the end")
	}
}

func TestTheHotCacheAndTheLogWindowAreBounded(t *testing.T) {
	c := newCluster(t, 3, core.Limits{HotBytes: 16 * kilo, WindowBytes: 32 * kilo, CheckpointBytes: 128 * kilo})
	c.createTopic("orders", 1, 3)
	for range 20 {
		c.answers("n1", c.flood("n1", 20, func() {}))
		for _, id := range c.names {
			r, m := c.part(id)
			if got := m.HotBytes(); got > 16*kilo {
				t.Fatalf("%s keeps %d bytes for readers", id, got)
			}
			// What is above applied is pinned: at most what is in flight.
			if v := r.View(); v.Applied-min(v.First, v.Applied) > 40 {
				t.Fatalf("%s keeps applied entries [%d, %d]", id, v.First, v.Applied)
			}
		}
	}
	if _, m := c.part("n1"); m.HotBytes() < 8*kilo {
		t.Fatal("this was no flood")
	}
}

func TestWaitingRequestsAreBounded(t *testing.T) {
	for what, limits := range map[string]core.Limits{"per group": {Waiting: 20}, "per shard": {Requests: 20}} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t, 1, limits)
			c.createTopic("orders", 1, 1)
			c.try("n1")
			var ids []uint64
			_, m := c.part("n1")
			for range 100 {
				c.seq++
				ids = append(ids, c.seq)
				c.nodes["n1"].host.Step(core.Request{ID: c.seq, Deadline: c.now.Add(time.Minute),
					Call: &call.Fetch{Topic: "orders", Offset: 1, Wait: 5 * time.Second}})
				if _, readers := m.Waiting(); readers > 20 {
					t.Fatalf("%d readers wait", readers)
				}
				if l := c.load("n1"); l.Calls > 20 {
					t.Fatalf("%+v", l)
				}
			}
			if done, throttled := c.answers("n1", ids); done != 20 || throttled != 80 {
				t.Fatalf("%d were answered, %d throttled", done, throttled)
			}
		})
	}
}

// A follower that does not get to its journal is sent no more than the bounds on
// what is in flight, and the group goes on without it.
func TestWhatIsSentToASlowFollowerIsBounded(t *testing.T) {
	c := newCluster(t, 3, core.Limits{InflightMessages: 8})
	c.createTopic("orders", 1, 3)
	c.try("n1")
	leader := c.leader()
	slow := c.names[0]
	if slow == leader {
		slow = c.names[1]
	}
	c.nodes[slow].stuck = true
	c.nodes[slow].got = 0
	total := 0
	for range 20 {
		ids := c.flood(leader, 20, func() {})
		done, _ := c.answers(leader, ids)
		total += done
	}
	if total < 300 {
		t.Fatalf("the slow follower held up the group: %d messages were taken", total)
	}
	// Heartbeats let one more through now and then.
	if got := c.nodes[slow].got; got < 8 || got > 40 {
		t.Fatalf("%d messages were sent to a follower that acknowledges none", got)
	}
	c.nodes[slow].stuck = false
	c.nodes[slow].doJournal()
	c.until("the follower to catch up", func() bool { return c.settled(leader) })
}

// A disk that takes the journal but is slow with segments.
func TestBatchesThatWaitForSegmentsAreBounded(t *testing.T) {
	const limit = 64 * kilo
	for _, where := range []string{"leader", "follower"} {
		t.Run(where, func(t *testing.T) {
			c := newCluster(t, 3, core.Limits{SegmentQueueBytes: limit, UncommittedBytes: 16 * kilo, InflightBytes: 16 * kilo,
				InflightMessages: 4})
			c.createTopic("orders", 1, 3)
			c.try("n1")
			leader := c.leader()
			slow := leader
			if where == "follower" {
				slow = slices.DeleteFunc(slices.Clone(c.names), func(n model.NodeID) bool { return n == leader })[0]
			}
			n := c.nodes[slow]
			n.slow = 20 * time.Second
			want, throttled, most := 1, 0, int64(0)
			for range 40 {
				done, no := c.answers(leader, c.flood(leader, 10, func() {}))
				want, throttled, most = want+done, throttled+no, max(most, n.host.Queued())
				if most > limit+64*kilo {
					t.Fatalf("%d bytes wait for segments", most)
				}
				c.rest(20 * time.Millisecond)
			}
			if most < limit || !c.load(slow).Behind {
				t.Fatalf("%d bytes waited: this was no flood", most)
			}
			if (throttled > 0) != (where == "leader") {
				t.Fatalf("%d publishes were throttled by a slow %s", throttled, where)
			}
			n.slow = 0
			c.until("the slow node to have all", func() bool { return n.host.Queued() == 0 && c.settled(leader) })
			if c.load(slow).Behind {
				t.Fatal("still behind")
			}
			if got := len(c.fetchAll(slow, "orders", 0)); got < want {
				t.Fatalf("%d of %d messages", got, want)
			}
		})
	}
}
