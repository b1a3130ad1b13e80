package sim

import (
	"fmt"
)

// describe prints every replica's place in its group: what one wants to see
// first when a run did not come to rest.
func (w *World) describe(line func(string)) {
	for _, n := range w.nodes {
		if !n.up {
			line(fmt.Sprintf("  %-5s down", n.id))
			continue
		}
		for _, id := range n.host.Shard().Replicas() {
			r := n.host.Shard().Replica(id)
			v := r.View()
			change := ""
			if c := r.Group().Change; c.ID != 0 {
				change = fmt.Sprintf(" change %+v", c)
			}
			line(fmt.Sprintf("  %-5s group %-5d replica %-5d %-15v term %-3d lead %-5d open %-5v "+
				"commit %-5d applied %-5d log [%d,%d]%s", n.id, id, v.Replica, v.Role, v.Term, v.Leader, v.Leading,
				v.Commit, v.Applied, v.First, v.Last, change))
		}
		l := n.host.Shard().Load()
		line(fmt.Sprintf("  %-5s load %+v", n.id, l))
	}
}
