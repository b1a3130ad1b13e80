package sim

import (
	"github.com/cespare/xxhash/v2"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/replica"
)

// stateEvery is the distance of applied indexes at which the replicas' states
// are compared; at the end of a run they are compared whatever the index.
const stateEvery = 16

// invariants judge the inside of the nodes after every event, for the groups
// that the event touched.
type invariants struct {
	w      *World
	groups map[model.GroupID]*groupFacts
	// now is each live node's replicas as last seen, by node and group.
	now []map[model.GroupID]*replicaFacts
}

// entryID is what log matching compares: equal index and term, equal content.
type entryID struct{ term, hash uint64 }

// groupFacts is what the whole cluster must agree on about a group.
type groupFacts struct {
	leaders map[uint64]model.ReplicaID // by term
	// committed entries, [base, base+len); by is the least term a replica that
	// knew the entry to be committed was in.
	base      uint64
	committed []committedEntry
	content   map[entryKey]uint64  // log matching: (index, term) → hash
	states    map[uint64]stateSeen // by applied index
	owners    map[ownerKey]model.MemberID
}

type committedEntry struct {
	entryID
	by uint64
}

type entryKey struct{ index, term uint64 }

type stateSeen struct {
	hash uint64
	node model.NodeID
}

type ownerKey struct {
	subscription model.SubscriptionID
	partition    model.Partition
	fence        model.Generation
}

// replicaFacts is one replica as last seen in this boot.
type replicaFacts struct {
	term, commit, applied, checked uint64
	terms                          map[uint64]uint64 // terms of its log by index, as far as checked
	last                           uint64
	highWatermark                  model.Offset
}

func newInvariants(w *World) *invariants {
	return &invariants{w: w, groups: map[model.GroupID]*groupFacts{},
		now: make([]map[model.GroupID]*replicaFacts, w.opts.Nodes)}
}

// started and stopped begin and end a boot.
func (v *invariants) started(n *simNode) { v.now[n.index] = map[model.GroupID]*replicaFacts{} }
func (v *invariants) stopped(n *simNode) { v.now[n.index] = nil }

func (v *invariants) facts(id model.GroupID) *groupFacts {
	g := v.groups[id]
	if g == nil {
		g = &groupFacts{leaders: map[uint64]model.ReplicaID{}, content: map[entryKey]uint64{},
			states: map[uint64]stateSeen{}, owners: map[ownerKey]model.MemberID{}}
		v.groups[id] = g
	}
	return g
}

// after judges a node after a step.
func (v *invariants) after(n *simNode) {
	shard := n.host.Shard()
	for _, id := range shard.Touched() {
		if r := shard.Replica(id); r != nil {
			v.replica(n, id, r)
		}
	}
}

func (v *invariants) replica(n *simNode, id model.GroupID, r *replica.Replica) {
	view := r.View()
	g := v.facts(id)
	seen := v.now[n.index][id]
	if seen == nil {
		seen = &replicaFacts{terms: map[uint64]uint64{}}
		v.now[n.index][id] = seen
	}
	v.progress(n, &view, seen)
	v.logMatching(n, r, &view, g, seen)
	v.committed(n, r, &view, g, seen)
	if view.Role == raft.StateLeader {
		v.leader(n, r, &view, g)
	}
	if view.Applied != seen.applied {
		seen.applied = view.Applied
		if view.Applied%stateEvery == 0 {
			v.state(n, &view, g)
		}
	}
	v.machine(n, &view, g, seen)
}

// progress: term, commit and applied never go back within a boot; nothing is
// applied before it is committed.
func (v *invariants) progress(n *simNode, view *replica.View, seen *replicaFacts) {
	if view.Term < seen.term {
		v.w.violate("term backwards", "%s group %d: term %d after %d", n.id, view.Group, view.Term, seen.term)
	}
	if view.Commit < seen.commit {
		v.w.violate("commit backwards", "%s group %d: commit %d after %d", n.id, view.Group, view.Commit, seen.commit)
	}
	if view.Applied < seen.applied {
		v.w.violate("applied backwards", "%s group %d: applied %d after %d", n.id, view.Group, view.Applied,
			seen.applied)
	}
	if view.Applied > view.Commit {
		v.w.violate("applied above commit", "%s group %d: applied %d, commit %d", n.id, view.Group, view.Applied,
			view.Commit)
	}
	seen.term, seen.commit = view.Term, view.Commit
}

// logMatching: entries of equal index and term are equal on all replicas. Only
// what changed since the last look is read.
func (v *invariants) logMatching(n *simNode, r *replica.Replica, view *replica.View, g *groupFacts,
	seen *replicaFacts) {
	for i := view.Last; i >= max(view.First, 1); i-- {
		term, data, ok := r.Entry(i)
		if !ok || i <= seen.last && seen.terms[i] == term {
			break
		}
		seen.terms[i] = term
		hash := xxhash.Sum64(data)
		k := entryKey{i, term}
		if old, there := g.content[k]; !there {
			g.content[k] = hash
		} else if old != hash {
			v.w.violate("log matching", "%s group %d: entry %d of term %d differs from another replica's",
				n.id, view.Group, i, term)
		}
	}
	for i := view.Last + 1; i <= seen.last; i++ {
		delete(seen.terms, i)
	}
	seen.last = view.Last
}

// committed: what is committed anywhere at an index is the same everywhere.
func (v *invariants) committed(n *simNode, r *replica.Replica, view *replica.View, g *groupFacts,
	seen *replicaFacts) {
	from := max(seen.checked+1, view.First)
	to := min(view.Commit, view.Last)
	for i := from; i <= to; i++ {
		term, data, ok := r.Entry(i)
		if !ok {
			return
		}
		seen.checked = i
		v.agree(n, view, g, i, entryID{term, xxhash.Sum64(data)})
	}
}

func (v *invariants) agree(n *simNode, view *replica.View, g *groupFacts, index uint64, e entryID) {
	if len(g.committed) == 0 {
		g.base = index
	}
	end := g.base + uint64(len(g.committed))
	switch {
	case index < g.base: // before anybody looked
	case index < end:
		c := &g.committed[index-g.base]
		if c.entryID != e {
			v.w.violate("committed entries differ", "%s group %d: entry %d is of term %d, elsewhere of term %d",
				n.id, view.Group, index, e.term, c.term)
		}
		c.by = min(c.by, view.Term)
	case index == end:
		g.committed = append(g.committed, committedEntry{e, view.Term})
	default: // the window of whoever committed those between is gone
		g.base, g.committed = index, append(g.committed[:0], committedEntry{e, view.Term})
	}
}

// leader: one leader per term, and it has every entry committed in an earlier one.
func (v *invariants) leader(n *simNode, r *replica.Replica, view *replica.View, g *groupFacts) {
	old, there := g.leaders[view.Term]
	if there {
		if old != view.Replica {
			v.w.violate("one leader per term", "group %d: replicas %d and %d lead in term %d", view.Group, old,
				view.Replica, view.Term)
		}
		return
	}
	g.leaders[view.Term] = view.Replica
	for i := len(g.committed) - 1; i >= 0; i-- {
		index := g.base + uint64(i)
		c := &g.committed[i]
		if index <= view.Commit {
			return
		}
		if c.by >= view.Term {
			continue
		}
		if term, _, ok := r.Entry(index); !ok || term != c.term {
			v.w.violate("leader completeness", "%s leads group %d in term %d without entry %d, committed in term %d",
				n.id, view.Group, view.Term, index, c.by)
			return
		}
	}
}

// state: machines that applied the same entries are equal, whether they applied
// them live or after a restart.
func (v *invariants) state(n *simNode, view *replica.View, g *groupFacts) {
	hash := xxhash.Sum64(view.Machine.Snapshot())
	old, there := g.states[view.Applied]
	if !there {
		g.states[view.Applied] = stateSeen{hash, n.id}
		return
	}
	if old.hash != hash {
		v.w.violate("replicas differ", "group %d at applied index %d: %s and %s have other states", view.Group,
			view.Applied, old.node, n.id)
	}
}

// sending: a vote request leaves only when the term it speaks for, and the vote
// for itself in it, are durable. A lost term would be campaigned in twice.
func (v *invariants) sending(n *simNode, to model.NodeID, packet []byte) {
	p, err := core.DecodePacket(packet)
	if err != nil {
		v.w.violate("packet", "%s sends %s a packet that does not decode: %v", n.id, to, err)
		return
	}
	for _, m := range p.Raft {
		if m.Message.GetType() != pb.MsgVote {
			continue
		}
		r := n.host.Shard().Replica(m.Group)
		if r == nil {
			continue
		}
		view := r.View()
		self := uint64(view.Replica)
		if view.DurableTerm < m.Message.GetTerm() ||
			view.DurableTerm == m.Message.GetTerm() && view.DurableVote != self {
			v.w.violate("vote durable", "%s asks for votes in term %d of group %d; durable are term %d, vote %d",
				n.id, m.Message.GetTerm(), m.Group, view.DurableTerm, view.DurableVote)
		}
	}
}
