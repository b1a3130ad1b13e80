package node_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
)

const (
	low     = 64 << 10
	reserve = 32 << 10
)

func spaced() core.Limits {
	l := small()
	l.FreeLow, l.FreeHigh = low, 2*low
	return l
}

// free sets how much room a node's disk has, and lets the node look.
func (c *cluster) free(id model.NodeID, bytes uint64) {
	c.nodes[id].disk.SetFree(bytes)
	c.look(id)
}

func (c *cluster) look(id model.NodeID) {
	c.t.Helper()
	n := c.nodes[id]
	free, err := n.disk.FS().Free()
	if err != nil {
		c.t.Fatal(err)
	}
	n.host.Step(core.DiskSpace{Free: free})
}

// try publishes a message without a producer.
func (c *cluster) try(via model.NodeID) *model.Error {
	c.t.Helper()
	_, err := c.call(via, &call.Publish{Topic: "orders",
		Messages: []batch.Message{{Key: []byte("k"), Payload: []byte("x")}}})
	return err
}

func (c *cluster) full(via model.NodeID, names ...model.NodeID) {
	c.t.Helper()
	err := c.try(via)
	if err == nil || err.Reason != model.ReasonDiskFull || err.RetryAfter == 0 {
		c.t.Fatalf("a publish with a full disk: %v", err)
	}
	for _, n := range names {
		if !strings.Contains(err.Message, string(n)) {
			c.t.Fatalf("%s is not named: %v", n, err)
		}
	}
}

func TestAFullDiskRefusesMessagesAndNothingElse(t *testing.T) {
	c := newCluster(t, 3, spaced())
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 30)
	must[*call.CreateSubscriptionCallResult](t)(c.call("n2", &call.CreateSubscriptionCall{Topic: "orders", Name: "audit"}))
	leader := c.leader()
	c.free(leader, low-1)
	c.full("n1", leader)
	c.full("n3", leader)
	// Reads, pulls, acks, seeks and changes of topics go on.
	w.check("n2")
	sub := "orders/audit"
	p := must[*call.PullResult](t)(c.call("n3", &call.Pull{Subscription: sub, Member: "a"}))
	must[*call.AckCallResult](t)(c.call("n3", &call.Ack{Subscription: sub, Member: "a", Generation: p.Generation,
		UpTo: []call.PartitionOffset{{Partition: 0, Offset: p.Ranges[0].To}}}))
	must[*call.SeekResult](t)(c.call("n1", &call.Seek{Subscription: sub}))
	c.createTopic("more", 1, 3)
	must[*call.Done](t)(c.call("n1", &call.Admin{Request: &call.DeleteTopic{Name: "more"}}))
	// Between the marks nothing changes; above the higher one it heals by itself.
	c.free(leader, 2*low-1)
	c.full("n1", leader)
	c.free(leader, 2*low)
	w.send("n1", 5)
	w.check("n2")
}

func TestFollowersDisksCount(t *testing.T) {
	c := newCluster(t, 3, spaced())
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 5)
	leader := c.leader()
	others := slices.DeleteFunc(slices.Clone(c.names), func(n model.NodeID) bool { return n == leader })
	wait := func() { // heartbeats tell
		end := c.now.Add(1e9)
		c.at(1e9, func() {})
		c.until("a second", func() bool { return c.now >= end })
	}
	c.free(others[0], low-1)
	wait()
	w.send("n1", 5) // one full follower is in nobody's way
	c.free(others[1], low-1)
	wait()
	c.full(leader, others...)
	if c.load(leader).DiskLow {
		t.Fatal("the leader's disk is not full")
	}
	c.free(others[0], 2*low)
	wait()
	w.send("n1", 5)
	w.check("n3")
}

func TestTheReserveIsMadeReleasedAndMadeAgain(t *testing.T) {
	c := newCluster(t, 1, spaced())
	n := c.nodes["n1"]
	has := func() bool { return slices.Contains(filesIn(n.disk, "RESERVE"), "RESERVE") }
	c.free("n1", 1<<20)
	c.until("a reserve", has)
	if size := len(read(t, n.disk, "RESERVE")); size != reserve {
		t.Fatalf("the reserve has %d bytes", size)
	}
	c.createTopic("orders", 1, 1)
	w := c.writer()
	w.send("n1", 5)
	c.free("n1", low/2) // not below: it stays
	c.free("n1", low/2-1)
	c.until("its release", func() bool { return !has() })
	free, err := n.disk.FS().Free()
	if err != nil || free < low/2-1+reserve-4096 {
		t.Fatalf("%d bytes are free: %v", free, err)
	}
	// A start on a full disk finds none, and makes none.
	c.crash("n1")
	c.start("n1")
	c.free("n1", low-1)
	c.full("n1", "n1")
	if has() {
		t.Fatal("a reserve was made on a full disk")
	}
	c.free("n1", 2*low+reserve)
	c.until("a reserve", has)
	c.crash("n1")
	c.start("n1")
	w.send("n1", 5)
	c.free("n1", low/2-1)
	c.until("the release of one found at the start", func() bool { return !has() })
}

// A write of segments that finds no space waits, checkpoints wait with it, and
// both go on when there is some; nothing restarts.
func TestASegmentThatFindsNoSpaceWaits(t *testing.T) {
	c := newCluster(t, 1, spaced())
	n := c.nodes["n1"]
	c.createTopic("orders", 1, 1)
	w := c.writer()
	w.send("n1", 20)
	n.full = true // segments and checkpoints find no space, the journal does
	refused := 0
	for range 40 {
		if err := c.try("n1"); err == nil {
			w.next++
		} else if refused++; err.Reason != model.ReasonDiskFull {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Fatal("nobody was told")
	}
	if got := len(c.fetchAll("n1", "orders", 0)); got == 0 {
		t.Fatal("nothing can be read")
	}
	before := c.load("n1").Checkpoints
	n.full = false
	c.look("n1")
	want := w.next
	for range 40 {
		if err := c.try("n1"); err != nil {
			t.Fatal(err)
		}
		want++
	}
	c.until("a checkpoint", func() bool { return c.load("n1").Checkpoints > before+1 })
	if got := len(c.fetchAll("n1", "orders", 0)); got != want {
		t.Fatalf("%d of %d messages", got, want)
	}
	c.crash("n1")
	c.start("n1")
	if got := len(c.fetchAll("n1", "orders", 0)); got != want {
		t.Fatalf("%d of %d messages after a start", got, want)
	}
}

// Others filled the disk while the node was down: the start has the reserve's room.
func TestAStartOnAFullDiskHasTheReserve(t *testing.T) {
	c := newCluster(t, 1, spaced())
	n := c.nodes["n1"]
	has := func() bool { return slices.Contains(filesIn(n.disk, "RESERVE"), "RESERVE") }
	c.createTopic("orders", 1, 1)
	w := c.writer()
	w.send("n1", 5)
	c.free("n1", 1<<20)
	c.until("a reserve", has)
	c.crash("n1")
	n.disk.SetFree(0)
	c.start("n1")
	if has() {
		t.Fatal("the reserve is still there")
	}
	c.look("n1")
	c.full("n1", "n1")
	w.check("n1")
}

const saysWhatToDo = "free space on the disk or enlarge it, then start this node again; " +
	"nothing that was acknowledged is lost"

func wantAdvice(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, disk.ErrNoSpace) || !strings.Contains(err.Error(), saysWhatToDo) {
		t.Fatalf("%v does not say what to do", err)
	}
}

func TestAFullDiskThatStopsANodeSaysWhatToDo(t *testing.T) {
	c := newCluster(t, 1, spaced())
	n := c.nodes["n1"]
	c.createTopic("orders", 1, 1)
	w := c.writer()
	w.send("n1", 5)
	var ended error
	n.fatal = func(err error) { ended, n.host = err, nil; n.life++ }
	n.disk.SetFree(0) // before the node looks
	c.seq++
	n.host.Step(core.Request{ID: c.seq, Deadline: c.now.Add(30e9), Call: &call.Publish{Topic: "orders",
		Messages: []batch.Message{{Key: []byte("k"), Payload: []byte("x")}}}})
	c.until("its end", func() bool { return ended != nil })
	wantAdvice(t, ended)
	c.crash("n1")
	n.disk.SetFree(0)
	wantAdvice(t, c.tryStart("n1"))
	n.disk.SetFree(1 << 20)
	n.fatal = nil
	c.start("n1")
	w.check("n1")
}
