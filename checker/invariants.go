package checker

import (
	"fmt"

	"github.com/tapedeck/tapedeck/core/model"
)

// Violation is a broken invariant, as seen while a cluster runs.
type Violation struct {
	Invariant string
	Detail    string
}

// Error implements error.
func (v *Violation) Error() string { return v.Invariant + ": " + v.Detail }

// Names of invariants.
const (
	OneLeader          = "one leader per term"
	LogMatching        = "log matching"
	LeaderCompleteness = "leader completeness"
	VoteDurable        = "vote durable before it leaves"
	VoteKept           = "durable vote kept over a restart"
	AppliedEqual       = "applied state equal at equal index"
	WatermarkMonotonic = "high watermark never backwards"
	OneOwner           = "one owner per partition and generation"
	CursorMonotonic    = "cursor never backwards without a seek"
)

func violated(name, format string, args ...any) *Violation {
	return &Violation{Invariant: name, Detail: fmt.Sprintf(format, args...)}
}

// Invariants watches a running cluster. Each method takes in one fact, in the
// order in which facts come about, and returns what it breaks, or nil. The zero
// value is not usable: NewInvariants.
//
// Memory grows with what is watched; Forget and Trim let go of it.
type Invariants struct {
	leaders map[groupTerm]model.ReplicaID
	logs    map[model.GroupID]*groupLog
	applied map[model.GroupID]map[uint64]appliedState
	votes   map[replicaKey]*voteState
	marks   map[replicaKey]model.Offset
	shown   map[model.GroupID]model.Offset
	owners  map[ownership]model.MemberID
	cursors map[cursorKey]cursorState
}

type groupTerm struct {
	group model.GroupID
	term  uint64
}

type replicaKey struct {
	group   model.GroupID
	replica model.ReplicaID
}

// entryID is what tells two entries at one index apart.
type entryID struct{ term, hash uint64 }

// groupLog holds a group's entries as its replicas have stored them.
type groupLog struct {
	entries   map[indexTerm]uint64  // hash, by index and term
	committed map[uint64]commitment // (trimmed, highest]
	trimmed   uint64
	highest   uint64 // committed index known
}

// commitment is a committed entry and the least term of a replica that took it
// for committed: it was committed in that term at the latest.
type commitment struct {
	entryID
	by uint64
}

type indexTerm struct{ index, term uint64 }

type appliedState struct {
	hash    uint64
	replica model.ReplicaID
}

// voteState is what one replica has made durable in its current incarnation.
type voteState struct {
	term uint64
	vote model.ReplicaID // 0: none in this term
}

type ownership struct {
	subscription model.SubscriptionID
	partition    model.Partition
	generation   model.Generation
}

type cursorKey struct {
	subscription model.SubscriptionID
	partition    model.Partition
}

type cursorState struct {
	index  uint64
	cursor model.Offset
	fence  model.Generation
}

// NewInvariants starts a watch.
func NewInvariants() *Invariants {
	return &Invariants{
		leaders: map[groupTerm]model.ReplicaID{},
		logs:    map[model.GroupID]*groupLog{},
		applied: map[model.GroupID]map[uint64]appliedState{},
		votes:   map[replicaKey]*voteState{},
		marks:   map[replicaKey]model.Offset{},
		shown:   map[model.GroupID]model.Offset{},
		owners:  map[ownership]model.MemberID{},
		cursors: map[cursorKey]cursorState{},
	}
}

// Leader takes in that a replica leads a group in a term.
func (v *Invariants) Leader(g model.GroupID, term uint64, r model.ReplicaID) *Violation {
	key := groupTerm{g, term}
	before, there := v.leaders[key]
	if there && before != r {
		return violated(OneLeader, "group %d term %d is led by replica %d and by %d", g, term, before, r)
	}
	v.leaders[key] = r
	return nil
}

func (v *Invariants) log(g model.GroupID) *groupLog {
	l := v.logs[g]
	if l == nil {
		l = &groupLog{entries: map[indexTerm]uint64{}, committed: map[uint64]commitment{}}
		v.logs[g] = l
	}
	return l
}

// Entry takes in that a replica holds an entry: any two entries of one index and
// term are the same. Hash covers the entry's contents.
func (v *Invariants) Entry(g model.GroupID, r model.ReplicaID, index, term, hash uint64) *Violation {
	l := v.log(g)
	if index <= l.trimmed {
		return nil
	}
	before, there := l.entries[indexTerm{index, term}]
	if there && before != hash {
		return violated(LogMatching, "group %d replica %d: entry %d of term %d differs from the one seen before",
			g, r, index, term)
	}
	l.entries[indexTerm{index, term}] = hash
	return nil
}

// Committed takes in that a replica, in a term of its own, takes an entry for
// committed: at one index all replicas commit the same.
func (v *Invariants) Committed(g model.GroupID, r model.ReplicaID, own, index, term, hash uint64) *Violation {
	if broken := v.Entry(g, r, index, term, hash); broken != nil {
		return broken
	}
	l := v.log(g)
	if index <= l.trimmed {
		return nil
	}
	id := entryID{term, hash}
	before, there := l.committed[index]
	if there && before.entryID != id {
		return violated(LogMatching, "group %d replica %d commits entry %d of term %d, term %d was committed there",
			g, r, index, term, before.term)
	}
	if !there || own < before.by {
		l.committed[index] = commitment{id, own}
	}
	l.highest = max(l.highest, index)
	return nil
}

// NewLeader holds a newly elected leader's log to everything known as committed
// in earlier terms. One that wins an old term late, when a newer one already
// commits, need not have the newer one's. At tells the term of the leader's entry
// at an index; false: it is below the leader's log, in a snapshot. Call it once
// per election, after Leader; it walks the committed entries not yet trimmed.
func (v *Invariants) NewLeader(g model.GroupID, term uint64, r model.ReplicaID, last uint64,
	at func(index uint64) (uint64, bool)) *Violation {
	l := v.log(g)
	for index := l.trimmed + 1; index <= l.highest; index++ {
		id, there := l.committed[index]
		if !there || id.by >= term {
			continue
		}
		if index > last {
			return violated(LeaderCompleteness,
				"group %d replica %d leads in term %d with a log to %d, without committed entry %d", g, r, term, last, index)
		}
		if has, held := at(index); held && has != id.term {
			return violated(LeaderCompleteness,
				"group %d replica %d leads in term %d and has term %d at %d, where term %d was committed",
				g, r, term, has, index, id.term)
		}
	}
	return nil
}

// Started takes in what a replica found durable when its incarnation began: what
// it had made durable before is still there.
func (v *Invariants) Started(g model.GroupID, r model.ReplicaID, term uint64, vote model.ReplicaID) *Violation {
	key := replicaKey{g, r}
	before := v.votes[key]
	v.votes[key] = &voteState{term, vote}
	delete(v.marks, key)
	if before != nil && (term < before.term || term == before.term && before.vote != 0 && vote != before.vote) {
		return violated(VoteKept, "group %d replica %d: it starts with term %d and a vote for %d; durable were term %d "+
			"and a vote for %d", g, r, term, vote, before.term, before.vote)
	}
	return nil
}

// Damaged takes in that what a replica had made durable may be lost: its next
// Started is not held to it.
func (v *Invariants) Damaged(g model.GroupID, r model.ReplicaID) { delete(v.votes, replicaKey{g, r}) }

// Durable takes in that a replica's hard state has been fsynced.
func (v *Invariants) Durable(g model.GroupID, r model.ReplicaID, term uint64, vote model.ReplicaID) *Violation {
	key := replicaKey{g, r}
	s := v.votes[key]
	if s == nil {
		s = &voteState{}
		v.votes[key] = s
	}
	if term < s.term {
		return violated(VoteDurable, "group %d replica %d: its durable term fell from %d to %d", g, r, s.term, term)
	}
	if term == s.term && s.vote != 0 && vote != s.vote {
		return violated(VoteDurable, "group %d replica %d: its durable vote of term %d changed from %d to %d",
			g, r, term, s.vote, vote)
	}
	s.term, s.vote = term, vote
	return nil
}

// VoteRequest takes in that a MsgVote leaves a replica (pre-votes are exempt):
// its durable term is above the request's, or equal with the vote for itself.
func (v *Invariants) VoteRequest(g model.GroupID, r model.ReplicaID, term uint64) *Violation {
	return v.voteLeaves("a vote request", g, r, term, r)
}

// VoteGrant takes in that a granting MsgVoteResp leaves a replica for another.
func (v *Invariants) VoteGrant(g model.GroupID, r model.ReplicaID, term uint64, to model.ReplicaID) *Violation {
	return v.voteLeaves("a vote", g, r, term, to)
}

func (v *Invariants) voteLeaves(what string, g model.GroupID, r model.ReplicaID, term uint64,
	to model.ReplicaID) *Violation {
	s := v.votes[replicaKey{g, r}]
	if s == nil {
		s = &voteState{}
	}
	if s.term > term || (s.term == term && s.vote == to) {
		return nil
	}
	return violated(VoteDurable, "group %d replica %d: %s for %d in term %d leaves, durable are term %d and a vote for %d",
		g, r, what, to, term, s.term, s.vote)
}

// Applied takes in the hash of a replica's state after applying an index.
func (v *Invariants) Applied(g model.GroupID, r model.ReplicaID, index, hash uint64) *Violation {
	at := v.applied[g]
	if at == nil {
		at = map[uint64]appliedState{}
		v.applied[g] = at
	}
	before, there := at[index]
	if there && before.hash != hash {
		return violated(AppliedEqual, "group %d index %d: replica %d has state %016x, replica %d had %016x",
			g, index, r, hash, before.replica, before.hash)
	}
	if !there {
		at[index] = appliedState{hash, r}
	}
	return nil
}

// HighWatermark takes in a replica's high watermark: within one incarnation
// (since Started) it never falls.
func (v *Invariants) HighWatermark(g model.GroupID, r model.ReplicaID, high model.Offset) *Violation {
	key := replicaKey{g, r}
	if before := v.marks[key]; high < before {
		return violated(WatermarkMonotonic, "group %d replica %d: high watermark fell from %d to %d", g, r, before, high)
	}
	v.marks[key] = high
	return nil
}

// HighWatermarkShown takes in a high watermark that a leader answers as current:
// over all leaders it never falls. Feed it in order of the answers' reads.
func (v *Invariants) HighWatermarkShown(g model.GroupID, r model.ReplicaID, high model.Offset) *Violation {
	if before := v.shown[g]; high < before {
		return violated(WatermarkMonotonic, "group %d: replica %d shows high watermark %d after %d was shown",
			g, r, high, before)
	}
	v.shown[g] = high
	return nil
}

// Owner takes in that a member owns a partition in a generation, according to
// any replica of the coordinator. An empty member owns nothing.
func (v *Invariants) Owner(s model.SubscriptionID, p model.Partition, gen model.Generation,
	m model.MemberID) *Violation {
	if m == "" {
		return nil
	}
	key := ownership{s, p, gen}
	before, there := v.owners[key]
	if there && before != m {
		return violated(OneOwner, "subscription %d partition %d generation %d: owned by %s and by %s",
			s, p, gen, before, m)
	}
	v.owners[key] = m
	return nil
}

// Cursor takes in a cursor as a replica of its coordinator has applied it at an
// index, with its partition's fence: at one fence it never falls. What a replica
// behind the foremost says is passed over; Applied compares that.
func (v *Invariants) Cursor(s model.SubscriptionID, p model.Partition, index uint64, cursor model.Offset,
	fence model.Generation) *Violation {
	key := cursorKey{s, p}
	before, there := v.cursors[key]
	if there && index <= before.index {
		return nil
	}
	if there && fence < before.fence {
		return violated(CursorMonotonic, "subscription %d partition %d: its fence fell from %d to %d at index %d",
			s, p, before.fence, fence, index)
	}
	if there && fence == before.fence && cursor < before.cursor {
		return violated(CursorMonotonic, "subscription %d partition %d: cursor fell from %d to %d at index %d, fence %d",
			s, p, before.cursor, cursor, index, fence)
	}
	v.cursors[key] = cursorState{index, cursor, fence}
	return nil
}

// Trim lets go of a group's entries and states at and below an index. What lies
// there is no longer compared. It walks what is held: call it at intervals.
func (v *Invariants) Trim(g model.GroupID, index uint64) {
	l := v.log(g)
	for key := range l.entries { // deleting: order does not matter
		if key.index <= index {
			delete(l.entries, key)
		}
	}
	for at := range l.committed { // deleting: order does not matter
		if at <= index {
			delete(l.committed, at)
		}
	}
	for at := range v.applied[g] { // deleting: order does not matter
		if at <= index {
			delete(v.applied[g], at)
		}
	}
	l.trimmed = max(l.trimmed, index)
}

// Forget lets go of a group that was deleted.
func (v *Invariants) Forget(g model.GroupID) {
	delete(v.logs, g)
	delete(v.applied, g)
	delete(v.shown, g)
}
