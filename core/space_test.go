package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// What retention drops on a full disk goes at once and not with the next regular
// checkpoint, which may be a minute off.
func TestAFullDiskDoesNotWaitForTheNextCheckpoint(t *testing.T) {
	r := newRig(t, 1, Limits{SegmentBytes: 2000, FreeLow: 100, FreeHigh: 200})
	r.startAll()
	n := r.nodes["n1"]
	r.createTopic("orders", 1, 1)
	for i := range 20 {
		r.publish("n1", "orders", fmt.Sprint(i)+strings.Repeat("x", 1000))
	}
	r.checkpoint(n)
	n.step(DiskSpace{Free: 50})
	said := strings.Join(n.notes, "\n")
	for _, part := range []string{
		"50 bytes are free: messages to partitions that this node leads are refused until 200 are",
		"what other leaders send is still stored", "free space, enlarge the disk"} {
		if !strings.Contains(said, part) {
			t.Fatalf("%q is not in %q", part, said)
		}
	}
	if _, err := r.call("n1", &call.Admin{Request: &call.UpdateTopic{Name: "orders",
		Settings: model.TopicSettings{RetentionBytes: 1000}}}); err != nil {
		t.Fatal(err)
	}
	r.until("the log's start to move", func() bool {
		for len(n.pending) > 0 {
			n.sync()
			n.manifest()
		}
		return n.machine().LogStart() > 0
	})
	moved := r.now
	r.until("a checkpoint", func() bool { return len(n.pending) > 0 })
	if waited := r.now.Sub(moved); waited > 5*time.Second {
		t.Fatalf("the checkpoint that lets the files go came after %v", waited)
	}
}
