package core

import (
	"strings"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/meta"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

func (r *rig) founded() (out []model.NodeID) {
	for _, id := range r.names {
		if n := r.nodes[id]; n.s != nil && n.s.founding != nil {
			out = append(out, id)
		}
	}
	return out
}

func TestAllEmptyFound(t *testing.T) {
	r := newRig(t, 3, Limits{})
	r.nodes["n1"].start()
	r.nodes["n2"].start()
	r.run(30 * time.Second)
	if f := r.founded(); len(f) != 0 {
		t.Fatalf("%v founded without having heard n3", f)
	}
	r.nodes["n3"].start()
	r.until("a founding everywhere", func() bool { return len(r.founded()) == 3 })
	for _, id := range r.names {
		if r.nodes[id].s.founding.Cluster != r.nodes["n1"].s.founding.Cluster {
			t.Fatalf("%s founded another cluster", id)
		}
	}
}

func TestNothingIsDoneBeforeTheFoundingIsDurable(t *testing.T) {
	r := newRig(t, 1, Limits{})
	n := r.nodes["n1"]
	n.hold = true
	r.startAll()
	r.run(time.Second)
	for i, x := range n.records {
		if want := RecordBootstrap; i > 0 && x.Type != RecordMark || i == 0 && x.Type != want {
			t.Fatalf("before the founding is durable there is a record of type %d", x.Type)
		}
	}
	n.crash()
	n.start()
	if n.s.founding != nil {
		t.Fatal("a founding that was not durable came back")
	}
}

// A founded node never founds again with the others, and an empty one takes the
// founding over only if its folder is named.
func TestAdoptOnlyWhenNamed(t *testing.T) {
	r := newRig(t, 3, Limits{})
	n3 := r.nodes["n3"]
	n3.hold = true
	r.startAll()
	r.until("a founding of two", func() bool { return len(r.founded()) == 2 })
	cluster := r.nodes["n1"].s.founding.Cluster

	// n3 crashes before its founding is durable: named, it takes over.
	n3.crash()
	n3.hold = false
	n3.start()
	r.until("n3 to take over", func() bool { return n3.s.founding != nil })
	if n3.s.founding.Cluster != cluster {
		t.Fatal("n3 founded by itself")
	}
	if v := n3.s.Replica(model.MetaGroup); v.Self() != 3 {
		t.Fatalf("n3 plays replica %d", v.Self())
	}

	// Wiped, it is not named: it joins with another replica id.
	n3.crash()
	n3.wipe()
	n3.start()
	r.until("n3 to join", func() bool { return n3.s.founding != nil })
	if n3.s.founding.Cluster != cluster || n3.s.Replica(model.MetaGroup).Self() <= 3 {
		t.Fatalf("a wiped node is replica %d of cluster %x", n3.s.Replica(model.MetaGroup).Self(), n3.s.founding.Cluster)
	}
}

func TestBootstrapFoundsWithoutTheDead(t *testing.T) {
	r := newRig(t, 3, Limits{})
	r.cfg.Bootstrap = true
	r.nodes["n1"].start()
	r.run(bootstrapWait - 100*time.Millisecond)
	if len(r.founded()) != 0 {
		t.Fatal("it did not wait for peers")
	}
	r.until("a founding", func() bool { return len(r.founded()) == 1 })
	if f := r.nodes["n1"].s.founding; len(f.Nodes) != 1 {
		t.Fatalf("founded with %v", f.Nodes)
	}
}

func TestDifferentPeerListsAreComplainedOf(t *testing.T) {
	r := newRig(t, 2, Limits{})
	r.nodes["n1"].start()
	r.cfg.Peers = append(r.cfg.Peers, model.Node{ID: "n9"})
	r.nodes["n2"].start()
	r.run(5 * time.Second)
	all := strings.Join(append(r.nodes["n1"].notes, r.nodes["n2"].notes...), "\n")
	if !strings.Contains(all, "is configured with other peers") {
		t.Fatalf("notes: %s", all)
	}
	if f := r.founded(); len(f) != 0 {
		t.Fatalf("%v founded though the lists differ", f)
	}
}

// An empty answer grows old: what counts is that all would found the same.
func TestAnOldEmptyAnswerFoundsNothing(t *testing.T) {
	r := newRig(t, 3, Limits{})
	n1, n2, n3 := r.nodes["n1"], r.nodes["n2"], r.nodes["n3"]
	// n2 hears that n1 is empty and nothing more; the others hear everything.
	heard := false
	r.cut = func(from, to model.NodeID) bool {
		was := heard
		heard = was || from == "n1" && to == "n2"
		return to == "n2" && (was || from != "n1")
	}
	r.startAll()
	r.run(3 * time.Second) // whatever n1 and n3 make of it
	// n3 loses its disk, comes back empty, and now reaches n2; n1 reaches nobody.
	n3.crash()
	n3.wipe()
	r.cut = func(from, _ model.NodeID) bool { return from == "n1" }
	n2.step(PeerDown{Peer: "n3"})
	n3.start()
	r.run(20 * time.Second)
	if f := n1.s.founding; f != nil && n2.s.founding != nil && n2.s.founding.Cluster != f.Cluster {
		t.Fatal("two clusters were founded")
	}
	r.cut = nil
	r.until("one cluster", func() bool {
		return n1.s.Ready() && n2.s.Ready() && n3.s.Ready() && n2.s.founding.Cluster == n1.s.founding.Cluster &&
			n3.s.founding.Cluster == n1.s.founding.Cluster
	})
}

// The window between a joining node's two records is survived.
func TestCrashWhileJoining(t *testing.T) {
	r := newRig(t, 3, Limits{})
	r.startAll()
	r.until("a founding everywhere", func() bool { return len(r.founded()) == 3 })
	n3 := r.nodes["n3"]
	n3.crash()
	n3.wipe()
	n3.start()
	joined := false
	r.stop = func(n *rigNode, e Effect) bool {
		a, ok := e.(JournalAppend)
		if !joined && n == n3 && ok && a.Record.Type == RecordGroup {
			joined = true
			return true // the founding is durable, the replica's record is not
		}
		return false
	}
	r.until("the crash", func() bool { return joined })
	if len(n3.records) != 1 || n3.records[0].Type != RecordBootstrap {
		t.Fatalf("the folder holds %d records", len(n3.records))
	}
	n3.start()
	r.until("n3 to be back", func() bool { return n3.s.Replica(model.MetaGroup) != nil && n3.s.Ready() })
	if self := n3.s.Replica(model.MetaGroup).Self(); self <= 3 {
		t.Fatalf("it plays replica %d, which is gone", self)
	}
}

// A rebuilt node replaces its replica of meta in one record: between two it
// would come back as the founder it no longer is.
func TestCrashWhileMetaBeginsAgain(t *testing.T) {
	r := newRig(t, 3, Limits{})
	r.startAll()
	r.until("a leader", func() bool { return len(r.founded()) == 3 && r.nodes["n1"].s.Ready() })
	n3 := r.nodes["n3"]
	crashed := false
	r.stop = func(n *rigNode, e Effect) bool {
		a, ok := e.(JournalAppend)
		if !crashed && n == n3 && ok && a.Record.Group == model.MetaGroup && a.Record.Type == RecordGroup {
			crashed = true
			n.synced = len(n.records) - 1 // all before it happened to be durable
			return true
		}
		return false
	}
	if _, err := r.call("n1", &call.Admin{Request: &call.RebuildNode{Node: "n3"}}); err != nil {
		t.Fatal(err)
	}
	r.until("the crash", func() bool { return crashed })
	n3.start()
	if m := n3.s.Replica(model.MetaGroup); m == nil || m.Applied() <= 1 {
		t.Fatal("it came back as an empty founder")
	}
	r.until("n3 to be rebuilt", func() bool {
		m := n3.s.Replica(model.MetaGroup)
		return m != nil && m.Self() > 3 && n3.s.Ready()
	})
}

// A node that is not among the configured ones has no part in the founding,
// however early it says hello.
func TestAStrangerHasNoPartInTheFounding(t *testing.T) {
	r := newRig(t, 3, Limits{})
	peers := r.cfg.Peers
	r.nodes["n3"].start() // knows all three
	r.cfg.Peers = peers[:2]
	r.nodes["n1"].start()
	r.run(time.Second)
	r.nodes["n2"].start()
	r.until("a founding", func() bool { return r.nodes["n1"].s.founding != nil && r.nodes["n2"].s.founding != nil })
	f := r.nodes["n1"].s.founding
	if len(f.Nodes) != 2 || f.Cluster != r.nodes["n2"].s.founding.Cluster {
		t.Fatalf("founded by %v, and cluster %x on n2", f.Nodes, r.nodes["n2"].s.founding.Cluster)
	}
	r.until("the stranger to join", func() bool { return r.nodes["n3"].s.Ready() })
}

// What no node says is not acted on: a founding and a joining are for good.
func TestWrongHellos(t *testing.T) {
	me := model.Replica{ID: 9, Node: "n1", Disk: 1, Joined: true}
	sound := &meta.Founding{Cluster: 5, Coordinators: 1, Nodes: []model.Node{{ID: "n2", Disk: 2}}}
	joinable := model.Group{ID: model.MetaGroup, Kind: model.GroupMeta,
		Replicas: []model.Replica{{ID: 1, Node: "n2", Disk: 2}, me}}
	other, founder, nobody := joinable, joinable, joinable
	other.Kind = model.GroupPartition
	founder.Replicas = []model.Replica{{ID: 9, Node: "n1", Disk: 1}}
	nobody.Replicas, nobody.Change = nil, model.Change{ID: 1, Add: me}
	for name, h := range map[string]hello{
		"a founding by nobody":      {founding: &meta.Founding{Coordinators: 1}},
		"a founding without groups": {founding: &meta.Founding{Nodes: []model.Node{{ID: "n1", Disk: 1}}}},
		"a founding out of order": {founding: &meta.Founding{Coordinators: 1,
			Nodes: []model.Node{{ID: "n2", Disk: 2}, {ID: "n1", Disk: 1}}}},
		"joining what was not founded": {join: &joinable, version: 3},
		"joining another group":        {founding: sound, join: &other, version: 3},
		"joining nobody":               {founding: sound, join: &nobody, version: 3},
		"joining as a founder":         {founding: sound, join: &founder, version: 3},
		"":                             {founding: sound, join: &joinable, version: 3},
	} {
		r := newRig(t, 2, Limits{})
		n := r.nodes["n1"]
		n.start()
		c := wire.Codec{}
		(&header{from: model.Incarnation{Disk: 2, Boot: 1 << 30}, wall: r.instant().Wall}).Code(&c)
		item(&c, itemHello)
		h.Code(&c)
		n.step(Packet{From: "n2", Data: c.Buf})
		r.run(time.Second)
		if founded := n.s.founding != nil; founded != (name == "") {
			t.Errorf("%s: founded or joined: %v", name, founded)
		}
	}
}
