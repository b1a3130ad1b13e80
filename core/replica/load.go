package replica

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Loader puts one group's durable state together from a checkpoint and the
// journal's payloads, in order.
type Loader struct {
	hard                 hardState
	applied, appliedTerm uint64
	conf                 *pb.ConfState
	entries              []*pb.Entry // contiguous from applied+1
	machine              []byte
	snapshots            int // that came after the checkpoint
}

// NewLoader starts a replica's state. A founder starts at entry 1 of term 1,
// which stands for the founding and its membership; nobody ever holds that entry
// itself. So a replica that joins later, starting at 0 without any membership,
// can only begin with a snapshot, which tells it who is a member.
func NewLoader(g model.Group, self model.ReplicaID) *Loader {
	none := &pb.ConfState{AutoLeave: new(bool)}
	if r, ok := g.Member(self); !ok || r.Joined {
		return &Loader{conf: none}
	}
	for _, id := range g.Founders {
		none.Voters = append(none.Voters, uint64(id))
	}
	for _, r := range g.Replicas {
		if r.Learner && !r.Joined {
			none.Learners = append(none.Learners, uint64(r.ID))
		}
	}
	return &Loader{conf: none, applied: 1, appliedTerm: 1, hard: hardState{Term: 1, Commit: 1}}
}

// Applied is one group's share of a checkpoint: everything up to the applied
// index in the machine's own form.
type Applied struct {
	Index, Term uint64
	Conf        *pb.ConfState
	Machine     []byte
}

// Code implements wire.Coder.
func (a *Applied) Code(c *wire.Codec) {
	wire.Uint(c, &a.Index)
	wire.Uint(c, &a.Term)
	codeConf(c, &a.Conf)
	c.Bytes(&a.Machine)
}

// Checkpoint sets the state named by the manifest.
func (l *Loader) Checkpoint(a Applied) {
	l.applied, l.appliedTerm, l.conf, l.machine = a.Index, a.Term, a.Conf, a.Machine
}

// Ready takes one Ready's payload.
func (l *Loader) Ready(payload []byte) error {
	var r ready
	if err := wire.Decode(payload, &r); err != nil {
		return err
	}
	if r.hasHard {
		l.hard = r.hard
	}
	if r.snapshot != nil {
		m := r.snapshot.Metadata
		l.Checkpoint(Applied{m.GetIndex(), m.GetTerm(), m.ConfState, r.snapshot.Data})
		l.entries = nil
		l.snapshots++
	}
	return l.put(r.entries)
}

// Base takes the first payload of a group in a generation.
func (l *Loader) Base(payload []byte) error {
	var b base
	if err := wire.Decode(payload, &b); err != nil {
		return err
	}
	if b.applied < l.applied || b.applied > l.last() {
		return fmt.Errorf("a generation begins at applied entry %d, but the log known before it is (%d, %d]",
			b.applied, l.applied, l.last())
	}
	l.hard = b.hard
	l.entries = l.entries[:b.applied-l.applied]
	return l.put(b.entries)
}

func (l *Loader) last() uint64 { return l.applied + uint64(len(l.entries)) }

// put replaces everything from the first entry's index on. Entries at or below
// the applied index are known already: a replay over an older generation.
func (l *Loader) put(es []*pb.Entry) error {
	for len(es) > 0 && es[0].GetIndex() <= l.applied {
		es = es[1:]
	}
	if len(es) == 0 {
		return nil
	}
	at := es[0].GetIndex()
	if at > l.last()+1 {
		return fmt.Errorf("entry %d follows entry %d", at, l.last())
	}
	l.entries = append(l.entries[:at-l.applied-1:at-l.applied-1], es...)
	return nil
}

// Finish checks the whole. A log that ends below its own commit index has lost
// something that may have been acknowledged.
func (l *Loader) Finish() error {
	l.hard.Commit = max(l.hard.Commit, l.applied) // a write of the commit index alone may be lost
	if l.hard.Commit > l.last() {
		return fmt.Errorf("the log ends at entry %d, below its commit index %d", l.last(), l.hard.Commit)
	}
	return nil
}

// Machine is the machine's state as of the applied index; nil: its initial one.
func (l *Loader) Machine() []byte { return l.machine }

// Snapshots counts those that came after the checkpoint; Machine is of the last.
func (l *Loader) Snapshots() int { return l.snapshots }
