package meta

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

func TestFoundingGroups(t *testing.T) {
	for _, c := range []struct{ nodes, voters, coordinatorReplicas int }{
		{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 3}, {5, 5, 5}, {6, 5, 5}, {MaxNodes, 5, 5},
	} {
		f := founding(c.nodes)
		f.Coordinators = 7
		m := New(f)
		if err := m.state.check(); err != nil {
			t.Fatalf("%d nodes: %v", c.nodes, err)
		}
		meta, _ := m.Catalog().Group(model.MetaGroup)
		voters := 0
		for i, r := range meta.Replicas {
			if r.Node != f.Nodes[i].ID || r.ID != model.ReplicaID(i+1) || r.Disk != f.Nodes[i].Disk {
				t.Fatalf("%d nodes: meta's replica %d is %+v", c.nodes, i, r)
			}
			if !r.Learner {
				voters++
			}
		}
		if len(meta.Replicas) != c.nodes || voters != c.voters {
			t.Fatalf("%d nodes: %d replicas, %d voters", c.nodes, len(meta.Replicas), voters)
		}
		for k := range model.GroupID(7) {
			g, _ := m.Catalog().Group(model.FirstCoordinatorGroup + k)
			if len(g.Replicas) != c.coordinatorReplicas || g.Replicas[0].Node != f.Nodes[int(k)%c.nodes].ID ||
				g.Replicas[0].ID != model.ReplicaID(1000*(k+1)+1) {
				t.Fatalf("%d nodes: coordinator %d is %+v", c.nodes, k, g)
			}
		}
	}
}

func TestFoundingCodec(t *testing.T) {
	f := founding(3)
	var got Founding
	if err := wire.Decode(wire.Encode(&f), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(f) {
		t.Fatalf("%v: %+v", err, got)
	}
}

func TestFoundingRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Founding){
		"no nodes":        func(f *Founding) { f.Nodes = nil },
		"no coordinators": func(f *Founding) { f.Coordinators = 0 },
		"too many":        func(f *Founding) { f.Coordinators = MaxCoordinators + 1 },
		"order":           func(f *Founding) { slices.Reverse(f.Nodes) },
		"no disk":         func(f *Founding) { f.Nodes[1].Disk = 0 },
		"bad name":        func(f *Founding) { f.Nodes[0].ID = "N" },
	} {
		f := founding(3)
		spoil(&f)
		if f.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Whatever the sizes, replicas and preferred leaders differ by one at most
// between nodes, and a partition's replicas are on different nodes.
func TestPlacementIsEven(t *testing.T) {
	for _, c := range []struct {
		nodes      int
		partitions uint32
		replicas   uint32
	}{{3, 10, 3}, {3, 10, 1}, {4, 7, 3}, {5, 100, 3}, {6, 100, 5}, {30, 100, 3}} {
		s := found(founding(c.nodes))
		groups := s.place(1, 0, c.partitions, c.replicas)
		s.addGroups(groups)
		replicas, leaders := map[model.NodeID]int{}, map[model.NodeID]int{}
		for _, g := range groups {
			nodes := map[model.NodeID]bool{}
			for _, r := range g.Replicas {
				nodes[r.Node] = true
				replicas[r.Node]++
			}
			leaders[g.Replicas[0].Node]++
			if len(nodes) != int(c.replicas) {
				t.Fatalf("%+v: replicas share a node: %+v", c, g)
			}
		}
		after := s.load()
		if spread(after.replicas) > 1 {
			t.Errorf("%+v: replicas %v", c, after.replicas)
		}
		if c.replicas > 1 && spread(after.leaders) > 1 { // a single replica has nobody else to lead
			t.Errorf("%+v: leaders %v", c, after.leaders)
		}
		if total := sum(maps.Values(replicas)); total != int(c.partitions*c.replicas) {
			t.Errorf("%+v: %d replicas", c, total)
		}
	}
}

func spread(n []int) int { return slices.Max(n) - slices.Min(n) }

func sum(values iter.Seq[int]) int {
	n := 0
	for v := range values {
		n += v
	}
	return n
}
