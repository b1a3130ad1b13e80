// Package gateway is a node's front half: it takes a client's request, splits
// it by partition, finds each group's leader, asks it — here or on another node —
// and joins the answers. A pull is grant, read, deliver.
//
// Duties:
//   - Every request is answered once, unless it was cancelled, and within its
//     deadline plus one try.
//   - A group without a leader is waited for up to Timing.LeaderWait.
//   - A try whose outcome is not known is repeated only if repeating it is
//     harmless (router.go says for which calls); otherwise the client is told
//     UNKNOWN_OUTCOME.
//   - Nothing is handed out by a pull before the coordinator has recorded it.
//
// It keeps no replicated state: everything here may be lost with the node.
package gateway

import (
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// Host is what a gateway asks of its shard.
type Host interface {
	Now() model.Mono
	Self() model.NodeID
	Rand() uint64
	// Catalog is nil until this node is part of a founded cluster.
	Catalog() model.Catalog
	// Leader names a group's leader as far as a replica here knows it.
	Leader(g model.GroupID) (model.NodeID, bool)
	// Ask makes one try at a group on a node, this one included; Answer follows
	// unless the try or its answer is lost. The request is the node's from then on.
	Ask(to model.NodeID, ask uint64, g model.GroupID, req call.Request)
	// Withdraw says that nobody waits for the try's answer any more.
	Withdraw(to model.NodeID, ask uint64)
	Reply(id uint64, result call.ClientResult, err *model.Error)
	// Up says whether packets can be sent to a node, as far as is known.
	Up(n model.NodeID) bool
	// Peers are the nodes that this one was configured with.
	Peers() []model.Node
	// Reachable says whether a node was heard of lately.
	Reachable(n model.NodeID) bool
	// Status describes the groups that have a replica here.
	Status() []call.GroupStatus
}

// Config is what a gateway is made with.
type Config struct {
	TryTimeout  time.Duration // patience with one try, beyond what it may wait by itself
	LeaderWait  time.Duration // patience with a group without leader
	MaxRequests int           // client requests under way
	Choice      choice.Func   // may be nil
	Probe       probe.Func    // counts the points that are passed; may be nil
}
