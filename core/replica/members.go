package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tapedeck/tapedeck/core/model"
)

// Progress is how far a change of members has come.
type Progress uint8

// Stages of a change.
const (
	ChangePending Progress = iota // something is under way, or this replica cannot tell
	ChangeRemoved                 // the old replica is out; the new one may be begun on its node
	ChangeDone
	ChangeGivenUp // the new replica is not a member and will not be
)

// Carry takes a change of members one step further, if this replica leads and
// nothing of it is under way, and says how far it is. It is called again until
// it says ChangeDone or ChangeGivenUp. gone says that the new replica's data folder
// is no more, or that its node is not to have it: it is not waited for.
func (r *Replica) Carry(c model.Change, gone bool) Progress {
	if !r.leading || r.handing || r.changing() {
		return ChangePending
	}
	if gone && !slices.Contains(r.conf.GetVoters(), uint64(c.Add.ID)) {
		return r.giveUp(uint64(c.Add.ID))
	}
	return r.carry(c, gone)
}

// giveUp takes a replica whose folder is no more out of the membership, if it is
// in it at all: applying the removal shows that this replica still leads, and
// that nobody else is promoting it.
func (r *Replica) giveUp(id uint64) Progress {
	if r.givenUp == id && !r.isMember(id) {
		return ChangeGivenUp
	}
	if r.change(pb.ConfChangeRemoveNode, id) {
		r.givenUp = id
	}
	return ChangePending
}

func (r *Replica) carry(c model.Change, lost bool) Progress {
	add, remove := uint64(c.Add.ID), uint64(c.Remove)
	gone := remove == 0 || !r.isMember(remove)
	sameNode := add != 0 && remove != 0 && r.peers[remove].Node == c.Add.Node
	// Of one or two voters a leader does not propose its own removal: with an entry
	// in its log that the others lack, it would deny them the vote that they need as
	// long as they have not heard that it is out.
	if !gone && remove == uint64(r.cfg.Self) && len(r.conf.GetVoters()) <= 2 &&
		(add == 0 || sameNode || slices.Contains(r.conf.GetVoters(), add)) {
		r.yieldUntil = r.s.Now().Add(2 * r.cfg.Heartbeat)
		return ChangePending
	}
	switch {
	case add == 0:
		if gone {
			return ChangeDone
		}
		r.change(pb.ConfChangeRemoveNode, remove)
	case !r.isMember(add):
		if sameNode && !gone {
			r.change(pb.ConfChangeAddLearnerNode, add, remove)
		} else {
			r.change(pb.ConfChangeAddLearnerNode, add)
		}
	case sameNode && !gone:
		r.change(pb.ConfChangeRemoveNode, remove)
	case sameNode && !c.Removed:
		return ChangeRemoved
	case !lost && !r.caughtUp(add):
	case c.Add.Learner:
		if gone {
			return ChangeDone
		}
		r.change(pb.ConfChangeRemoveNode, remove)
	case !slices.Contains(r.conf.GetVoters(), add):
		if gone || remove == uint64(r.cfg.Self) && len(r.conf.GetVoters()) <= 2 {
			r.change(pb.ConfChangeAddNode, add)
		} else {
			r.change(pb.ConfChangeAddNode, add, remove)
		}
	case !gone:
		r.change(pb.ConfChangeRemoveNode, remove)
	default:
		return ChangeDone
	}
	return ChangePending
}

// changing says that a membership change is in the log and not applied, or that
// the joint membership is not left yet.
func (r *Replica) changing() bool {
	return r.confUnderWay || r.confIndex > r.applied || len(r.conf.GetVotersOutgoing()) > 0
}

func (r *Replica) isMember(id uint64) bool {
	return slices.Contains(r.conf.GetVoters(), id) || slices.Contains(r.conf.GetLearners(), id) ||
		slices.Contains(r.conf.GetVotersOutgoing(), id) || slices.Contains(r.conf.GetLearnersNext(), id)
}

// caughtUp says that a learner follows the log closely and answers.
func (r *Replica) caughtUp(id uint64) bool {
	near := false
	r.rn.WithProgress(func(p uint64, _ raft.ProgressType, pr tracker.Progress) {
		if p == id {
			near = pr.State == tracker.StateReplicate && pr.RecentActive && pr.Match+64 >= r.applied
		}
	})
	return near
}

// change proposes one membership change: first does what to id, the rest remove.
// More than one goes through a joint membership, which raft leaves by itself.
func (r *Replica) change(first pb.ConfChangeType, id uint64, remove ...uint64) bool {
	cc := &pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{{Type: first.Enum(), NodeId: &id}}}
	for _, old := range remove {
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: &old})
	}
	r.confUnderWay = r.rn.ProposeConfChange(cc) == nil // its index shows in the next Ready
	r.s.Touched(r.cfg.Group.ID)
	return r.confUnderWay
}

// Voters lists the voters in force.
func (r *Replica) Voters() []uint64 { return slices.Clone(r.conf.GetVoters()) }

// HasSelf says whether this replica is a member of the membership in force; one
// that joins knows of none until its first snapshot.
func (r *Replica) HasSelf() bool { return r.isMember(uint64(r.cfg.Self)) || r.applied == 0 }
