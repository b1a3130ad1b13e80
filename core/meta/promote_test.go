package meta

import (
	"slices"
	"testing"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// finish reports every change under way as done, until none is.
func finish(t *testing.T, h *host, m *Machine) {
	t.Helper()
	for range 100 {
		i := slices.IndexFunc(m.Catalog().Groups(), func(g *model.Group) bool { return g.Change.ID != 0 })
		if i < 0 {
			return
		}
		g := m.Catalog().Groups()[i]
		h.must(t, m, &call.ReportChange{Group: g.ID, Change: g.Change.ID})
	}
	t.Fatal("changes without end")
}

// A learner of meta that is to vote keeps its id while it is being promoted: the
// state with it in both places is sound, in a checkpoint and in a snapshot.
func TestAStateWithAPromotionRestores(t *testing.T) {
	h, m := newHost(), New(founding(3))
	nodes := m.Catalog().Nodes()
	h.must(t, m, &call.JoinNode{Node: "zz", Disk: 99, Address: "zz:1"})
	finish(t, h, m)
	h.must(t, m, &call.DrainNode{Node: nodes[0].ID})
	finish(t, h, m)
	h.must(t, m, &call.RemoveNode{Node: nodes[0].ID})
	g, _ := m.Catalog().Group(model.MetaGroup)
	promoted := g.Change.Add
	if !slices.ContainsFunc(g.Replicas, func(r model.Replica) bool { return r.ID == promoted.ID && r.Learner }) {
		t.Fatalf("nobody is promoted: %+v", g.Change)
	}
	again := New(founding(3))
	if err := again.Restore(m.Snapshot()); err != nil {
		t.Fatal(err)
	}
	finish(t, h, m)
	g, _ = m.Catalog().Group(model.MetaGroup)
	n := 0
	for _, r := range g.Replicas {
		if r.ID == promoted.ID {
			n++
		}
	}
	if n != 1 || len(g.Replicas) != 3 || voters(g) != 3 {
		t.Fatalf("after the promotion: %+v", g.Replicas)
	}
	if err := again.Restore(m.Snapshot()); err != nil {
		t.Fatal(err)
	}
}

// A node that joins, and is removed before it ever came, does not stay for good.
func TestANodeIsRemovedWhileItJoins(t *testing.T) {
	h, m := newHost(), New(founding(3))
	h.must(t, m, &call.JoinNode{Node: "zz", Disk: 99, Address: "zz:1"})
	h.must(t, m, &call.DrainNode{Node: "zz"})
	if g, _ := m.Catalog().Group(model.MetaGroup); g.Change.Canceled {
		t.Fatal("a drained node keeps its place in meta")
	}
	h.must(t, m, &call.RemoveNode{Node: "zz"})
	g, _ := m.Catalog().Group(model.MetaGroup)
	if !g.Change.Canceled {
		t.Fatalf("meta still waits for it: %+v", g.Change)
	}
	h.must(t, m, &call.ReportChange{Group: g.ID, Change: g.Change.ID, GivenUp: true})
	if g, _ = m.Catalog().Group(model.MetaGroup); g.Change.ID != 0 || len(m.Catalog().Nodes()) != 3 {
		t.Fatalf("after it was given up: %+v, %d nodes", g.Change, len(m.Catalog().Nodes()))
	}
}

// Where the old replica is out of the group already, giving up the new one does
// not leave the group a replica short.
func TestACanceledRebuildIsBegunAgain(t *testing.T) {
	h, m := newHost(), New(founding(4))
	h.must(t, m, &call.CreateTopic{Name: "orders"})
	topic, _ := m.Catalog().Topic("orders")
	group := func() *model.Group { g, _ := m.Catalog().Group(topic.Partitions[0]); return g }
	old := group().Replicas[0]
	h.must(t, m, &call.RebuildNode{Node: old.Node})
	h.must(t, m, &call.ReportChange{Group: group().ID, Change: group().Change.ID, Removed: true})
	h.must(t, m, &call.DrainNode{Node: old.Node})
	h.must(t, m, &call.DrainNode{Node: old.Node, Undo: true})
	first := group().Change
	if !first.Canceled {
		t.Fatalf("not canceled: %+v", first)
	}
	h.must(t, m, &call.ReportChange{Group: group().ID, Change: first.ID, GivenUp: true})
	if c := group().Change; c.ID == first.ID || c.Remove != old.ID || c.Add.Node == "" || c.Canceled {
		t.Fatalf("nobody takes the place of %+v: %+v", old, c)
	}
}
