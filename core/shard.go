package core

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/gateway"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/meta"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// Shard is the single-threaded machine; see doc.go for the contract.
type Shard struct {
	cfg     Config
	now     model.Instant
	self    model.Incarnation
	rng     uint64
	effects []Effect

	founding *meta.Founding // nil: this folder is not part of a cluster yet
	foundSeq uint64         // journal sequence of the founding, while under way
	backs    uint64         // the cluster this node would found with all its peers; 0: some are missing
	meta     *meta.Machine
	version  uint64 // catalog version last looked at
	seen     uint64 // newest catalog version that replicas were created or dropped by
	inner    uint64 // requests this shard has made of its own gateway

	groupAsks map[uint64]groupAsk // those made for groups here, by request
	askDone   []groupAsk          // answered ones, on their way back

	members []*member              // by group id
	leaving map[model.GroupID]bool // partitions dropped here, not yet durably
	byGroup map[model.GroupID]*member
	dirty   []*member
	alarms  alarms
	beatAt  model.Mono

	peers   []*peer // by name, without this node
	helloAt model.Mono
	// When meta is told that this node serves elsewhere than the catalog says.
	announceAt model.Mono
	started    model.Mono

	gate    *gateway.Gateway
	answers []answer
	lastRef group.Ref
	refs    map[group.Ref]origin
	asked   map[askKey]group.Ref

	lives   lives
	livesAt model.Mono // when they go to the journal
	damage  damageCount
	scrub   scrub
	refused string // why this folder must not be used any more; "": it may

	journal  journalState
	lastRead uint64
	reads    map[uint64]storedRead // by effect id
	syncs    map[uint64]*member    // segment syncs under way, by effect id
	lastSync uint64
	copies   map[uint64]*member // asks of copies under way
	lastCopy uint64
	diskLow  bool
	behind   bool       // with writing segments
	woken    model.Mono // last Wake emitted
	touched  []model.GroupID
}

// answer is a group's answer on its way to this node's own gateway.
type answer struct {
	ask  uint64
	from model.NodeID
	resp call.Response
	err  *model.Error
}

// origin is where a group's request came from.
type origin struct {
	node   model.NodeID // this node: the gateway's ask
	ask    uint64
	member *member
}

type askKey struct {
	node model.NodeID
	ask  uint64
}

// New makes a shard that waits for its Start event.
func New(cfg Config) *Shard {
	cfg = cfg.WithDefaults()
	s := &Shard{cfg: cfg, rng: cfg.Seed, byGroup: map[model.GroupID]*member{}, beatAt: model.Never,
		helloAt: model.Never, announceAt: model.Never, refs: map[group.Ref]origin{}, asked: map[askKey]group.Ref{},
		reads: map[uint64]storedRead{}, syncs: map[uint64]*member{},
		groupAsks: map[uint64]groupAsk{}, copies: map[uint64]*member{}, leaving: map[model.GroupID]bool{}}
	s.journal.markAt, s.livesAt = model.Never, model.Never
	s.gate = gateway.New(gateway.Config{TryTimeout: cfg.Timing.TryTimeout, LeaderWait: cfg.Timing.LeaderWait,
		MaxRequests: cfg.Limits.Requests, Choice: cfg.Choice, Probe: cfg.Probe}, gateHost{s})
	for _, n := range cfg.Peers {
		if n.ID != cfg.Self {
			s.peers = append(s.peers, &peer{node: n})
		}
	}
	slices.SortFunc(s.peers, func(a, b *peer) int { return compare(a.node.ID, b.node.ID) })
	return s
}

func compare[T ~string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Step takes one event up at the given instant and returns what it asks of the
// host, in order. The returned slice is valid until the next step.
func (s *Shard) Step(now model.Instant, ev Event) []Effect {
	s.now = now
	clear(s.effects)
	s.effects = s.effects[:0]
	s.touched = s.touched[:0]
	if s.refused != "" {
		return nil
	}
	switch ev := ev.(type) {
	case Start:
		s.start(&ev.Recovered)
	case Tick:
	case Packet:
		s.packet(ev.From, ev.Data)
	case PeerDown:
		s.peerDown(ev.Peer)
	case JournalDone:
		s.journalDone(ev.Upto)
	case SegmentDone:
		s.segmentDone(ev)
	case CheckpointDone:
		s.checkpointDone(ev)
	case SegmentsBehind:
		s.behind = ev.Behind
	case DiskSpace:
		s.diskSpace(ev.Free)
	case ReadDone:
		s.readDone(&ev)
	case RepairDone:
		s.repairDone(&ev)
	case Request:
		s.gate.Request(ev.ID, ev.Call, ev.Deadline)
	case Cancel:
		s.gate.Cancel(ev.ID)
	default:
		panic(fmt.Sprintf("event %T is unknown", ev))
	}
	if s.refused != "" {
		// Nothing that this folder would say or promise counts any more.
		return append(s.effects[:0], Note{s.refused}, Refuse{s.refused})
	}
	s.tick()
	s.settle()
	s.maybeCheckpoint()
	s.flush()
	s.wake()
	return s.effects
}

func (s *Shard) emit(e Effect) { s.effects = append(s.effects, e) }

// settle drains groups, catalog and answers until nothing is left to do. Each
// answer and each proposal is finite work, so it ends.
func (s *Shard) settle() {
	for {
		switch {
		case len(s.dirty) > 0:
			m := takeNext(&s.dirty, s.cfg.Choice.Rare(choice.GroupsReversed))
			m.dirty = false
			if m.gone {
				continue
			}
			m.r.Drain()
			m.settleReset()
			s.touched = append(s.touched, m.id)
			s.plan(m)
		case s.catalogMoved():
		case len(s.askDone) > 0:
			a := s.askDone[0]
			s.askDone = s.askDone[1:]
			a.done(s)
		case len(s.answers) > 0:
			a := takeNext(&s.answers, s.cfg.Choice.Rare(choice.AnswersReversed))
			s.gate.Answer(a.ask, a.from, a.resp, a.err)
		default:
			s.dirty, s.answers, s.askDone = nil, nil, nil
			return
		}
	}
}

// takeNext takes the first of a list, or the last: their order promises nothing.
func takeNext[T any](list *[]T, last bool) T {
	if n := len(*list) - 1; last && n > 0 {
		v := (*list)[n]
		*list = (*list)[:n]
		return v
	}
	v := (*list)[0]
	*list = (*list)[1:]
	return v
}

// catalogMoved follows meta: groups to create and drop here, then everyone who
// waits for news.
func (s *Shard) catalogMoved() bool {
	if s.meta == nil || s.meta.Catalog().Version() == s.version {
		return false
	}
	s.version = s.meta.Catalog().Version()
	s.followCatalog()
	for _, m := range s.members {
		if m.r.Leading() {
			m.machine.CatalogChanged(m)
			s.touch(m)
		}
	}
	s.gate.CatalogChanged()
	return true
}

// tick carries out everything whose moment has come.
func (s *Shard) tick() {
	now := s.now.Mono
	if now >= s.beatAt {
		s.beat()
	}
	for len(s.alarms) > 0 && s.alarms[0].at <= now {
		a := heap.Pop(&s.alarms).(alarm)
		m := a.member
		if m.gone || m.alarm != a.at {
			continue
		}
		m.alarm = model.Never
		m.r.Tick()
		s.giveUpStranded(m)
		if now >= m.wakeAt {
			m.wakeAt = model.Never
			m.machine.Tick(m)
			s.touch(m)
		}
		if m.copying != nil && now >= m.copying.retryAt {
			s.cfg.Probe.Hit(probe.CopyTriedAgain)
			s.copyMore(m)
		}
		if m.repair != nil && now >= m.repair.retryAt {
			s.askRepair(m)
		}
		s.plan(m)
	}
	if now >= s.helloAt {
		s.hello()
	}
	if now >= s.announceAt {
		s.announce()
	}
	s.journalTick()
	if now >= s.livesAt {
		s.saveLives()
	}
	if now >= s.scrub.at {
		s.scrubMore()
	}
	s.gate.Tick()
}

// beat ticks leaders. All of a node's groups beat together, so that heartbeats
// to one peer share a packet.
func (s *Shard) beat() {
	s.beatAt = model.Never
	for _, m := range s.members {
		if m.r.IsLeader() {
			m.r.Beat()
			s.balance(m)
			s.carry(m)
			if rs := m.r.Group().Replicas; s.cfg.Choice.Rare(choice.HandOver) {
				m.r.TransferTo(rs[s.random()%uint64(len(rs))].ID)
			}
			s.beatAt = s.now.Mono.Add(s.cfg.Timing.Heartbeat)
		}
	}
}

// balanceAfter is how long a replica leads before it hands over to the preferred
// leader: long enough that a node that comes and goes does not drag leadership along.
const balanceAfter = 10 * time.Second

// balance hands leadership to the replica that placement prefers, once that is
// caught up and nothing is under way here.
func (s *Shard) balance(m *member) {
	preferred := m.r.Group().Replicas[0]
	switch {
	case !m.r.Leading() || preferred.ID == m.r.Self():
		m.ledSince = s.now.Mono
	case s.now.Mono.Sub(m.ledSince) >= balanceAfter:
		m.ledSince = s.now.Mono
		m.r.TransferTo(preferred.ID)
	}
}

// plan sets a member's alarm to the earliest of what it waits for.
func (s *Shard) plan(m *member) {
	if m.gone {
		return
	}
	if s.beatAt == model.Never && m.r.IsLeader() {
		s.beatAt = s.now.Mono.Add(s.cfg.Timing.Heartbeat)
	}
	at := min(m.r.Deadline(), m.wakeAt)
	if m.copying != nil {
		at = min(at, m.copying.retryAt)
	}
	if m.repair != nil {
		at = min(at, m.repair.retryAt)
	}
	if at < m.alarm {
		m.alarm = at
		heap.Push(&s.alarms, alarm{at, m})
	}
}

// wake asks for a Tick at the next moment that matters.
func (s *Shard) wake() {
	at := min(s.beatAt, s.helloAt, s.gate.Next(), s.journalNext(), s.livesAt, s.scrub.at, s.announceAt)
	for len(s.alarms) > 0 && (s.alarms[0].member.gone || s.alarms[0].member.alarm != s.alarms[0].at) {
		heap.Pop(&s.alarms) // overtaken by a later plan
	}
	if len(s.alarms) > 0 {
		at = min(at, s.alarms[0].at)
	}
	if at != s.woken {
		s.woken = at
		s.emit(Wake{at})
	}
	if at <= s.now.Mono {
		s.woken = model.Never // it fires at once; the next step asks again
	}
}

func (s *Shard) touch(m *member) {
	if !m.dirty && !m.gone {
		m.dirty = true
		s.dirty = append(s.dirty, m)
	}
}

// random is splitmix64 over the node's seed.
func (s *Shard) random() uint64 {
	s.rng += 0x9e3779b97f4a7c15
	z := s.rng
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// alarm is a moment at which a member wants to be looked at. A member has one
// that counts (member.alarm); others in the heap are overtaken.
type alarm struct {
	at     model.Mono
	member *member
}

type alarms []alarm

func (a alarms) Len() int { return len(a) }
func (a alarms) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].member.id < a[j].member.id
}
func (a alarms) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)   { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	last := (*a)[len(*a)-1]
	(*a)[len(*a)-1] = alarm{}
	*a = (*a)[:len(*a)-1]
	return last
}
