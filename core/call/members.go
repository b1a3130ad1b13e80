package call

import (
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// JoinNode makes a node part of the cluster, or gives a known node's name to
// another data folder: then every replica of the old folder is replaced. For a
// known folder it says where the node serves now.
type JoinNode struct {
	Node    model.NodeID
	Disk    model.DiskID
	Address string
}

// DrainNode moves every replica of a node elsewhere, and keeps new ones away;
// Undo lets them come again.
type DrainNode struct {
	Node model.NodeID
	Undo bool
}

// RemoveNode takes a drained node out of the cluster.
type RemoveNode struct{ Node model.NodeID }

// RebuildNode replaces every replica of a node by a fresh one on the same node.
type RebuildNode struct{ Node model.NodeID }

// MovePartition moves one replica of a partition to another node.
type MovePartition struct {
	Topic     string
	Partition model.Partition
	From, To  model.NodeID
}

// ReportChange is a group leader's word that a change of members got somewhere:
// the old replica is out (Removed), or all is done; or that it leads nowhere,
// because the new replica's folder is gone (GivenUp): nobody was added.
type ReportChange struct {
	Group   model.GroupID
	Change  uint64
	Removed bool // only this much is done yet
	GivenUp bool
}

// TransferLeader asks a group's leader to hand over to the replica on a node.
type TransferLeader struct{ To model.NodeID }

// Kinds of calls about members.
func (*JoinNode) Kind() Kind       { return 80 }
func (*DrainNode) Kind() Kind      { return 81 }
func (*RemoveNode) Kind() Kind     { return 82 }
func (*RebuildNode) Kind() Kind    { return 83 }
func (*MovePartition) Kind() Kind  { return 84 }
func (*ReportChange) Kind() Kind   { return 85 }
func (*TransferLeader) Kind() Kind { return 86 }

// Code implements wire.Coder.
func (m *JoinNode) Code(c *wire.Codec) {
	wire.String(c, &m.Node)
	wire.Uint(c, &m.Disk)
	wire.String(c, &m.Address)
}

// Code implements wire.Coder.
func (m *DrainNode) Code(c *wire.Codec) {
	wire.String(c, &m.Node)
	c.Bool(&m.Undo)
}

// Code implements wire.Coder.
func (m *RemoveNode) Code(c *wire.Codec) { wire.String(c, &m.Node) }

// Code implements wire.Coder.
func (m *RebuildNode) Code(c *wire.Codec) { wire.String(c, &m.Node) }

// Code implements wire.Coder.
func (m *MovePartition) Code(c *wire.Codec) {
	wire.String(c, &m.Topic)
	wire.Uint(c, &m.Partition)
	wire.String(c, &m.From)
	wire.String(c, &m.To)
}

// Code implements wire.Coder.
func (m *ReportChange) Code(c *wire.Codec) {
	wire.Uint(c, &m.Group)
	wire.Uint(c, &m.Change)
	c.Bool(&m.Removed)
	c.Bool(&m.GivenUp)
}

// Code implements wire.Coder.
func (m *TransferLeader) Code(c *wire.Codec) { wire.String(c, &m.To) }
