package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/journal"
	"github.com/tapedeck/tapedeck/disk/osdisk"
	"github.com/tapedeck/tapedeck/node/live"
)

// cluster is three real nodes in this process.
type cluster struct {
	nodes     []*live.Node
	addresses []string
}

func startCluster(t testing.TB, count int) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{}
	var listeners []net.Listener
	var peers []model.Node
	for i := range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		c.addresses = append(c.addresses, l.Addr().String())
		peers = append(peers, model.Node{ID: model.NodeID(fmt.Sprintf("n%d", i+1)), Address: l.Addr().String()})
	}
	for i, l := range listeners {
		folder := filepath.Join(dir, string(peers[i].ID))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		fs, err := osdisk.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		n, err := live.Start(live.Config{
			ID: peers[i].ID, Peers: peers, FS: fs, Journal: journal.New(filepath.Join(folder, "journal")),
			Listener: l, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, n)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = n.Stop(ctx)
			_ = fs.Close()
		})
	}
	for _, n := range c.nodes {
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *cluster) client(t testing.TB) *client.Client {
	t.Helper()
	cl, err := client.New(client.Config{Addresses: c.addresses})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// killLeader ends the node that leads a partition of the topic.
func (c *cluster) killLeader(t testing.TB, cl *client.Client, topic string) {
	t.Helper()
	got, err := cl.GetTopic(t.Context(), &tapedeckv1.GetTopicRequest{Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if leader := got.GetPartitions()[0].GetLeader(); string(n.ID()) == leader {
			t.Logf("kill %s of %v", leader, got.GetPartitions())
			n.Kill()
			return
		}
	}
	t.Fatalf("nobody leads: %v", got.GetPartitions())
}
