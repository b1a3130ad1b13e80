package core

import (
	"strings"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// TestADiskThatKeepsNoRepairIsGivenUp: a repair that the read after it does not see
// is made again a few times for that read, and no more.
func TestADiskThatKeepsNoRepairIsGivenUp(t *testing.T) {
	r := newRig(t, 3, Limits{HotBytes: 1})
	r.cfg.Timing.ScrubEvery = time.Hour
	r.startAll()
	r.createTopic("orders", 1, 3)
	r.publish("n1", "orders", "a")
	r.publish("n1", "orders", "b")
	lead := r.nodes["n1"]
	for _, id := range r.names {
		if r.nodes[id].s.byGroup[firstPartition].r.Leading() {
			lead = r.nodes[id]
		}
	}
	lead.rots = true
	for i := 1; i <= 3; i++ {
		_, err := r.call(lead.id, &call.Fetch{Topic: "orders", Offset: 0})
		if err == nil || err.Code != model.DataLoss {
			t.Fatalf("a fetch from a disk that keeps nothing: %v", err)
		}
		if lead.repairs != i*maxRepairs {
			t.Fatalf("%d repairs for %d reads", lead.repairs, i)
		}
	}
	if l := lead.s.Load(); l.Reads != 0 || l.Unrepaired == 0 {
		t.Fatalf("%+v", l)
	}
	if !strings.Contains(strings.Join(lead.notes, "\n"), "does not keep what is written") {
		t.Fatalf("nobody was told: %q", lead.notes)
	}
	lead.rots = false
	if _, err := r.call(lead.id, &call.Fetch{Topic: "orders", Offset: 0}); err != nil {
		t.Fatal(err)
	}
}
