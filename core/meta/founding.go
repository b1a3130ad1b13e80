package meta

import (
	"fmt"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Limits of a founding.
const (
	// MaxNodes keeps the meta group's replica ids below the coordinators'.
	MaxNodes = 999
	// MaxCoordinators keeps their group ids below the partitions'.
	MaxCoordinators = uint32(model.FirstPartitionGroup-model.FirstCoordinatorGroup) - 8
	// MaxVoters of the meta group; the other nodes learn.
	MaxVoters = 5
	// CoordinatorReplicas is the size of a coordinator group if there are nodes
	// enough, else as many as there are, but not 4: cursors survive what a topic of as many replicas does.
	CoordinatorReplicas = 5
)

// Founding is what a cluster begins with. Every founding node holds the same
// one and derives the same first state from it.
type Founding struct {
	Cluster      uint64       // the cluster's id, drawn at random
	Nodes        []model.Node // by id, with their disks
	Coordinators uint32       // number of coordinator groups, at least 1
}

const foundingVersion = 1

// Code implements wire.Coder.
func (f *Founding) Code(c *wire.Codec) {
	c.Version(foundingVersion)
	wire.Uint(c, &f.Cluster)
	wire.Slice(c, &f.Nodes, CodeNode)
	wire.Uint(c, &f.Coordinators)
}

// CodeNode codes every field of a node.
func CodeNode(c *wire.Codec, n *model.Node) {
	wire.String(c, &n.ID)
	wire.Uint(c, &n.Disk)
	wire.String(c, &n.Address)
	c.Bool(&n.Draining)
	c.Bool(&n.Leaving)
}

// CodeGroup codes every field of a group.
func CodeGroup(c *wire.Codec, g *model.Group) {
	wire.Uint(c, &g.ID)
	wire.Uint(c, &g.Kind)
	wire.Uint(c, &g.Topic)
	wire.Uint(c, &g.Partition)
	wire.Slice(c, &g.Replicas, codeReplica)
	wire.Slice(c, &g.Founders, func(c *wire.Codec, id *model.ReplicaID) { wire.Uint(c, id) })
	wire.Uint(c, &g.Change.ID)
	codeReplica(c, &g.Change.Add)
	wire.Uint(c, &g.Change.Remove)
	c.Bool(&g.Change.Removed)
	c.Bool(&g.Change.Canceled)
}

func codeReplica(c *wire.Codec, r *model.Replica) {
	wire.Uint(c, &r.ID)
	wire.String(c, &r.Node)
	wire.Uint(c, &r.Disk)
	c.Bool(&r.Learner)
	c.Bool(&r.Joined)
}

// Validate says what is wrong with a founding.
func (f Founding) Validate() error {
	if n := len(f.Nodes); n < 1 || n > MaxNodes {
		return fmt.Errorf("a cluster is founded by 1 to %d nodes, not by %d", MaxNodes, n)
	}
	if f.Coordinators < 1 || f.Coordinators > MaxCoordinators {
		return fmt.Errorf("a cluster has 1 to %d coordinator groups, not %d", MaxCoordinators, f.Coordinators)
	}
	for i, n := range f.Nodes {
		if err := model.ValidateName("node", string(n.ID)); err != nil {
			return err
		}
		if i > 0 && f.Nodes[i-1].ID >= n.ID {
			return fmt.Errorf("nodes must be sorted and unique: %q follows %q", n.ID, f.Nodes[i-1].ID)
		}
		if n.Disk == 0 {
			return fmt.Errorf("node %q has no disk id", n.ID)
		}
	}
	return nil
}

// Groups derives the first groups, by id: meta on every node, then the
// coordinators, each beginning one node further than the one before it.
func (f Founding) Groups() []model.Group {
	n := len(f.Nodes)
	coordinators := min(n, CoordinatorReplicas)
	if n == 4 {
		coordinators = 3
	}
	groups := make([]model.Group, 0, 1+int(f.Coordinators))
	meta := model.Group{ID: model.MetaGroup, Kind: model.GroupMeta}
	for i, node := range f.Nodes {
		meta.Replicas = append(meta.Replicas, model.Replica{
			ID: model.ReplicaID(i + 1), Node: node.ID, Disk: node.Disk, Learner: i >= MaxVoters,
		})
	}
	groups = append(groups, meta)
	for c := range int(f.Coordinators) {
		g := model.Group{ID: model.FirstCoordinatorGroup + model.GroupID(c), Kind: model.GroupCoordinator}
		for i := range coordinators {
			node := f.Nodes[(c+i)%n]
			g.Replicas = append(g.Replicas, model.Replica{
				ID: model.ReplicaID((c+1)*1000 + i + 1), Node: node.ID, Disk: node.Disk,
			})
		}
		groups = append(groups, g)
	}
	for i := range groups {
		groups[i].Founders = founders(groups[i].Replicas)
	}
	return groups
}

func founders(replicas []model.Replica) []model.ReplicaID {
	var ids []model.ReplicaID
	for _, r := range replicas {
		if !r.Learner {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// firstReplica is the first replica id that no founding group has.
func (f Founding) firstReplica() model.ReplicaID {
	return model.ReplicaID(f.Coordinators+2) * 1000
}
