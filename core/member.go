package core

import (
	"maps"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/meta"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/partition"
	"github.com/tapedeck/tapedeck/core/probe"
	"github.com/tapedeck/tapedeck/core/replica"
	"github.com/tapedeck/tapedeck/core/subscription"
	"github.com/tapedeck/tapedeck/core/wire"
)

// member is a group's replica on this node together with what it replicates. It
// is the machine's group.Host.
type member struct {
	s       *Shard
	id      model.GroupID
	g       definition
	r       *replica.Replica
	machine group.Machine
	wakeAt  model.Mono // asked for by the machine
	alarm   model.Mono // in the shard's heap
	copying *copying
	repair  *repairing
	lost    *model.Offset // damaged, and not repaired when last tried
	// reportAt: no report of a change of members to meta before it.
	reportAt model.Mono
	// ledSince is when this replica, not the preferred leader, was last seen to begin leading.
	ledSince model.Mono
	// resetAt: the store was emptied to begin here and no snapshot that accounts
	// for it is installed yet. storedTo: how far a copy has filled the store.
	resetAt  *model.Offset
	storedTo model.Offset
	emptying bool // the store is about to be; the journal's word of it is not durable yet
	dirty    bool
	gone     bool
}

// definition is what the journal and the checkpoint say of a replica here.
type definition struct {
	group   model.Group
	created uint64 // catalog version that brought it: an older catalog says nothing of it
}

// Code implements wire.Coder.
func (d *definition) Code(c *wire.Codec) {
	c.Version(1)
	meta.CodeGroup(c, &d.group)
	wire.Uint(c, &d.created)
}

func (s *Shard) newMachine(g model.Group) group.Machine {
	m := s.blank(g)
	if g.Kind == model.GroupMeta {
		s.meta = m.(*meta.Machine)
	}
	return m
}

// blank is a machine of a group's kind in its initial state.
func (s *Shard) blank(g model.Group) group.Machine {
	l := s.cfg.Limits
	switch g.Kind {
	case model.GroupMeta:
		return meta.New(*s.founding)
	case model.GroupCoordinator:
		return subscription.New(subscription.Config{Group: g.ID, MaxMembers: l.MaxMembers, Waiting: l.Waiting,
			Unpack: s.cfg.Unpack})
	}
	return newPartition(g, &s.cfg)
}

func newPartition(g model.Group, c *Config) *partition.Machine {
	l := c.Limits
	return partition.New(partition.Config{Group: g.ID, Topic: g.Topic, Partition: g.Partition, Limits: partition.Limits{
		HotBytes: l.HotBytes, Waiting: l.Waiting, MaxProducers: l.MaxProducers, SegmentBytes: l.SegmentBytes,
		SegmentAge: l.SegmentAge, MaxBatchBytes: l.MaxBatchBytes}, Unpack: c.Unpack, Choice: c.Choice})
}

// replicaHere is this node's replica of a group, if it has one: the name and the
// data folder must both be ours.
func (s *Shard) replicaHere(g *model.Group) (model.ReplicaID, bool) {
	r, ok := g.On(s.cfg.Self, s.self.Disk)
	return r.ID, ok
}

// addMember starts a replica from its durable state.
func (s *Shard) addMember(d definition, l *replica.Loader) error {
	id, _ := s.replicaHere(&d.group)
	m := &member{s: s, id: d.group.ID, g: d, wakeAt: model.Never, alarm: model.Never}
	m.machine = s.newMachine(d.group)
	lim, t := s.cfg.Limits, s.cfg.Timing
	r, err := replica.New(replica.Config{Group: d.group, Self: id, Seed: s.cfg.Seed,
		Heartbeat: t.Heartbeat, Election: t.Election, ReadIndexWait: t.ReadIndexWait,
		WindowEntries: lim.WindowEntries, WindowBytes: lim.WindowBytes,
		InflightMessages: lim.InflightMessages, InflightBytes: lim.InflightBytes,
		UncommittedBytes: lim.UncommittedBytes, Choice: s.cfg.Choice,
		Probe: s.cfg.Probe}, l, m.machine, raftServices{m}, m)
	if err != nil {
		return err
	}
	m.r = r
	s.byGroup[m.id] = m
	at := len(s.members)
	for at > 0 && s.members[at-1].id > m.id {
		at--
	}
	s.members = append(s.members, nil)
	copy(s.members[at+1:], s.members[at:])
	s.members[at] = m
	s.touch(m)
	s.plan(m)
	return nil
}

// followCatalog creates the replicas that meta places here and drops those that
// are no more. After a restart the catalog may at first be older than what was
// acted on: then nothing is done, or a replica that was dropped would come back
// as an empty voter.
func (s *Shard) followCatalog() {
	cat := s.meta.Catalog()
	for _, n := range cat.Nodes() {
		s.meetNode(*n)
	}
	if cat.Version() < s.seen {
		return
	}
	for _, m := range append([]*member(nil), s.members...) {
		g, there := cat.Group(m.id)
		id, here := model.ReplicaID(0), false
		if there {
			id, here = s.replicaHere(g)
			m.r.SetGroup(*g)
		}
		switch {
		case here && id == m.r.Self():
		case m.id == model.MetaGroup && !here:
			s.note("this node was removed from the cluster; stop it")
		case m.id == model.MetaGroup:
			s.cfg.Probe.Hit(probe.MetaBeginsAgain)
			s.endMember(m) // below it begins again, in one record
		default:
			s.dropMember(m, cat.Version())
		}
	}
	for _, g := range cat.Groups() {
		if _, here := s.replicaHere(g); here && s.byGroup[g.ID] == nil && !s.leaving[g.ID] {
			s.createMember(*g, cat.Version())
		}
	}
}

func (s *Shard) createMember(g model.Group, version uint64) {
	id, _ := s.replicaHere(&g)
	d := definition{g, version}
	s.seen = max(s.seen, version)
	s.journalAppend(JournalRecord{Type: RecordGroup, Group: g.ID, Payload: wire.Encode(&d)}, false)
	if err := s.addMember(d, replica.NewLoader(g, id)); err != nil {
		panic(err) // a fresh replica has nothing that could be wrong
	}
}

func (s *Shard) dropMember(m *member, version uint64) {
	s.seen = max(s.seen, version)
	s.cfg.Probe.Hit(probe.ReplicaDropped)
	s.endMember(m)
	rec := JournalRecord{Type: RecordDrop, Group: m.id, Index: version}
	if m.g.group.Kind != model.GroupPartition {
		s.journalAppend(rec, false)
		return
	}
	// The journal knows before the files go: recovery would miss them. Until then
	// no new replica of the group begins, whose segments would go with the old.
	s.leaving[m.id] = true
	s.append(rec, true, nil, func() {
		delete(s.leaving, m.id)
		s.emit(SegmentReset{Group: m.id, Remove: true})
		s.followCatalog()
	})
}

// endMember forgets a replica and answers who waits for it.
func (s *Shard) endMember(m *member) {
	m.r.Stop()
	m.gone = true
	s.dropRepair(m)
	delete(s.byGroup, m.id)
	for i := range s.members {
		if s.members[i] == m {
			s.members = append(s.members[:i:i], s.members[i+1:]...)
			break
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(s.refs)) {
		if s.refs[ref].member == m {
			s.replyRef(ref, nil, model.Reasoned(model.FailedPrecondition, model.ReasonNotLeader, retryHint,
				"node %s has no replica of group %d any more", s.cfg.Self, m.id))
		}
	}
}

// The rest is group.Host and replica.Services.

// Now implements group.Host.
func (m *member) Now() model.Mono { return m.s.now.Mono }

// Wall implements group.Host.
func (m *member) Wall() model.Wall { return m.s.now.Wall }

// WallTrusted implements group.Host.
func (m *member) WallTrusted() bool { return m.s.wallTrusted() }

// Propose implements group.Host.
func (m *member) Propose(data []byte) bool { return m.r.Propose(data) }

// Probe implements group.Prober.
func (m *member) Probe(p probe.Point) { m.s.cfg.Probe.Hit(p) }

// Note implements group.Noter.
func (m *member) Note(text string) { m.s.note("%s", text) }

// Reply implements group.Host.
func (m *member) Reply(ref group.Ref, resp call.Response, err *model.Error) {
	m.s.replyRef(ref, resp, err)
}

// ReadIndex implements group.Host.
func (m *member) ReadIndex(ref group.Ref) { m.r.ReadIndex(ref) }

// Wake implements group.Host.
func (m *member) Wake(at model.Mono) {
	m.wakeAt = at
	if m.r != nil {
		m.s.plan(m)
	}
}

// Rand implements group.Host.
func (m *member) Rand() uint64 { return m.s.random() }

// Ask implements group.Host.
func (m *member) Ask(id uint64, g model.GroupID, req call.Request) { m.s.askGroup(m, id, g, req) }

// Catalog implements group.Host.
func (m *member) Catalog() model.Catalog { return m.s.meta.Catalog() }

// Leading implements group.Host.
func (m *member) Leading() bool { return m.r != nil && m.r.Leading() }

// NotLeader implements group.Host.
func (m *member) NotLeader() *model.Error {
	err := model.Reasoned(model.FailedPrecondition, model.ReasonNotLeader, retryHint, "node %s does not lead group %d",
		m.s.cfg.Self, m.id)
	if n, ok := m.r.LeaderNode(); ok && n != m.s.cfg.Self {
		err.Leader = n
	}
	return err
}

// SegmentAppend implements group.Host.
func (m *member) SegmentAppend(b []byte) { m.s.emit(SegmentAppend{m.id, b}) }

// SegmentRoll implements group.Host.
func (m *member) SegmentRoll(at model.Offset) { m.s.emit(SegmentRoll{m.id, at}) }

// SegmentDrop implements group.Host.
func (m *member) SegmentDrop(before model.Offset) {
	m.s.emit(SegmentDrop{m.id, before})
	m.s.makeRoom()
}

// Read implements group.Host.
func (m *member) Read(id uint64, offset model.Offset, maxBytes int) {
	m.s.read(storedRead{member: m, id: id, offset: offset, maxBytes: maxBytes})
}

// ReadAt implements group.Host.
func (m *member) ReadAt(id uint64, at model.Wall) {
	m.s.read(storedRead{member: m, id: id, byTime: true, at: at})
}

// raftServices is the replica's side of a member.
type raftServices struct{ m *member }

// Now implements replica.Services.
func (v raftServices) Now() model.Mono { return v.m.s.now.Mono }

// Journal implements replica.Services.
func (v raftServices) Journal(g model.GroupID, index, term uint64, payload []byte, sync bool) uint64 {
	return v.m.s.append(JournalRecord{RecordReady, g, index, term, payload}, sync, v.m, nil)
}

// SendRaft implements replica.Services.
func (v raftServices) SendRaft(g model.GroupID, to model.Replica, msg *pb.Message) {
	v.m.s.sendRaft(g, to, msg)
}

// Touched implements replica.Services.
func (v raftServices) Touched(model.GroupID) {
	if v.m.r != nil {
		v.m.s.touch(v.m)
	}
}

// MayInstall implements replica.Services.
func (v raftServices) MayInstall(_ *replica.Replica, msg *pb.Message) bool {
	return v.m.s.mayInstall(v.m, msg)
}

// Installed implements replica.Services.
func (v raftServices) Installed(*replica.Replica) { v.m.resetAt, v.m.storedTo = nil, 0 }

// Note implements replica.Services.
func (v raftServices) Note(text string) { v.m.s.note("%s", text) }

// Reply implements replica.Services.
func (v raftServices) Reply(ref group.Ref, err *model.Error) { v.m.s.replyRef(ref, nil, err) }
