package sim

import (
	"github.com/cespare/xxhash/v2"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/partition"
	"github.com/tapedeck/tapedeck/core/replica"
	"github.com/tapedeck/tapedeck/core/subscription"
)

// stateEvery is the distance of applied indexes at which the replicas' states
// are compared; at the end of a run they are compared whatever the index.
const stateEvery = 16

// invariants feed the checker what an event changed: only the groups that it
// touched are looked at, and of their logs only what is new.
type invariants struct {
	w       *World
	watch   *checker.Invariants
	leaders map[leadership]bool // already checked
	// seen is each live node's replicas as last looked at, by node and group.
	seen []map[model.GroupID]*lastLook
	// limits are the messages that a member of a shared subscription may hold.
	limits map[string]uint64
	// ends is where the durable log of each replica ended when last looked at.
	ends map[logOf]logEnd
}

type logOf struct {
	group   model.GroupID
	replica model.ReplicaID
}

type leadership struct {
	group model.GroupID
	term  uint64
	at    model.ReplicaID
}

// lastLook is one replica as last seen in this boot.
type lastLook struct {
	replica                 model.ReplicaID
	term, commit, applied   uint64
	durableTerm, durableFor uint64
	checked                 uint64            // applied entries up to it were compared
	terms                   map[uint64]uint64 // terms of its log by index, up to last
	last                    uint64
}

func newInvariants(w *World) *invariants {
	return &invariants{w: w, watch: checker.NewInvariants(), leaders: map[leadership]bool{},
		ends: map[logOf]logEnd{}, limits: map[string]uint64{},
		seen: make([]map[model.GroupID]*lastLook, w.opts.Nodes)}
}

// started and stopped begin and end a boot.
func (v *invariants) started(n *simNode) { v.seen[n.index] = map[model.GroupID]*lastLook{} }
func (v *invariants) stopped(n *simNode) { v.seen[n.index] = nil }

// judge passes a violation on.
func (v *invariants) judge(n *simNode, broken *checker.Violation) {
	if broken != nil {
		v.w.violate(broken.Invariant, "%s: %s", n.id, broken.Detail)
	}
}

// after judges a node after a step.
func (v *invariants) after(n *simNode) {
	shard := n.host.Shard()
	for _, id := range shard.Touched() {
		if r := shard.Replica(id); r != nil {
			v.replica(n, r)
		}
	}
}

func (v *invariants) replica(n *simNode, r *replica.Replica) {
	view := r.View()
	look := v.seen[n.index][view.Group]
	if look == nil || look.replica != view.Replica { // a node's replica may be replaced while it runs
		look = &lastLook{replica: view.Replica, terms: map[uint64]uint64{}}
		v.seen[n.index][view.Group] = look
		v.kept(n, &view)
		v.judge(n, v.watch.Started(view.Group, view.Replica, view.DurableTerm, model.ReplicaID(view.DurableVote)))
		look.durableTerm, look.durableFor = view.DurableTerm, view.DurableVote
	}
	v.progress(n, &view, look)
	v.log(n, r, &view, look)
	if view.Role == raft.StateLeader {
		v.leader(n, r, &view)
	}
	if view.Applied != look.applied {
		look.applied = view.Applied
		v.machine(n, &view)
	}
}

// logEnd is a log's last entry. Of two ends of one replica's log the later one has
// the higher term, or of one term the higher index (raft, §5.4.1).
type logEnd struct{ term, index uint64 }

func (e logEnd) before(o logEnd) bool {
	return e.term < o.term || e.term == o.term && e.index < o.index
}

// kept: a restart finds the log that was durable, or one in which a newer leader's
// entries, written and not yet known to be durable, took the place of its tail.
// Damage makes it refuse the folder, or leaves it all; only a folder set back has
// forgotten.
func (v *invariants) kept(n *simNode, view *replica.View) {
	key := logOf{view.Group, view.Replica}
	end, known := v.ends[key]
	switch {
	case n.harm.past:
		v.watch.Damaged(view.Group, view.Replica)
	case known && (logEnd{view.LastTerm, view.Last}).before(end):
		v.w.violate("durable log kept over a restart", "%s group %d: its log ends at entry %d of term %d; "+
			"entry %d of term %d was durable", n.id, view.Group, view.Last, view.LastTerm, end.index, end.term)
	}
	delete(v.ends, key)
}

// progress: term, commit and applied never go back within a boot, nothing is
// applied before it is committed, and a durable vote is not taken back.
func (v *invariants) progress(n *simNode, view *replica.View, look *lastLook) {
	if view.Term < look.term || view.Commit < look.commit || view.Applied < look.applied || view.Applied > view.Commit {
		v.w.violate("progress", "%s group %d: term, commit, applied went from %d, %d, %d to %d, %d, %d", n.id, view.Group,
			look.term, look.commit, look.applied, view.Term, view.Commit, view.Applied)
	}
	look.term, look.commit = view.Term, view.Commit
	if view.DurableTerm != look.durableTerm || view.DurableVote != look.durableFor {
		look.durableTerm, look.durableFor = view.DurableTerm, view.DurableVote
		v.judge(n, v.watch.Durable(view.Group, view.Replica, view.DurableTerm, model.ReplicaID(view.DurableVote)))
	}
}

// log feeds the durable entries that are new since the last look, and those
// newly applied. Between commit and apply the durable log may still hold what a
// newer leader's entry, on its way to the disk, replaces. With the smallest
// windows an entry may be gone within the step that applied it; then what was
// made of it is compared (machine), not the entry.
func (v *invariants) log(n *simNode, r *replica.Replica, view *replica.View, look *lastLook) {
	for i := view.Last; i >= max(view.First, 1); i-- {
		term, data, ok := r.Entry(i)
		if !ok || i <= look.last && look.terms[i] == term {
			break
		}
		look.terms[i] = term
		v.judge(n, v.watch.Entry(view.Group, view.Replica, i, term, xxhash.Sum64(data)))
	}
	for i := view.Last + 1; i <= look.last; i++ {
		delete(look.terms, i)
	}
	look.last = view.Last
	v.ends[logOf{view.Group, view.Replica}] = logEnd{view.LastTerm, view.Last}
	for i := max(look.checked+1, view.First); i <= min(view.Applied, view.Last); i++ {
		term, data, ok := r.Entry(i)
		if !ok {
			return
		}
		look.checked = i
		v.judge(n, v.watch.Committed(view.Group, view.Replica, view.Term, i, term, xxhash.Sum64(data)))
	}
}

// leader: one leader per term, and it has every entry committed in an earlier one.
func (v *invariants) leader(n *simNode, r *replica.Replica, view *replica.View) {
	k := leadership{view.Group, view.Term, view.Replica}
	if v.leaders[k] {
		return
	}
	v.leaders[k] = true
	v.w.probe("leader elected")
	v.judge(n, v.watch.Leader(view.Group, view.Term, view.Replica))
	v.judge(n, v.watch.NewLeader(view.Group, view.Term, view.Replica, view.Last, func(i uint64) (uint64, bool) {
		term, _, ok := r.Entry(i)
		return term, ok
	}))
}

// machine: what the replicas made of the log. Machines that applied the same
// entries are equal, whether they applied them live or after a restart.
func (v *invariants) machine(n *simNode, view *replica.View) {
	if view.Applied%stateEvery == 0 {
		hash := xxhash.Sum64(view.Machine.Snapshot())
		v.judge(n, v.watch.Applied(view.Group, view.Replica, view.Applied, hash))
	}
	switch m := view.Machine.(type) {
	case *partition.Machine:
		v.judge(n, v.watch.HighWatermark(view.Group, view.Replica, m.HighWatermark()))
	case *subscription.Machine:
		m.Each(func(id model.SubscriptionID, s subscription.View) {
			if limit := v.limits[s.Ref]; s.Shared && limit > 0 {
				v.holding(n, &s, limit)
			}
			for p := range s.Partitions {
				o := &s.Partitions[p]
				v.judge(n, v.watch.Owner(id, model.Partition(p), o.Fence, o.Owner))
				v.judge(n, v.watch.Cursor(id, model.Partition(p), view.Applied, o.Cursor, o.Fence))
			}
		})
	}
}

// holding: no member holds more than its limit, whatever was restarted.
func (v *invariants) holding(n *simNode, s *subscription.View, limit uint64) {
	for _, m := range s.Members {
		if m.Leased > limit {
			v.w.violate("in-flight limit", "%s: %s holds %d messages of %s; its limit is %d", n.id, m.ID, m.Leased, s.Ref, limit)
		}
	}
}

// sending: a vote, asked for or granted, leaves only when the term and the vote
// it speaks for are durable: a lost term would be campaigned in twice. And an
// append is acknowledged only when it is durable.
func (v *invariants) sending(n *simNode, to model.NodeID, packet []byte) {
	p, err := core.DecodePacket(packet)
	if err != nil {
		v.w.violate("packet", "%s sends %s a packet that does not decode: %v", n.id, to, err)
		return
	}
	for _, m := range p.Raft {
		r := n.host.Shard().Replica(m.Group)
		if r == nil || uint64(r.Self()) != m.Message.GetFrom() {
			continue // its replica ended in this step; one that took its place cannot be asked
		}
		switch msg := m.Message; {
		case msg.GetType() == pb.MsgVote:
			v.durable(n, r)
			v.judge(n, v.watch.VoteRequest(m.Group, r.Self(), msg.GetTerm()))
		case msg.GetType() == pb.MsgVoteResp && !msg.GetReject():
			v.durable(n, r)
			v.judge(n, v.watch.VoteGrant(m.Group, r.Self(), msg.GetTerm(), model.ReplicaID(msg.GetTo())))
		case msg.GetType() == pb.MsgAppResp && !msg.GetReject():
			if last := r.View().Last; msg.GetIndex() > last {
				v.w.violate("append durable before it is acknowledged", "%s acknowledges entry %d of group %d; durable is "+
					"entry %d", n.id, msg.GetIndex(), m.Group, last)
			}
		}
	}
}

// durable brings the watch up to date with what the step under way found durable.
func (v *invariants) durable(n *simNode, r *replica.Replica) {
	view := r.View()
	look := v.seen[n.index][view.Group]
	if look == nil || look.replica != view.Replica {
		v.replica(n, r)
		return
	}
	v.progress(n, &view, look)
}
