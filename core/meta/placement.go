package meta

import (
	"github.com/tapedeck/tapedeck/core/model"
)

// place makes the groups of a topic's partitions [from, to). Each partition's
// replicas go to the nodes that hold the fewest, counted over all groups and
// those placed before it; of these the one that leads the fewest comes first.
// Ties go by name, so equal states place alike. There must be nodes enough.
func (s *state) place(topic model.TopicID, from, to, replicas uint32) []*model.Group {
	load := s.load()
	groups := make([]*model.Group, 0, to-from)
	for p := from; p < to; p++ {
		chosen := load.choose(int(replicas))
		g := &model.Group{
			ID: s.nextGroup, Kind: model.GroupPartition, Topic: topic, Partition: model.Partition(p),
			Replicas: make([]model.Replica, 0, replicas),
		}
		s.nextGroup++
		for _, i := range chosen {
			g.Replicas = append(g.Replicas, model.Replica{
				ID: s.nextReplica, Node: s.nodes[i].ID, Disk: s.nodes[i].Disk,
			})
			s.nextReplica++
		}
		g.Founders = founders(g.Replicas)
		groups = append(groups, g)
	}
	return groups
}

// load counts per node, in the order of state.nodes.
type load struct {
	replicas, leaders []int
	closed            []bool // takes no new replicas
	taken             []bool // scratch of choose
}

func (s *state) load() *load {
	n := len(s.nodes)
	l := &load{closed: make([]bool, n), replicas: make([]int, n), leaders: make([]int, n), taken: make([]bool, n)}
	place := make(map[model.NodeID]int, n)
	for i, node := range s.nodes {
		place[node.ID] = i
		l.closed[i] = node.Draining || node.Leaving
	}
	for _, g := range s.groups {
		for r, replica := range g.Replicas {
			i, ok := place[replica.Node]
			if !ok {
				continue
			}
			l.replicas[i]++
			if r == 0 {
				l.leaders[i]++
			}
		}
		if i, ok := place[g.Change.Add.Node]; ok && g.Change.Add.ID != 0 {
			l.replicas[i]++
		}
	}
	return l
}

// choose takes n nodes and counts them; the first is the one to lead.
func (l *load) choose(n int) []int {
	copy(l.taken, l.closed)
	chosen := make([]int, 0, n)
	for range n {
		best := -1
		for i := range l.replicas {
			if !l.taken[i] && (best < 0 || l.replicas[i] < l.replicas[best]) {
				best = i
			}
		}
		l.taken[best] = true
		l.replicas[best]++
		chosen = append(chosen, best)
	}
	lead := 0
	for c, i := range chosen {
		of := chosen[lead]
		if l.leaders[i] < l.leaders[of] || l.leaders[i] == l.leaders[of] && i < of {
			lead = c
		}
	}
	chosen[0], chosen[lead] = chosen[lead], chosen[0]
	l.leaders[chosen[0]]++
	return chosen
}
