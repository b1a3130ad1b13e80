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
