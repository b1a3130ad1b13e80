package replica

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// check says what is wrong with a peer's message. Raft takes messages of its own
// kind for granted and panics on others; what comes from outside is looked at
// here, as far as a message can be judged by itself and by this replica's log.
func (r *Replica) check(m *pb.Message) error {
	switch m.GetType() {
	case pb.MsgApp:
		return checkAppend(m)
	case pb.MsgSnap:
		return checkSnapshot(m)
	case pb.MsgHeartbeat:
		// A leader names no more than what this replica has said is durable here.
		if m.GetCommit() > r.log.last() {
			return fmt.Errorf("entry %d was acknowledged and committed, but the log ends at %d: durable data was lost; "+
				"wipe this node's data folder and let it be rebuilt", m.GetCommit(), r.log.last())
		}
		return nil
	case pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp, pb.MsgHeartbeatResp,
		pb.MsgTimeoutNow:
		return nil
	}
	return fmt.Errorf("messages of type %v have no business between nodes", m.GetType())
}

// checkSender refuses what raft would take for a message to itself.
func (r *Replica) checkSender(m *pb.Message) error {
	from := m.GetFrom()
	if m.GetTerm() == 0 || from == raft.None || from == uint64(r.cfg.Self) || raft.IsLocalMsgTarget(from) {
		return fmt.Errorf("a message of type %v from replica %d in term %d", m.GetType(), from, m.GetTerm())
	}
	return nil
}

func checkAppend(m *pb.Message) error {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		if e.GetIndex() != index+1 || e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
			return fmt.Errorf("entry %d of term %d follows entry %d of term %d, in a message of term %d",
				e.GetIndex(), e.GetTerm(), index, term, m.GetTerm())
		}
		index, term = e.GetIndex(), e.GetTerm()
		if e.GetType() == pb.EntryNormal {
			continue
		}
		if _, err := confChange(e); err != nil {
			return fmt.Errorf("entry %d is not a membership change: %w", index, err)
		}
	}
	return nil
}

// confChange decodes an entry that changes the membership.
func confChange(e *pb.Entry) (pb.ConfChangeI, error) {
	if e.GetType() == pb.EntryConfChange {
		v := &pb.ConfChange{}
		return v, proto.Unmarshal(e.GetData(), v)
	}
	v := &pb.ConfChangeV2{}
	return v, proto.Unmarshal(e.GetData(), v)
}

func checkSnapshot(m *pb.Message) error {
	meta := m.GetSnapshot().GetMetadata()
	if meta.GetIndex() == 0 || meta.GetTerm() == 0 || meta.GetTerm() > m.GetTerm() {
		return fmt.Errorf("a snapshot at entry %d of term %d, in a message of term %d",
			meta.GetIndex(), meta.GetTerm(), m.GetTerm())
	}
	c := meta.GetConfState()
	members := slices.Concat(c.GetVoters(), c.GetLearners())
	slices.Sort(members)
	out := slices.Sorted(slices.Values(c.GetVotersOutgoing()))
	next := slices.Sorted(slices.Values(c.GetLearnersNext()))
	switch {
	case len(c.GetVoters()) == 0, slices.Contains(members, raft.None), slices.Contains(out, raft.None),
		len(slices.Compact(members)) != len(c.GetVoters())+len(c.GetLearners()),
		len(slices.Compact(out)) != len(c.GetVotersOutgoing()),
		len(slices.Compact(next)) != len(c.GetLearnersNext()):
		return fmt.Errorf("a snapshot with a membership that cannot be: %v", c)
	}
	for _, id := range c.GetLearners() {
		if slices.Contains(out, id) {
			return fmt.Errorf("a snapshot in which replica %d votes and learns", id)
		}
	}
	for _, id := range next {
		if !slices.Contains(out, id) || slices.Contains(c.GetVoters(), id) {
			return fmt.Errorf("a snapshot in which replica %d is to learn and did not vote", id)
		}
	}
	return nil
}
