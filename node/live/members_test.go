package live_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/journal"
	"github.com/tapedeck/tapedeck/disk/osdisk"
	"github.com/tapedeck/tapedeck/node/live"
)

// realCluster is nodes with real listeners and folders, in this process.
type realCluster struct {
	t     *testing.T
	dir   string
	peers []model.Node
	nodes map[model.NodeID]*live.Node
}

// start runs a node that knows the nodes known so far, itself included.
func (c *realCluster) start(id model.NodeID, l net.Listener) {
	c.t.Helper()
	folder := filepath.Join(c.dir, string(id))
	fs, err := osdisk.Open(folder)
	if err != nil {
		c.t.Fatal(err)
	}
	n, err := live.Start(live.Config{
		ID: id, Peers: slices.Clone(c.peers), FS: fs, Journal: journal.New(filepath.Join(folder, "journal")),
		Listener: l, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[id] = n
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			c.t.Error(err)
		}
		_ = fs.Close()
	})
}

func startReal(t *testing.T, count int) *realCluster {
	t.Helper()
	c := &realCluster{t: t, dir: t.TempDir(), nodes: map[model.NodeID]*live.Node{}}
	listeners := make([]net.Listener, count)
	for i := range listeners {
		listeners[i] = c.announce(model.NodeID(fmt.Sprintf("n%d", i+1)))
	}
	for i, l := range listeners {
		c.start(c.peers[i].ID, l)
	}
	for _, n := range c.nodes {
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// announce takes a port for a node and adds it to the peers of those started later.
func (c *realCluster) announce(id model.NodeID) net.Listener {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	c.peers = append(c.peers, model.Node{ID: id, Address: l.Addr().String()})
	return l
}

// client asks the named nodes only.
func (c *realCluster) client(ids ...model.NodeID) *client.Client {
	c.t.Helper()
	var addresses []string
	for _, p := range c.peers {
		if slices.Contains(ids, p.ID) {
			addresses = append(addresses, p.Address)
		}
	}
	cl, err := client.New(client.Config{Addresses: addresses, NoDirect: true})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// until asks until the cluster looks as wanted; the test's own deadline ends it.
func (c *realCluster) until(cl *client.Client, what string, done func(*tapedeckv1.GetClusterResponse) bool) {
	c.t.Helper()
	var last *tapedeckv1.GetClusterResponse
	for c.t.Context().Err() == nil {
		s, err := cl.GetCluster(c.t.Context())
		if err == nil && done(s) {
			return
		}
		last = s
	}
	c.t.Fatalf("waited for %s: %v", what, last)
}

// holds counts the groups with a replica on a node, meta left out, and those changing.
func holds(s *tapedeckv1.GetClusterResponse, node string) (held, changing int) {
	for _, g := range s.GetGroups() {
		if g.GetChanging() {
			changing++
		}
		if g.GetKind() == tapedeckv1.GroupKind_GROUP_KIND_META {
			continue
		}
		for _, r := range g.GetReplicas() {
			if r.GetNode() == node {
				held++
			}
		}
	}
	return held, changing
}

func (c *realCluster) publish(cl *client.Client, from, count int) {
	c.t.Helper()
	p, err := cl.NewProducer(c.t.Context(), "orders")
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range count {
		m := &client.Message{Key: []byte("k"), Payload: fmt.Append(nil, from+i)}
		if _, err := p.Publish(c.t.Context(), m); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := p.Close(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// check reads everything back: count messages in the order sent.
func (c *realCluster) check(cl *client.Client, count int) {
	c.t.Helper()
	next := 0
	for next < count {
		r, err := cl.Fetch(c.t.Context(), client.FetchRequest{Topic: "orders", Offset: uint64(next)})
		if err != nil {
			c.t.Fatal(err)
		}
		if len(r.Messages) == 0 {
			break
		}
		for _, m := range r.Messages {
			if want := fmt.Sprint(next); string(m.Payload) != want || m.Offset != uint64(next) {
				c.t.Fatalf("message %d is %q at offset %d", next, m.Payload, m.Offset)
			}
			next++
		}
	}
	if next != count {
		c.t.Fatalf("%d messages, want %d", next, count)
	}
}

func TestANodeJoinsTakesAPartitionAndAnotherLeaves(t *testing.T) {
	c := startReal(t, 3)
	old := c.client("n1", "n2", "n3")
	if _, err := old.CreateTopic(t.Context(), &tapedeckv1.CreateTopicRequest{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	c.publish(old, 0, 50)

	c.start("n4", c.announce("n4"))
	if err := c.nodes["n4"].WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.until(old, "n4 to be part of the cluster", func(s *tapedeckv1.GetClusterResponse) bool {
		_, changing := holds(s, "n4")
		return len(s.GetNodes()) == 4 && changing == 0
	})
	// Those that were there first could not have been told of n4 by their flags.
	fresh := c.client("n4")
	move := &tapedeckv1.MovePartitionRequest{Topic: "orders", FromNode: "n2", ToNode: "n4"}
	if err := fresh.MovePartition(t.Context(), move); err != nil {
		t.Fatal(err)
	}
	c.publish(old, 50, 50)
	c.until(old, "the move", func(s *tapedeckv1.GetClusterResponse) bool {
		held, changing := holds(s, "n4")
		return held == 1 && changing == 0
	})
	transfer := &tapedeckv1.TransferLeaderRequest{Topic: "orders", ToNode: "n4"}
	if err := old.TransferLeader(t.Context(), transfer); err != nil {
		t.Fatal(err)
	}
	c.publish(old, 100, 20)

	if err := fresh.DrainNode(t.Context(), "n1", false); err != nil {
		t.Fatal(err)
	}
	rest := c.client("n2", "n3", "n4")
	c.publish(rest, 120, 20)
	c.until(rest, "n1 to be empty", func(s *tapedeckv1.GetClusterResponse) bool {
		held, _ := holds(s, "n1")
		return held == 0
	})
	if err := rest.RemoveNode(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	c.until(rest, "n1 to be gone", func(s *tapedeckv1.GetClusterResponse) bool { return len(s.GetNodes()) == 3 })
	c.nodes["n1"].Kill()
	c.publish(rest, 140, 20)
	c.check(c.client("n2"), 160)
}

func TestRebuildAndRefusals(t *testing.T) {
	c := startReal(t, 3)
	cl := c.client("n1", "n2", "n3")
	if _, err := cl.CreateTopic(t.Context(), &tapedeckv1.CreateTopicRequest{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	c.publish(cl, 0, 20)
	if err := cl.DrainNode(t.Context(), "n1", false); err == nil {
		t.Error("the third of three nodes can be drained while groups have three replicas")
	}
	if err := cl.RemoveNode(t.Context(), "n1"); err == nil {
		t.Error("a node that holds replicas can be removed")
	}
	if err := cl.RebuildNode(t.Context(), "n9"); err == nil {
		t.Error("a node that is not there can be rebuilt")
	}
	before := replicaIDs(t, c, cl, "n2")
	if err := cl.RebuildNode(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	c.publish(cl, 20, 20)
	c.until(cl, "n2 to be rebuilt", func(s *tapedeckv1.GetClusterResponse) bool {
		_, changing := holds(s, "n2")
		return changing == 0
	})
	for id := range replicaIDs(t, c, cl, "n2") {
		if before[id] {
			t.Errorf("replica %d is still the old one", id)
		}
	}
	c.check(c.client("n2"), 40)
}

func replicaIDs(t *testing.T, c *realCluster, cl *client.Client, node string) map[uint64]bool {
	t.Helper()
	s, err := cl.GetCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := map[uint64]bool{}
	for _, g := range s.GetGroups() {
		for _, r := range g.GetReplicas() {
			if r.GetNode() == node {
				ids[r.GetId()] = true
			}
		}
	}
	if len(ids) == 0 {
		t.Fatalf("%s holds nothing: %v", node, s)
	}
	return ids
}
