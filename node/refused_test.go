package node_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/node"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// filesIn lists a disk's files below a folder, or with a prefix.
func filesIn(d *simdisk.Disk, prefix string) []string {
	var out []string
	for _, f := range d.Files() {
		if strings.HasPrefix(f.Name, prefix) {
			out = append(out, f.Name)
		}
	}
	return out
}

func remove(t *testing.T, d *simdisk.Disk, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := d.FS().Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// refused starts a node whose folder must be refused.
func (c *cluster) refused(id model.NodeID) *record.Refused {
	c.t.Helper()
	err := c.tryStart(id)
	var r *record.Refused
	if !errors.As(err, &r) {
		c.t.Fatalf("%s was opened, or failed otherwise: %v", id, err)
	}
	return r
}

// rebuilt sets a folder's content aside, and starts the node.
func (c *cluster) rebuilt(id, via model.NodeID) {
	c.t.Helper()
	n := c.nodes[id]
	before := n.disk.Files()
	to, err := node.SetAside(n.disk.FS())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range before {
		if strings.HasPrefix(f.Name, "refused-") {
			continue
		}
		if !slices.Contains(n.disk.Files(), simdisk.Stat{Name: to + "/" + f.Name, Size: f.Size}) {
			c.t.Fatalf("%s was not moved to %s", f.Name, to)
		}
	}
	n.folders++
	c.start(id)
	c.until(string(id)+" to be whole again", func() bool {
		return n.host.Shard().Catalog() != nil && c.settled(via)
	})
}

func TestAFoundedFolderWithoutItsJournalIsRefused(t *testing.T) {
	c := newCluster(t, 3, core.Limits{})
	c.createTopic("orders", 1, 3)
	w := c.writer()
	w.send("n1", 5)
	c.crash("n2")
	d := c.nodes["n2"].disk
	if found := filesIn(d, "MANIFEST"); len(found) > 0 {
		t.Fatal("there is a manifest already, so this shows nothing")
	}
	remove(t, d, filesIn(d, "journal/")...)
	for range 2 { // a second try meets what the first one left
		if r := c.refused("n2"); r.File != "journal" || !strings.Contains(r.Cause, "IDENTITY") {
			t.Fatal(r)
		}
	}
	c.rebuilt("n2", "n1")
	c.crash("n3")
	w.send("n2", 5)
	w.check("n2")
}

func TestAFolderWithoutIdentityIsRefused(t *testing.T) {
	c := newCluster(t, 1, core.Limits{})
	c.createTopic("orders", 1, 1)
	c.crash("n1")
	d := c.nodes["n1"].disk
	remove(t, d, append(filesIn(d, "IDENTITY"), filesIn(d, "segments")...)...)
	if r := c.refused("n1"); r.File != "IDENTITY" {
		t.Fatal(r)
	}
}

// A crash between the founding's sync and the identity's leaves a journal that
// knows more than the identity: the next start sets that right.
func TestACrashBetweenFoundingAndIdentity(t *testing.T) {
	c := newCluster(t, 1, core.Limits{})
	d := simdisk.New()
	n := c.nodes["n1"]
	c.crash("n1")
	n.disk = d
	var failure error
	n.fatal = func(err error) { failure, n.host = err, nil; n.life++ }
	c.start("n1")
	d.Fail(simdisk.OpSync, "IDENTITY", 1)
	c.until("the founding", func() bool { return failure != nil })
	if n.fatal = nil; !strings.Contains(failure.Error(), "IDENTITY") {
		t.Fatal(failure)
	}
	c.crash("n1")
	c.start("n1")
	if n.host.Shard().Catalog() == nil {
		t.Fatal("the founding is not in the journal")
	}
	c.crash("n1")
	remove(t, d, filesIn(d, "journal/")...)
	c.refused("n1")
}

func TestCheckpointsThatTheManifestDoesNotNameGo(t *testing.T) {
	c := newCluster(t, 1, small())
	c.createTopic("orders", 1, 1)
	c.writer().send("n1", 60)
	c.crash("n1")
	d := c.nodes["n1"].disk
	for _, name := range []string{"checkpoint-99999", "checkpoint-7.tmp"} {
		if _, err := d.FS().Create(name); err != nil {
			t.Fatal(err)
		}
	}
	c.start("n1")
	if found := filesIn(d, "checkpoint-"); len(found) != 1 || found[0] == "checkpoint-99999" {
		t.Fatalf("after a start there are %v", found)
	}
}

func TestDamageIsRefusedAndTheNodeRebuilt(t *testing.T) {
	for what, damage := range map[string]struct {
		file string // prefix of a file's name
		bit  int64
	}{
		"journal":    {"journal/", 8 * 100},
		"manifest":   {"MANIFEST", 8 * 13},
		"checkpoint": {"checkpoint-", 8 * 40},
		"identity":   {"IDENTITY", 8 * 13},
	} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t, 3, small())
			c.createTopic("orders", 1, 3)
			w := c.writer()
			w.send("n1", 60)
			c.crash("n2")
			w.send("n1", 5)
			d := c.nodes["n2"].disk
			found := filesIn(d, damage.file)
			name := found[0]
			if what == "checkpoint" {
				name = found[len(found)-1] // the others are not in use
			}
			if err := d.FlipBit(name, damage.bit); err != nil {
				t.Fatal(err)
			}
			if r := c.refused("n2"); r.File != name || r.Cause == "" || r.Advice == "" {
				t.Fatalf("%+v", r)
			} else {
				t.Log(r)
			}
			c.rebuilt("n2", "n1")
			c.crash("n3") // from here on n2's vote is needed
			w.send("n1", 5)
			w.check("n2")
		})
	}
}
