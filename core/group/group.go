// Package group is the border between a raft group member and what it
// replicates. A Machine is one group's replicated state together with the
// leader's share of its work; the shard drives it and is its Host.
//
// Duties of a Machine:
//   - Apply is a function of state and entry only: never of Host's clock, of the
//     catalog or of this node's settings. What apply needs is in the entry; the
//     leader put it there. Equal entries give equal Snapshot bytes on each node.
//   - What a leader promises, it promises after apply: Reply from Apply.
//   - Between LeaderStart and LeaderStop the replica leads and has applied its
//     own term's first entry (the own-term gate). LeaderStart must rebuild all
//     leader-only memory from the applied state. LeaderStop must answer every
//     request it holds: with UNKNOWN_OUTCOME what was proposed, with NOT_LEADER
//     what was not. Handle may be called without leadership, too: what needs a
//     leader is then answered by NotLeader.
//   - It holds no goroutine and no clock, keeps its queues bounded (a full one
//     is a THROTTLED reply), and iterates maps only in sorted order.
package group

import (
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// Ref names a request waiting for its reply. Every Ref is replied to once; a
// second reply, or one after Cancel, is ignored.
type Ref uint64

// Entry is a committed raft entry that carries data.
type Entry struct {
	Index, Term uint64
	Data        []byte // must not be changed; may be kept
}

// Machine is a group's replicated state and its leader's work.
type Machine interface {
	Apply(h Host, e Entry)
	// Snapshot encodes the whole replicated state, deterministically.
	Snapshot() []byte
	// Restore replaces the state by a snapshot's. Not called while leading.
	Restore(snapshot []byte) error

	LeaderStart(h Host)
	LeaderStop(h Host)
	// Handle takes a request; req's type is one of those its group kind serves.
	Handle(h Host, ref Ref, req call.Request)
	// Cancel forgets a waiting request: its caller is gone or its time is up.
	Cancel(h Host, ref Ref)
	// ReadIndexDone follows Host.ReadIndex once every entry committed at the
	// call is applied and this replica was still the leader.
	ReadIndexDone(h Host, ref Ref)
	// ReadDone follows Host.Read. data is a run of stamped batches laid end to
	// end, already checked; it may start before the offset asked for.
	ReadDone(h Host, id uint64, data []byte, err *model.Error)
	// CatalogChanged tells a leader that meta applied something.
	CatalogChanged(h Host)
	// Tick is called at or after the moment last asked for by Host.Wake.
	Tick(h Host)
}

// Asker is a Machine that asks other groups.
type Asker interface {
	Machine
	// AskDone follows Host.Ask, later, whether the replica still leads or not.
	AskDone(h Host, id uint64, resp call.Response, err *model.Error)
}

// Prober is a Host that counts the points that are passed.
type Prober interface{ Probe(p probe.Point) }

// Hit counts a point, if somebody does.
func Hit(h Host, p probe.Point) {
	if c, ok := h.(Prober); ok {
		c.Probe(p)
	}
}

// Noter is a Host that tells the operator.
type Noter interface{ Note(text string) }

// Note tells the operator something, where there is one.
func Note(h Host, text string) {
	if n, ok := h.(Noter); ok {
		n.Note(text)
	}
}

// Host is what a Machine may ask for. Calls take effect in order.
type Host interface {
	Now() model.Mono
	// Wall is this node's wall clock; WallTrusted is false while it differs from
	// the median of its peers' by more than the allowed skew.
	Wall() model.Wall
	WallTrusted() bool
	// Propose hands data to raft, which owns it from then on. False: dropped, nothing changed.
	Propose(data []byte) bool
	// Reply answers a request. err != nil wins over resp.
	Reply(ref Ref, resp call.Response, err *model.Error)
	// ReadIndex asks for a linearizable point; coalesced by the host. If
	// leadership is lost meanwhile the host replies NOT_LEADER to ref by itself.
	ReadIndex(ref Ref)
	// Wake asks for Tick at the given moment; a later call replaces an earlier one. Never cancels.
	Wake(at model.Mono)
	// Ask asks another group by way of this node's gateway, which finds its leader
	// and repeats what may be repeated; AskDone with the same id follows.
	Ask(id uint64, g model.GroupID, req call.Request)
	// Rand is this node's seeded source.
	Rand() uint64
	Catalog() model.Catalog
	// NotLeader is the error that names the leader as far as it is known.
	NotLeader() *model.Error
	// Leading says whether this replica is between LeaderStart and LeaderStop.
	Leading() bool

	// Partition groups only. Segment writes are FIFO per partition.
	SegmentAppend(batch []byte) // stamped; base must be the previous one's next
	SegmentRoll(at model.Offset)
	SegmentDrop(before model.Offset) // whole segments below it
	// Read fetches stored batches from offset (ReadDone with the same id), at
	// most about maxBytes but at least one batch.
	Read(id uint64, offset model.Offset, maxBytes int)
	// ReadAt fetches the first batch whose append time is at least at; empty
	// data when there is none in the stored segments.
	ReadAt(id uint64, at model.Wall)
}
