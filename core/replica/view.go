package replica

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// View is what invariants, metrics and the shard see of a replica.
type View struct {
	Group                    model.GroupID
	Kind                     model.GroupKind
	Replica                  model.ReplicaID
	Role                     raft.StateType
	Term, Vote               uint64
	DurableTerm, DurableVote uint64
	Leader                   model.ReplicaID // 0: none known
	Leading                  bool            // leads and its own-term gate is open
	Commit, Applied          uint64
	First, Last              uint64 // durable log window in memory, [First, Last]
	LastTerm                 uint64 // of the entry Last
	Machine                  group.Machine
}

// View describes the replica now.
func (r *Replica) View() View {
	st := r.rn.BasicStatus()
	return View{Group: r.cfg.Group.ID, Kind: r.cfg.Group.Kind, Replica: r.cfg.Self, Role: r.role,
		Term: st.GetTerm(), Vote: st.GetVote(), DurableTerm: r.durable.Term, DurableVote: r.durable.Vote,
		Leader: model.ReplicaID(r.lead), Leading: r.leading, Commit: st.GetCommit(), Applied: r.applied,
		First: r.log.first, Last: r.log.last(), LastTerm: r.log.lastTerm(), Machine: r.machine}
}

// Entry is a durable entry of the window: its term and data.
func (r *Replica) Entry(index uint64) (term uint64, data []byte, ok bool) {
	if index < r.log.first || index > r.log.last() {
		return 0, nil, false
	}
	e := r.log.entries[index-r.log.first]
	return e.GetTerm(), e.GetData(), true
}

// Group is the group's definition as this replica knows it.
func (r *Replica) Group() model.Group { return r.cfg.Group }

// Self is this replica's id.
func (r *Replica) Self() model.ReplicaID { return r.cfg.Self }

// Machine is what the group replicates.
func (r *Replica) Machine() group.Machine { return r.machine }

// Leading says whether the own-term gate is open.
func (r *Replica) Leading() bool { return r.leading }

// Uncommitted is the size in bytes of what this leader proposed and has not
// applied yet.
func (r *Replica) Uncommitted() int { return r.uncommitted }

// Writing says that something of this replica's log is on its way to the disk.
func (r *Replica) Writing() bool { return r.promising() }

// Learner says that the catalog knows this replica as one that does not vote.
func (r *Replica) Learner() bool {
	for _, p := range r.cfg.Group.Replicas {
		if p.ID == r.cfg.Self {
			return p.Learner
		}
	}
	return r.cfg.Group.Change.Add.ID == r.cfg.Self
}

// Applied is the applied index.
func (r *Replica) Applied() uint64 { return r.applied }

// LeaderNode is the node that leads as far as this replica knows.
func (r *Replica) LeaderNode() (model.NodeID, bool) {
	p, ok := r.peers[r.lead]
	return p.Node, ok && r.lead != raft.None
}

// IsLeader says that raft leads here, gate open or not.
func (r *Replica) IsLeader() bool { return r.role == raft.StateLeader }

// NodeOf names the node that a replica is on.
func (r *Replica) NodeOf(replica uint64) (model.NodeID, bool) {
	p, ok := r.peers[replica]
	return p.Node, ok
}

// From says whether a raft message from a replica may come from this node and
// data folder. A replica unknown here is one that joined after this node's
// catalog: the node says so itself, and replica ids are never reused.
func (r *Replica) From(replica uint64, n model.NodeID, d model.DiskID) bool {
	p, ok := r.peers[replica]
	if !ok && replica != raft.None && !raft.IsLocalMsgTarget(replica) && len(r.peers) < maxPeers {
		r.peers[replica] = model.Replica{ID: model.ReplicaID(replica), Node: n, Disk: d, Joined: true}
		return true
	}
	return ok && p.Node == n && p.Disk == d
}

// maxPeers bounds what is remembered of a group's members, past and present.
const maxPeers = 4096

// Stop closes the gate: the replica is being removed.
func (r *Replica) Stop() {
	if r.leading {
		r.stopLeading()
	}
}

// Transferring says that leadership is being handed over.
func (r *Replica) Transferring() bool { return r.handing }

// TransferTo asks raft to hand leadership over, if this replica leads, has no
// proposal under way whose outcome would become unknown, and the other replica
// is up to date.
func (r *Replica) TransferTo(to model.ReplicaID) bool {
	if !r.leading || r.handing || to == r.cfg.Self || r.uncommitted > 0 || len(r.proposals) > 0 {
		return false
	}
	ready := false
	r.rn.WithProgress(func(id uint64, t raft.ProgressType, pr tracker.Progress) {
		if id == uint64(to) && t == raft.ProgressTypePeer && pr.State == tracker.StateReplicate &&
			pr.RecentActive && pr.Match >= r.applied {
			ready = true
		}
	})
	if ready {
		r.rn.TransferLeader(uint64(to))
		r.handing = true
		r.cfg.Probe.Hit(probe.LeadershipHandedOver)
		r.s.Touched(r.cfg.Group.ID)
	}
	return ready
}

// IsVoteRequest says that a message asks for a vote that binds.
func IsVoteRequest(m *pb.Message) bool { return m.GetType() == pb.MsgVote }
