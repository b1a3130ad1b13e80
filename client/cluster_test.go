package client_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
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
	folders   []*osdisk.FS
	addresses []string
}

func startCluster(t testing.TB, count int) *cluster {
	t.Helper()
	c, stop, err := newCluster(t.TempDir(), count)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return c
}

// newCluster starts nodes in one folder each; stop ends them.
func newCluster(dir string, count int) (_ *cluster, stop func(), err error) {
	c := &cluster{}
	stop = func() { c.stop() }
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	var listeners []net.Listener
	var peers []model.Node
	for i := range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		listeners = append(listeners, l)
		c.addresses = append(c.addresses, l.Addr().String())
		peers = append(peers, model.Node{ID: model.NodeID(fmt.Sprintf("n%d", i+1)), Address: l.Addr().String()})
	}
	for i, l := range listeners {
		folder := filepath.Join(dir, string(peers[i].ID))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, nil, err
		}
		fs, err := osdisk.Open(folder)
		if err != nil {
			return nil, nil, err
		}
		n, err := live.Start(live.Config{
			ID: peers[i].ID, Peers: peers, FS: fs, Journal: journal.New(filepath.Join(folder, "journal")),
			Listener: l, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, nil, err
		}
		c.nodes, c.folders = append(c.nodes, n), append(c.folders, fs)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, n := range c.nodes {
		if err := n.WaitReady(ctx); err != nil {
			return nil, nil, err
		}
	}
	return c, stop, nil
}

func (c *cluster) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i, n := range c.nodes {
		all.Go(func() {
			_ = n.Stop(ctx)
			_ = c.folders[i].Close()
		})
	}
	all.Wait()
}

// exampleCluster is one cluster for all examples, ended by TestMain.
var exampleCluster = sync.OnceValue(func() []string {
	dir, err := os.MkdirTemp("", "tapedeck-example-")
	if err != nil {
		log.Fatal(err)
	}
	c, stop, err := newCluster(dir, 3)
	if err != nil {
		log.Fatal(err)
	}
	endExamples = func() {
		stop()
		_ = os.RemoveAll(dir)
	}
	return c.addresses
})

var endExamples = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	endExamples()
	os.Exit(code)
}

// prepare makes a topic with a subscription and messages.
func prepare(ctx context.Context, c *client.Client, topic, subscription string, payloads ...string) {
	if _, err := c.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{Name: topic}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.CreateSubscription(ctx, &tapedeckv1.CreateSubscriptionRequest{
		Topic: topic, Name: subscription,
	}); err != nil {
		log.Fatal(err)
	}
	p, err := c.NewProducer(ctx, topic)
	if err != nil {
		log.Fatal(err)
	}
	for _, payload := range payloads {
		if _, err := p.Publish(ctx, &client.Message{Payload: []byte(payload)}); err != nil {
			log.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
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
