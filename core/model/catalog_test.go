package model

import (
	"strings"
	"testing"
)

// A group is lost once no membership it can be in has a majority on folders that
// are there; n1 and n2 have other folders than the replicas were made in.
func TestLost(t *testing.T) {
	nodes := []*Node{{ID: "n1", Disk: 91}, {ID: "n2", Disk: 92}, {ID: "n3", Disk: 3}, {ID: "n4", Disk: 4}}
	on := func(id ReplicaID) Replica {
		return Replica{ID: id, Node: NodeID("n" + string(rune('0'+id))), Disk: DiskID(id)}
	}
	learner := func(id ReplicaID) Replica { r := on(id); r.Learner = true; return r }
	for name, c := range map[string]struct {
		replicas       []Replica
		change         Change
		lost, stranded bool
	}{
		"one, there":                {replicas: []Replica{on(3)}},
		"one, gone":                 {replicas: []Replica{on(1)}, lost: true, stranded: true},
		"one of three gone":         {replicas: []Replica{on(1), on(3), on(4)}},
		"two of three gone":         {replicas: []Replica{on(1), on(2), on(4)}, lost: true, stranded: true},
		"a learner counts for none": {replicas: []Replica{on(1), learner(3)}, lost: true, stranded: true},
		"a node that is not known":  {replicas: []Replica{on(7)}},
		"one, moving to who is there": {replicas: []Replica{on(1)}, change: Change{ID: 1, Add: on(3), Remove: 1},
			stranded: true},
		"one, moving to who is gone": {replicas: []Replica{on(1)}, change: Change{ID: 1, Add: on(2), Remove: 1},
			lost: true, stranded: true},
		"the one that goes is gone": {replicas: []Replica{on(1), on(3), on(4)}, change: Change{ID: 1, Remove: 1}},
		"two of three, one leaves": {replicas: []Replica{on(1), on(2), on(4)}, change: Change{ID: 1, Remove: 1}, lost: true,
			stranded: true},
		"two of three, one replaced": {replicas: []Replica{on(1), on(2), on(4)},
			change: Change{ID: 1, Add: on(3), Remove: 1}, stranded: true},
	} {
		g := &Group{ID: 9, Replicas: c.replicas, Change: c.change}
		if g.Lost(nodes) != c.lost || g.Stranded(nodes) != c.stranded {
			t.Errorf("%s: lost %v, stranded %v", name, g.Lost(nodes), g.Stranded(nodes))
		}
	}
}

// The text names what is lost, whose folders had it, and what to do.
func TestLostText(t *testing.T) {
	c := lostCatalog{nodes: []*Node{{ID: "n1", Disk: 91}, {ID: "n2", Disk: 2}}}
	got := LostText(c, &Group{Kind: GroupPartition, Topic: 1, Partition: 3,
		Replicas: []Replica{{ID: 1, Node: "n1", Disk: 1}, {ID: 2, Node: "n2", Disk: 2}}})
	for _, want := range []string{`partition 3 of topic "orders"`, "nodes n1 have", "delete the topic"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

type lostCatalog struct {
	Catalog
	nodes []*Node
}

func (c lostCatalog) Nodes() []*Node                 { return c.nodes }
func (lostCatalog) TopicByID(TopicID) (*Topic, bool) { return &Topic{Name: "orders"}, true }
