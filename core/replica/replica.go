package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Config is one replica's.
type Config struct {
	Group            model.Group
	Self             model.ReplicaID
	Seed             uint64
	Heartbeat        time.Duration
	Election         time.Duration // T; jitter up to T is added
	ReadIndexWait    time.Duration
	WindowEntries    int
	WindowBytes      int
	InflightMessages int
	InflightBytes    int
	UncommittedBytes int
	Choice           choice.Func
	Probe            probe.Func // may be nil
}

// Services is what a replica asks of its shard.
type Services interface {
	Now() model.Mono
	// Journal queues one atomic record of the group; Durable follows with the
	// sequence returned, in order.
	Journal(g model.GroupID, index, term uint64, payload []byte, sync bool) (sequence uint64)
	SendRaft(g model.GroupID, to model.Replica, m *pb.Message)
	// Touched marks the group as one that has something to drain.
	Touched(g model.GroupID)
	// MayInstall says whether a snapshot's message may be stepped now; if not,
	// the shard copies what it names and steps it again later.
	MayInstall(r *Replica, m *pb.Message) bool
	// Installed follows the machine's Restore from a durable snapshot.
	Installed(r *Replica)
	Reply(ref group.Ref, err *model.Error)
	// Note is for the operator.
	Note(text string)
}

// write is one journal record under way.
type write struct {
	sequence  uint64
	light     bool // changes nothing but the commit index, which can be lost
	hasHard   bool
	hard      hardState
	snapshot  *pb.Snapshot
	entries   []*pb.Entry
	responses []*pb.Message
}

// Replica is one member of one group.
type Replica struct {
	cfg     Config
	s       Services
	host    group.Host
	machine group.Machine
	rn      *raft.RawNode
	log     window
	peers   map[uint64]model.Replica
	sent    map[uint64]sentTo // the last append to each

	applied, appliedTerm uint64
	conf                 *pb.ConfState
	writes               []write   // FIFO, not yet durable
	hard                 hardState // as last queued
	durable              hardState // as last reported durable

	role        raft.StateType
	term, lead  uint64
	leading     bool // own-term gate is open
	proposals   []*pb.Entry
	uncommitted int // bytes proposed here in this term and not yet applied
	clock       clock
	reads       reads
	beats       int
	complained  bool       // of a message that cannot be
	handing     bool       // leadership is being handed over: no proposals
	yieldUntil  model.Mono // no proposals until then, so that leadership can be handed over
	givenUp     uint64     // the replica whose removal was proposed here in this term, its folder being gone
	// confIndex is of the last membership change that this leader's log took in this
	// term; confUnderWay: one was proposed and is not in it yet.
	confIndex    uint64
	confUnderWay bool
}

// New makes a replica from its durable state. host is what the machine sees.
func New(cfg Config, l *Loader, m group.Machine, s Services, host group.Host) (*Replica, error) {
	r := &Replica{cfg: cfg, s: s, host: host, machine: m, peers: map[uint64]model.Replica{}, sent: map[uint64]sentTo{},
		applied: l.applied, appliedTerm: l.appliedTerm, conf: l.conf, hard: l.hard, durable: l.hard}
	r.SetGroup(cfg.Group)
	if l.machine != nil {
		if err := m.Restore(l.machine); err != nil {
			return nil, fmt.Errorf("group %d: restore its state at entry %d: %w", cfg.Group.ID, l.applied, err)
		}
	}
	r.log = window{hard: l.hard.proto(), conf: l.conf, snapshot: r.makeSnapshot}
	r.log.reset(l.applied, l.appliedTerm)
	r.log.append(l.entries)
	rn, err := raft.NewRawNode(&raft.Config{
		ID: uint64(cfg.Self), ElectionTick: max(2, int(cfg.Election/cfg.Heartbeat)), HeartbeatTick: 1,
		Storage: &r.log, Applied: l.applied, AsyncStorageWrites: true,
		MaxSizePerMsg: 1 << 20, MaxCommittedSizePerReady: 4 << 20,
		MaxUncommittedEntriesSize: uint64(4 * cfg.UncommittedBytes),
		MaxInflightMsgs:           cfg.InflightMessages, MaxInflightBytes: uint64(max(cfg.InflightBytes, 1<<20)),
		CheckQuorum: true, PreVote: true, ReadOnlyOption: raft.ReadOnlySafe,
		DisableProposalForwarding: true, StepDownOnRemoval: true, Logger: silent{},
	})
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", cfg.Group.ID, err)
	}
	r.rn = rn
	st := rn.BasicStatus()
	r.role, r.term, r.lead = st.RaftState, st.GetTerm(), st.Lead
	r.clock.rearm(r)
	if len(cfg.Group.Replicas) > 0 && cfg.Group.Replicas[0].ID == cfg.Self {
		// The preferred leader of a young group tries early, so that a new topic
		// is not idle for an election timeout.
		r.clock.campaignAt = s.Now().Add(cfg.Heartbeat / 4)
	}
	return r, nil
}

// Step takes a raft message from a peer.
func (r *Replica) Step(m *pb.Message) {
	err := r.checkSender(m)
	if err == nil {
		err = r.check(m)
	}
	if err != nil {
		if !r.complained {
			r.complained = true
			r.s.Note(fmt.Sprintf("group %d refuses a message of replica %d: %v", r.cfg.Group.ID, m.GetFrom(), err))
		}
		return
	}
	switch m.GetType() {
	case pb.MsgApp, pb.MsgHeartbeat, pb.MsgSnap:
		if m.GetTerm() >= r.term {
			r.clock.rearm(r)
		}
	}
	if m.GetType() == pb.MsgSnap && !r.s.MayInstall(r, m) {
		return
	}
	r.step(m)
}

// Install steps a snapshot's message whose content is on disk.
func (r *Replica) Install(m *pb.Message) { r.step(m) }

func (r *Replica) step(m *pb.Message) {
	err := r.rn.Step(m)
	if err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) && !errors.Is(err, raft.ErrProposalDropped) &&
		!errors.Is(err, raft.ErrStepLocalMsg) {
		panic(fmt.Sprintf("group %d: step %v: %v", r.cfg.Group.ID, m.GetType(), err))
	}
	r.s.Touched(r.cfg.Group.ID)
}

// Durable reports that every journal record up to and with sequence is durable.
func (r *Replica) Durable(sequence uint64) {
	for len(r.writes) > 0 && r.writes[0].sequence <= sequence {
		w := r.writes[0]
		r.writes[0] = write{}
		r.writes = r.writes[1:]
		if w.hasHard {
			r.durable = w.hard
		}
		if w.snapshot != nil {
			r.install(w.snapshot)
		}
		if len(w.entries) > 0 && w.entries[0].GetIndex() <= r.log.last() {
			r.cfg.Probe.Hit(probe.TailReplaced)
		}
		r.log.append(w.entries)
		r.respond(w.responses)
	}
	r.s.Touched(r.cfg.Group.ID)
}

func (r *Replica) respond(ms []*pb.Message) {
	for _, m := range ms {
		if m.GetTo() == uint64(r.cfg.Self) {
			r.step(m)
		} else {
			r.send(m)
		}
	}
}

// promising says that something is on its way to the disk that a response may
// speak of: entries, a snapshot, a term or a vote.
func (r *Replica) promising() bool {
	return slices.ContainsFunc(r.writes, func(w write) bool { return !w.light })
}

func (r *Replica) install(s *pb.Snapshot) {
	m := s.Metadata
	r.cfg.Probe.Hit(probe.SnapshotInstalled)
	r.log.reset(m.GetIndex(), m.GetTerm())
	r.applied, r.appliedTerm, r.conf = m.GetIndex(), m.GetTerm(), m.ConfState
	if err := r.machine.Restore(s.Data); err != nil {
		panic(fmt.Sprintf("group %d: restore a snapshot from the leader: %v", r.cfg.Group.ID, err))
	}
	r.s.Installed(r)
}

// Drain handles everything raft has ready.
func (r *Replica) Drain() {
	for {
		r.propose()
		for r.rn.HasReady() {
			r.handle(r.rn.Ready())
		}
		r.confUnderWay = false // raft puts an empty entry in place of one it refuses
		r.observe()
		r.reads.advance(r)
		if len(r.proposals) == 0 && !r.rn.HasReady() {
			return
		}
	}
}

func (r *Replica) handle(rd raft.Ready) {
	var appendMsg, applyMsg *pb.Message
	var votes []*pb.Message
	for _, m := range rd.Messages {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			appendMsg = m
		case m.GetTo() == raft.LocalApplyThread:
			applyMsg = m
		case m.GetType() == pb.MsgVote:
			r.cfg.Probe.Hit(probe.VoteWaits)
			votes = append(votes, m) // duty 2: held until its term and vote are durable
		default:
			r.send(m)
		}
	}
	if appendMsg != nil {
		r.queue(appendMsg, votes)
	} else {
		r.hold(votes)
	}
	for _, rs := range rd.ReadStates {
		r.reads.confirmed(r, rs)
	}
	if applyMsg != nil {
		r.apply(applyMsg.GetEntries())
		for _, m := range applyMsg.GetResponses() {
			r.step(m)
		}
	}
}

// queue hands one Ready's write to the journal.
func (r *Replica) queue(m *pb.Message, votes []*pb.Message) {
	w := write{entries: m.GetEntries(), responses: append(m.GetResponses(), votes...)}
	rec := ready{entries: w.entries}
	w.light = len(w.entries) == 0 && raft.IsEmptySnap(m.GetSnapshot())
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		w.hasHard, w.hard = true, hardState{m.GetTerm(), m.GetVote(), m.GetCommit()}
		w.light = w.light && w.hard.Term == r.hard.Term && w.hard.Vote == r.hard.Vote
		r.hard = w.hard
		rec.hasHard, rec.hard = true, w.hard
	}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		w.snapshot = m.GetSnapshot()
		rec.snapshot = w.snapshot
	}
	for _, e := range w.entries {
		if e.GetType() != pb.EntryNormal {
			r.confIndex = e.GetIndex()
		}
	}
	index, term := r.log.last(), r.hard.Term
	if n := len(w.entries); n > 0 {
		index, term = w.entries[n-1].GetIndex(), w.entries[n-1].GetTerm()
	}
	for _, resp := range w.responses {
		if resp.GetType() == pb.MsgVoteResp && !resp.GetReject() {
			r.clock.rearm(r)
		}
	}
	var now []*pb.Message
	if w.light && !r.promising() && !r.cfg.Choice.Rare(choice.CommitWaits) {
		// What these responses promise is durable already.
		now, w.responses = w.responses, nil
	}
	defer r.respond(now)
	size := 64
	for _, e := range w.entries {
		size += len(e.GetData()) + 24
	}
	payload := wire.Append(make([]byte, 0, size), &rec)
	w.sequence = r.s.Journal(r.cfg.Group.ID, index, term, payload, len(w.responses) > 0)
	r.writes = append(r.writes, w)
}

// hold attaches vote requests to the last write under way. A Ready with votes
// and without a write of its own does not occur in practice; were it to, what
// the votes speak for is in the writes before it.
func (r *Replica) hold(votes []*pb.Message) {
	if n := len(r.writes); n > 0 {
		r.writes[n-1].responses = append(r.writes[n-1].responses, votes...)
		return
	}
	for _, m := range votes {
		r.send(m)
	}
}

// SetGroup follows the catalog: who is where. Replicas that are no more stay
// known, so that raft's last words to them find their way.
func (r *Replica) SetGroup(g model.Group) {
	r.cfg.Group = g
	for _, p := range g.Replicas {
		r.peers[uint64(p.ID)] = p
	}
	if g.Change.Add.ID != 0 {
		r.peers[uint64(g.Change.Add.ID)] = g.Change.Add
	}
}

func (r *Replica) send(m *pb.Message) {
	if p, ok := r.peers[m.GetTo()]; ok && !r.repeats(m) {
		r.s.SendRaft(r.cfg.Group.ID, p, m)
	}
}

func (r *Replica) apply(es []*pb.Entry) {
	for _, e := range es {
		if e.GetIndex() != r.applied+1 {
			panic(fmt.Sprintf("group %d applies entry %d after %d", r.cfg.Group.ID, e.GetIndex(), r.applied))
		}
		r.applied, r.appliedTerm = e.GetIndex(), e.GetTerm()
		switch e.GetType() {
		case pb.EntryNormal:
			if len(e.GetData()) > 0 {
				if r.role == raft.StateLeader && e.GetTerm() == r.term {
					r.uncommitted = max(0, r.uncommitted-len(e.GetData()))
				}
				r.machine.Apply(r.host, group.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Data: e.GetData()})
			}
		case pb.EntryConfChange, pb.EntryConfChangeV2:
			r.applyConf(e)
		}
	}
	if r.cfg.Choice.Rare(choice.WindowEmptied) {
		r.log.evict(r.applied, 0, 0)
		return
	}
	r.log.evict(r.applied, r.cfg.WindowEntries, r.cfg.WindowBytes)
}

func (r *Replica) applyConf(e *pb.Entry) {
	cc, err := confChange(e)
	if err != nil {
		panic(fmt.Sprintf("group %d entry %d is not a membership change: %v", r.cfg.Group.ID, e.GetIndex(), err))
	}
	r.conf = r.rn.ApplyConfChange(cc)
	r.cfg.Probe.Hit(probe.MembersChanged)
}

// observe follows raft's role and term and opens or closes the own-term gate.
func (r *Replica) observe() {
	st := r.rn.BasicStatus()
	if st.RaftState != r.role || st.GetTerm() != r.term {
		if r.leading {
			r.stopLeading()
		}
		r.role, r.term = st.RaftState, st.GetTerm()
		r.uncommitted, r.confIndex, r.givenUp, r.yieldUntil = 0, 0, 0, 0
		r.clock.rearm(r)
	}
	r.lead, r.handing = st.Lead, st.LeadTransferee != raft.None
	if r.role == raft.StateLeader && !r.leading && r.appliedTerm == r.term {
		r.leading = true
		r.machine.LeaderStart(r.host)
	}
}

func (r *Replica) stopLeading() {
	if r.uncommitted > 0 {
		r.cfg.Probe.Hit(probe.LeaderLostUncommitted)
	}
	if !r.reads.idle() {
		r.cfg.Probe.Hit(probe.LeaderLostReads)
	}
	r.leading = false
	r.proposals = nil
	r.reads.fail(r)
	r.machine.LeaderStop(r.host)
}

// Propose queues an entry; everything queued in one step is one raft message.
func (r *Replica) Propose(data []byte) bool {
	// One entry is taken however large: refused for ever it could never succeed.
	if !r.leading || r.handing || r.s.Now() < r.yieldUntil {
		return false
	}
	if r.uncommitted > 0 && r.uncommitted+len(data) > r.cfg.UncommittedBytes || r.cfg.Choice.Rare(choice.ProposalDenied) {
		r.cfg.Probe.Hit(probe.TooMuchUncommitted)
		return false
	}
	r.uncommitted += len(data)
	r.proposals = append(r.proposals, &pb.Entry{Data: data})
	r.s.Touched(r.cfg.Group.ID)
	return true
}

func (r *Replica) propose() {
	if len(r.proposals) == 0 {
		return
	}
	es := r.proposals
	r.proposals = nil
	self := uint64(r.cfg.Self)
	err := r.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: &self, To: &self, Entries: es})
	if err != nil {
		// Dropped as a whole: leadership is being transferred or was just lost.
		// What the machine keeps ahead of apply is void; it starts afresh.
		r.observe()
		if r.leading {
			r.cfg.Probe.Hit(probe.ProposalsDropped)
			r.stopLeading()
			r.leading = true
			r.uncommitted = 0
			r.machine.LeaderStart(r.host)
		}
	}
}

// makeSnapshot is raft's Storage.Snapshot: built on demand at the applied index.
func (r *Replica) makeSnapshot() (*pb.Snapshot, error) {
	if r.applied == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	r.cfg.Probe.Hit(probe.SnapshotSent)
	return &pb.Snapshot{Data: r.machine.Snapshot(), Metadata: &pb.SnapshotMetadata{
		ConfState: proto.Clone(r.conf).(*pb.ConfState), Index: new(r.applied), Term: new(r.appliedTerm)}}, nil
}

// Checkpoint returns the group's share of a checkpoint and the payload of the
// base record that starts the journal's next generation. ok is false while a
// snapshot is being installed: try again when it is durable.
func (r *Replica) Checkpoint() (a Applied, payload []byte, ok bool) {
	// The log as the journal's FIFO will have it: what is durable, then the
	// writes under way, each replacing everything from its first entry on.
	es := r.log.entries[min(uint64(len(r.log.entries)), r.applied+1-r.log.first):]
	es = es[:len(es):len(es)]
	for _, w := range r.writes {
		if w.snapshot != nil {
			return Applied{}, nil, false
		}
		if len(w.entries) > 0 {
			keep := w.entries[0].GetIndex() - r.applied - 1
			es = append(es[:keep:keep], w.entries...)
		}
	}
	if len(r.writes) > 0 {
		r.cfg.Probe.Hit(probe.CheckpointDuringWrites)
	}
	b := base{hard: r.hard, applied: r.applied, appliedTerm: r.appliedTerm, conf: r.conf, entries: es}
	return Applied{r.applied, r.appliedTerm, r.conf, r.machine.Snapshot()}, wire.Encode(&b), true
}
