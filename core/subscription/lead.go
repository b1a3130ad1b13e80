package subscription

import (
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

const (
	minSessionTimeout = time.Second
	maxSessionTimeout = 10 * time.Minute
	minAckDeadline    = time.Second
	maxAckDeadline    = 10 * time.Minute
)

// lead is what a leader remembers; a failover forgets it.
type lead struct {
	origin, sequence uint64               // name this leadership's proposals
	pending          map[uint64]*proposal // by sequence
	waits            map[group.Ref]*wait  // every request held
	asked            map[uint64]asked     // asks of other groups under way
	subscriptions    map[model.SubscriptionID]*leadSubscription
	acks             []*wait // for the next Ack entry
	acking           bool    // one is under way
	leases           []*wait // for the next lease entry
	leasing          bool    // one is under way
	since            model.Mono
	wakeAt           model.Mono
}

// proposal is a command under way and who waits for it.
type proposal struct {
	command command
	waits   []*wait
}

// leadSubscription is the leader's memory of one subscription.
type leadSubscription struct {
	busy         kind // structural command under way; 0: none
	parked       []*wait
	joins        []joining // asked for, not yet proposed
	leaves       []leaving
	sessions     map[model.MemberID]*session
	partitions   []partitionMemory
	owned        map[model.MemberID][]model.Partition // ascending; as of ownedAt
	ownedAt      model.Generation
	revoking     bool       // some partition is
	inheriting   bool       // some partition may not be given away yet
	dropped      bool       // raft dropped the last structural proposal
	shifts       []shift    // by partition
	settleAt     model.Mono // when one that changed hands too often may move again
	nextDeadline model.Mono // as last noted
	burials      map[model.Partition]*burial
	notedWaiting bool // the operator was told that dead letters wait
}

// session is a member's.
type session struct {
	joined uint64 // the member's number: another one is another session
	heard  model.Mono
	ending bool            // its end is under way
	next   model.Partition // the next grant begins at or after it
	run    run
	competing
}

// run is a member's pulls that name a sequence. At most one pull is open: the
// last one. What it was given is remembered until the next confirms it.
type run struct {
	sequence uint64 // of the open pull; 0: none
	recorded bool   // its answer is
	ranges   []recordedRange
}

// recordedRange is valid while the partition's fence is the same.
type recordedRange struct {
	call.Range
	fence model.Generation
}

// partitionMemory is void when the partition's fence is another than its own.
type partitionMemory struct {
	fence     model.Generation
	owner     model.MemberID
	delivered model.Offset // end of what was ever handed out, never below the cursor
	leased    model.Offset // end of what is out: what came back lies above it
	backFrom  model.Offset // of what an earlier leader gave, this and all above it came back; noEnd: nothing did
	leases    []lease      // of what is out, by end
	lapsing   bool         // the end of one is under way
	position  model.Offset // where pulls with a sequence go on; below the cursor: at it
	revoking  bool         // gets no more grants, to be given away
	revokedAt model.Mono
	inherited bool // an earlier leader delivered who knows what of it

	pausedFrom  model.Offset // held back from here on
	pausedUntil model.Mono

	skipped bool       // skip is to be told
	skip    call.Range // [From, To) lay below the log's start
	told    bool       // in an answer, to the pull with this sequence
	toldIn  uint64
}

func newLead(h group.Host) *lead {
	return &lead{
		origin:        h.Rand(),
		pending:       map[uint64]*proposal{},
		waits:         map[group.Ref]*wait{},
		asked:         map[uint64]asked{},
		subscriptions: map[model.SubscriptionID]*leadSubscription{},
		since:         h.Now(),
		wakeAt:        model.Never,
	}
}

// subscription is the memory of one, made when there is none.
func (l *lead) subscription(id model.SubscriptionID) *leadSubscription {
	ls := l.subscriptions[id]
	if ls == nil {
		ls = &leadSubscription{sessions: map[model.MemberID]*session{}, nextDeadline: model.Never, settleAt: model.Never,
			burials: map[model.Partition]*burial{}}
		l.subscriptions[id] = ls
	}
	return ls
}

// inherit fills the memory of a subscription an earlier leader served.
func (ls *leadSubscription) inherit(st *subscription, now model.Mono) {
	for i := range st.partitions {
		ls.at(st, model.Partition(i)).inherited = st.partitions[i].owner != ""
	}
	ls.syncSessions(st, now)
}

// at is the memory of a partition, made valid.
func (ls *leadSubscription) at(st *subscription, p model.Partition) *partitionMemory {
	for int(p) >= len(ls.partitions) {
		ls.partitions = append(ls.partitions, partitionMemory{})
	}
	mem, part := &ls.partitions[p], &st.partitions[p]
	if mem.fence != part.fence {
		fresh := partitionMemory{fence: part.fence, owner: part.owner, backFrom: noEnd}
		if mem.owner != part.owner {
			// A skip not yet confirmed goes to the next owner; a seek is a new beginning.
			fresh.skipped, fresh.skip = mem.skipped, mem.skip
		}
		*mem = fresh
	}
	mem.delivered, mem.leased = max(mem.delivered, part.cursor), max(mem.leased, part.cursor)
	return mem
}

// syncSessions makes sessions those of the members there are. A new one begins now.
func (ls *leadSubscription) syncSessions(st *subscription, now model.Mono) {
	sessions := make(map[model.MemberID]*session, len(st.members))
	for _, mb := range st.members {
		s := ls.sessions[mb.id]
		if s == nil || s.joined != mb.joined {
			s = &session{joined: mb.joined, heard: now}
		}
		sessions[mb.id] = s
	}
	ls.sessions = sessions
}

// ownedBy lists a member's partitions, ascending.
func (ls *leadSubscription) ownedBy(st *subscription, m model.MemberID) []model.Partition {
	if ls.ownedAt != st.generation {
		ls.ownedAt = st.generation
		ls.owned = make(map[model.MemberID][]model.Partition, len(st.members))
		for i := range st.partitions {
			if o := st.partitions[i].owner; o != "" {
				ls.owned[o] = append(ls.owned[o], model.Partition(i))
			}
		}
	}
	return ls.owned[m]
}

// renew notes that a member was heard of.
func (ls *leadSubscription) renew(m model.MemberID, now model.Mono) {
	if s := ls.sessions[m]; s != nil {
		s.heard = now
	}
}

// leavingNow says whether a member's end is asked for or under way.
func (ls *leadSubscription) leavingNow(m model.MemberID) bool {
	s := ls.sessions[m]
	return s != nil && (s.ending || slices.ContainsFunc(ls.leaves, func(l leaving) bool { return l.member == m }))
}

// propose hands a command to raft and remembers who waits for it.
func (m *Machine) propose(h group.Host, c command, waits ...*wait) bool {
	l := m.lead
	l.sequence++
	e := entry{header{l.origin, l.sequence}, c}
	l.pending[l.sequence] = &proposal{command: c, waits: waits}
	if !h.Propose(encode(&e)) {
		delete(l.pending, l.sequence)
		return false
	}
	for _, w := range waits {
		w.proposed = true
	}
	return true
}

// proposeFor proposes what requests wait for; false: they were told to come again.
func (m *Machine) proposeFor(h group.Host, c command, waits ...*wait) bool {
	if m.propose(h, c, waits...) {
		return true
	}
	for _, w := range waits {
		m.finish(h, w, nil, model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, proposeRetry,
			"the coordinator takes no changes at the moment; ask again"))
	}
	return false
}

// note sees to it that Tick comes at the latest at this moment.
func (m *Machine) note(h group.Host, at model.Mono) {
	if at < m.lead.wakeAt {
		m.lead.wakeAt = at
		h.Wake(at)
	}
}

// noteDeadline finds when a subscription next needs a Tick.
func (m *Machine) noteDeadline(h group.Host, id model.SubscriptionID) {
	ls, st := m.lead.subscriptions[id], m.state.subscriptions[id]
	if ls == nil {
		return
	}
	at := model.Never
	if ls.busy == 0 && (ls.dropped || len(ls.parked) > 0) {
		at = h.Now().Add(proposeRetry)
	}
	if st != nil {
		at = min(at, m.deadline(h, st, ls))
	}
	// The end of a command under way looks at everything again by itself.
	if at <= h.Now() {
		at = h.Now().Add(proposeRetry)
	}
	ls.nextDeadline = at
	m.note(h, at)
}

// deadline is the earliest end of a session, of a lease, or of a wait to give a
// partition away.
func (m *Machine) deadline(h group.Host, st *subscription, ls *leadSubscription) model.Mono {
	at, t := model.Never, m.terms(h, st.id)
	for _, mb := range st.members {
		if s := ls.sessions[mb.id]; s != nil && !s.ending {
			at = min(at, s.heard.Add(t.session))
		}
	}
	for p := range ls.partitions {
		mem := &ls.partitions[p]
		if mem.revoking {
			at = min(at, mem.revokedAt.Add(t.ack))
		}
		for i := range mem.leases {
			if !mem.lapsing {
				at = min(at, mem.leases[i].deadline)
			}
		}
	}
	for _, b := range ls.burials { // the earliest of them, in whatever order
		if b.ask == 0 && !b.busy {
			at = min(at, b.retryAt)
		}
	}
	if st != nil {
		at = min(at, st.nextLapse())
	}
	at = min(at, ls.settleAt)
	if ls.inheriting {
		at = min(at, m.lead.since.Add(t.ack))
	}
	return at
}
