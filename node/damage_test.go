package node_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

func read(t *testing.T, d *simdisk.Disk, name string) []byte {
	t.Helper()
	f, err := d.FS().Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// segmentsOf are a node's segment files that end in a suffix.
func (c *cluster) segmentsOf(id model.NodeID, suffix string) []string {
	return slices.DeleteFunc(filesIn(c.nodes[id].disk, "segments/"),
		func(s string) bool { return !strings.HasSuffix(s, suffix) })
}

func (c *cluster) flip(id model.NodeID, name string, bit int64) {
	c.t.Helper()
	if err := c.nodes[id].disk.FlipBit(name, bit); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) load(id model.NodeID) core.Load { return c.nodes[id].host.Shard().Load() }

func (c *cluster) noted(text string) bool {
	return slices.ContainsFunc(c.notes, func(s string) bool { return strings.Contains(s, text) })
}

func (c *cluster) leader() model.NodeID {
	return must[*call.GetTopicResult](c.t)(c.call("n1", &call.GetTopic{Name: "orders"})).Partitions[0].Leader
}

func TestTheScrubFindsAndRepairsDamage(t *testing.T) {
	c := newClusterWith(t, 3, core.Config{Limits: small(), Timing: core.Timing{ScrubEvery: 2 * time.Second}})
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 60)
	c.until("all to have it", func() bool { return c.settled("n1") })
	d := c.nodes["n2"].disk
	repaired := uint64(0)
	for _, suffix := range []string{".segment", ".active"} {
		name := c.segmentsOf("n2", suffix)[0]
		want := read(t, d, name)
		for _, bit := range []int64{0, 8*8 + 3, 8 * 36, 8 * 90} { // magic, base, size, content
			c.flip("n2", name, bit)
			repaired++
			c.until("a repair, and a read that sees it", func() bool {
				l := c.load("n2")
				return l.Repaired == repaired && l.Reads == 0
			})
			if !bytes.Equal(read(t, d, name), want) {
				t.Fatalf("%s is not what it was after a repair of bit %d", name, bit)
			}
		}
		if !c.noted("segment file " + name + " is damaged at byte 0") {
			t.Fatal("nobody was told which file, and where")
		}
	}
	if l := c.load("n2"); l.Damaged != repaired || l.Unrepaired != 0 || l.Scrubbed == 0 {
		t.Fatalf("%+v", l)
	}
	w.check("n2")
}

func TestADamagedIndexIsMadeAnew(t *testing.T) {
	// No checkpoint comes by itself: nothing else has a reason to sync a cold partition.
	c := newClusterWith(t, 3, core.Config{Limits: small(),
		Timing: core.Timing{ScrubEvery: 2 * time.Second, CheckpointAfter: time.Hour}})
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 90)
	c.crash("n2") // so that no index is in memory
	c.start("n2")
	c.until("all to have it", func() bool { return c.settled("n1") })
	d := c.nodes["n2"].disk
	name := c.segmentsOf("n2", ".segment")[0]
	want := read(t, d, name)
	c.flip("n2", name, int64(len(want)-64-10)*8) // in the time index, before the footer
	c.until("the damage to be told", func() bool { return c.noted("an index of its segments was damaged") })
	checkpoints := c.load("n2").Checkpoints
	c.until("the file to be mended", func() bool { return bytes.Equal(read(t, d, name), want) })
	if n := c.load("n2").Checkpoints; n != checkpoints {
		t.Fatalf("%d checkpoints came, so they may have brought it", n-checkpoints)
	}
	w.check("n2")
}

func TestDamageIsNotServed(t *testing.T) {
	for damaged := 1; damaged <= 3; damaged++ {
		t.Run(fmt.Sprint(damaged), func(t *testing.T) {
			c := newCluster(t, 3, small())
			c.createTopic("orders", 1, 3)
			w := c.writer()
			w.send("n1", 60)
			c.until("all to have it", func() bool { return c.settled("n1") })
			first := c.leader()
			hit := append([]model.NodeID{first}, slices.DeleteFunc(slices.Clone(c.names),
				func(n model.NodeID) bool { return n == first })...)[:damaged]
			for _, id := range hit {
				c.flip(id, c.segmentsOf(id, ".segment")[0], 8*90)
			}
			if damaged < 3 {
				w.check(first)
				if l := c.load(first); l.Damaged == 0 || l.Repaired != l.Damaged || l.Unrepaired != 0 {
					t.Fatalf("%+v", l)
				}
				return
			}
			_, err := c.call(first, &call.Fetch{Topic: "orders", Partition: 0, Offset: 0})
			if err == nil || err.Code != model.DataLoss || !strings.Contains(err.Message, "segment file") {
				t.Fatalf("a fetch of what is damaged everywhere: %v", err)
			}
			if l := c.load(first); l.Unrepaired == 0 || l.Reads != 0 {
				t.Fatalf("%+v", l)
			}
			// One good copy heals the others.
			c.flip(hit[1], c.segmentsOf(hit[1], ".segment")[0], 8*90)
			w.check(first)
		})
	}
}

func TestDamageWithoutAnotherReplica(t *testing.T) {
	c := newCluster(t, 1, small())
	c.createTopic("orders", 1, 1)
	w := c.writer()
	w.send("n1", 60)
	name := c.segmentsOf("n1", ".segment")[0]
	c.flip("n1", name, 8*90)
	for range 3 {
		_, err := c.call("n1", &call.Fetch{Topic: "orders", Partition: 0, Offset: 0})
		if err == nil || err.Code != model.DataLoss || !strings.Contains(err.Message, name) {
			t.Fatal(err)
		}
	}
	if l := c.load("n1"); l.Damaged != 1 || l.Unrepaired != 1 {
		t.Fatalf("one damage is counted as often as it is read: %+v", l)
	}
	w.send("n1", 3) // what is not damaged goes on
}
