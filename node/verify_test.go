package node_test

import (
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/node"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

func verify(t *testing.T, d *simdisk.Disk) *node.Report {
	t.Helper()
	r, err := node.Verify(d.FS(), simdisk.NewEngine(d.FS(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerifySeesEveryKindOfDamage(t *testing.T) {
	c := newCluster(t, 3, small())
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 60)
	c.until("all to have it", func() bool { return c.settled("n1") })
	end := c.now.Add(1e9) // idle: a sync mark witnesses that all was durable
	c.at(1e9, func() {})
	c.until("a while", func() bool { return c.now >= end })
	c.crash("n2")
	d := c.nodes["n2"].disk
	before := d.Files()
	r := verify(t, d)
	if len(r.Findings) > 0 || r.Torn != nil || !r.Readable || !r.Founded || r.Batches < 50 || r.Records == 0 ||
		r.Starts != 1 {
		t.Fatalf("a sound folder: %+v", r)
	}
	seen, unseen := 0, 0
	for i, f := range before {
		if strings.HasPrefix(f.Name, "checkpoint-") && strings.HasPrefix(before[i+1].Name, "checkpoint-") {
			continue // not the last: a crash kept it from going
		}
		for bit := int64(5); bit < f.Size*8; bit += 211 {
			damaged := d.Clone()
			if err := damaged.FlipBit(f.Name, bit); err != nil {
				t.Fatal(err)
			}
			r := verify(t, damaged)
			switch {
			case len(r.Findings) > 0 && r.Findings[0].File == f.Name:
				seen++
			case len(r.Findings) > 0:
				t.Fatalf("bit %d of %s: said of another file: %+v", bit, f.Name, r.Findings)
			case strings.HasSuffix(f.Name, ".active") || r.Torn != nil:
				unseen++ // behind what the manifest accounts for; the journal has it
			default:
				t.Fatalf("bit %d of %s was not seen", bit, f.Name)
			}
		}
	}
	if t.Logf("%d flips seen, %d in what the next start brings again", seen, unseen); seen < 10*unseen {
		t.Fatal("too much is not looked at")
	}
	for i, f := range d.Files() {
		if f != before[i] {
			t.Fatalf("%s was changed", f.Name)
		}
	}
	c.start("n2")
	w.check("n2")
}

func TestVerifyOfFoldersThatAreRefusedForOtherReasons(t *testing.T) {
	c := newCluster(t, 3, core.Limits{})
	c.createTopic("orders", 1, 3)
	c.writer().send("n1", 10)
	for _, id := range c.names {
		c.crash(id)
	}
	for prefix, id := range map[string]model.NodeID{"journal/": "n1", "IDENTITY": "n2"} {
		d := c.nodes[id].disk
		remove(t, d, filesIn(d, prefix)...)
		r := verify(t, d)
		if len(r.Findings) != 1 || !strings.HasPrefix(r.Findings[0].File, strings.TrimSuffix(prefix, "/")) {
			t.Fatalf("without %s: %+v", prefix, r.Findings)
		}
	}
	d := c.nodes["n3"].disk
	before := len(verify(t, d).Findings)
	if _, err := node.SetAside(d.FS()); err != nil || before != 0 {
		t.Fatal(err, before)
	}
	if r := verify(t, d); r.Disk != 0 || len(r.Findings) != 0 {
		t.Fatalf("a folder that was set aside: %+v", r)
	}
}
