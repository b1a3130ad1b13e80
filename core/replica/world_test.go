package replica

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// world runs replicas of one group without a shard: time, packets and durability
// move only when the test says so. Every message that leaves is held against
// what is durable at its sender.
type world struct {
	t     *testing.T
	now   model.Mono
	group model.Group
	peers map[uint64]*peer
	ids   []uint64
	sent  []*pb.Message
	lose  func(*pb.Message) bool
	cfg   Config
}

// peer is one replica with its folder, and the replica's Services.
type peer struct {
	w       *world
	id      uint64
	r       *Replica // nil: down
	m       *machine
	journal [][]byte
	durable int
	touched bool
	mayNot  bool // install snapshots
	kept    []*pb.Message
	replies map[group.Ref]*model.Error
	notes   []string
}

// host is what a fake machine needs of its Host.
type host struct{ group.Host }

func (host) NotLeader() *model.Error {
	return model.Reasoned(model.FailedPrecondition, model.ReasonNotLeader, 0, "not here")
}

// machine keeps the entries it applied.
type machine struct {
	group.Machine
	applied       []byte // of each entry its first byte
	starts, stops int
	indexes       []group.Ref
}

func (m *machine) Apply(_ group.Host, e group.Entry)          { m.applied = append(m.applied, e.Data[0]) }
func (m *machine) Snapshot() []byte                           { return slices.Clone(m.applied) }
func (m *machine) Restore(b []byte) error                     { m.applied = slices.Clone(b); return nil }
func (m *machine) LeaderStart(group.Host)                     { m.starts++ }
func (m *machine) LeaderStop(group.Host)                      { m.stops++ }
func (m *machine) ReadIndexDone(_ group.Host, ref group.Ref)  { m.indexes = append(m.indexes, ref) }
func (m *machine) Handle(group.Host, group.Ref, call.Request) {}

func newWorld(t *testing.T, voters int) *world {
	w := &world{t: t, now: 1, group: model.Group{ID: 7, Kind: model.GroupCoordinator}, peers: map[uint64]*peer{},
		cfg: Config{Seed: 1, Heartbeat: 75 * time.Millisecond, Election: 300 * time.Millisecond,
			ReadIndexWait: 2 * time.Second,
			WindowEntries: 100, WindowBytes: 1 << 20, InflightMessages: 64, InflightBytes: 1 << 20, UncommittedBytes: 1 << 20}}
	for i := range voters {
		id := model.ReplicaID(i + 1)
		w.group.Replicas = append(w.group.Replicas, model.Replica{ID: id, Node: node(uint64(id)), Disk: 1})
		w.group.Founders = append(w.group.Founders, id)
	}
	for _, r := range w.group.Replicas {
		w.start(uint64(r.ID))
	}
	return w
}

func node(id uint64) model.NodeID { return model.NodeID(rune('a' + id%100 - 1)) }

// start opens a replica from what is durable of its journal.
func (w *world) start(id uint64) *peer {
	p := w.peers[id]
	if p == nil {
		p = &peer{w: w, id: id}
		w.peers[id] = p
		w.ids = append(w.ids, id)
	}
	p.journal = p.journal[:p.durable]
	l := NewLoader(w.group, model.ReplicaID(id))
	for _, rec := range p.journal {
		if err := l.Ready(rec); err != nil {
			w.t.Fatalf("replica %d: %v", id, err)
		}
	}
	if err := l.Finish(); err != nil {
		w.t.Fatalf("replica %d: %v", id, err)
	}
	cfg := w.cfg
	cfg.Group, cfg.Self = w.group, model.ReplicaID(id)
	p.m, p.replies = &machine{}, map[group.Ref]*model.Error{}
	r, err := New(cfg, l, p.m, p, host{})
	if err != nil {
		w.t.Fatal(err)
	}
	p.r = r
	r.Drain()
	return p
}

func (p *peer) Now() model.Mono { return p.w.now }
func (p *peer) Journal(_ model.GroupID, _, _ uint64, payload []byte, _ bool) uint64 {
	p.journal = append(p.journal, payload)
	return uint64(len(p.journal))
}
func (p *peer) Touched(model.GroupID)                 { p.touched = true }
func (p *peer) Installed(*Replica)                    {}
func (p *peer) Note(text string)                      { p.notes = append(p.notes, text) }
func (p *peer) Reply(ref group.Ref, err *model.Error) { p.replies[ref] = err }
func (p *peer) MayInstall(_ *Replica, m *pb.Message) bool {
	if p.mayNot {
		p.kept = append(p.kept, m)
	}
	return !p.mayNot
}

// SendRaft checks the promise in a message, and sends it as the wire would.
func (p *peer) SendRaft(_ model.GroupID, to model.Replica, m *pb.Message) {
	d := p.r.durable
	switch {
	case m.GetType() == pb.MsgVote && (d.Term < m.GetTerm() || d.Term == m.GetTerm() && d.Vote != p.id):
		p.w.t.Fatalf("%d asks for votes in term %d before that is durable: %+v", p.id, m.GetTerm(), d)
	case m.GetType() == pb.MsgVoteResp && !m.GetReject() && (d.Term < m.GetTerm() ||
		d.Term == m.GetTerm() && d.Vote != m.GetTo()):
		p.w.t.Fatalf("%d votes for %d in term %d before that is durable: %+v", p.id, m.GetTo(), m.GetTerm(), d)
	case m.GetType() == pb.MsgAppResp && !m.GetReject() && m.GetIndex() > p.r.log.last():
		p.w.t.Fatalf("%d acknowledges entry %d; durable is %d", p.id, m.GetIndex(), p.r.log.last())
	}
	if uint64(to.ID) != m.GetTo() {
		p.w.t.Fatalf("message for %d goes to %d", m.GetTo(), to.ID)
	}
	var out Message
	if err := wire.Decode(wire.Encode(&Message{m}), &out); err != nil {
		p.w.t.Fatal(err)
	}
	p.w.sent = append(p.w.sent, out.Message)
}

func (p *peer) drain() {
	if p.r != nil && p.touched {
		p.touched = false
		p.r.Drain()
	}
}

// sync makes the first n records under way durable; all with n < 0.
func (p *peer) sync(n int) {
	if p.r == nil || p.durable == len(p.journal) {
		return
	}
	if n < 0 || p.durable+n > len(p.journal) {
		n = len(p.journal) - p.durable
	}
	p.durable += n
	p.r.Durable(uint64(p.durable))
	p.drain()
}

func (p *peer) crash() { p.r = nil }

// deliver hands over what was sent, in order.
func (w *world) deliver() {
	for len(w.sent) > 0 {
		m := w.sent[0]
		w.sent = w.sent[1:]
		w.hand(m)
	}
}

func (w *world) hand(m *pb.Message) {
	if p := w.peers[m.GetTo()]; p != nil && p.r != nil && (w.lose == nil || !w.lose(m)) {
		p.r.Step(m)
		p.drain()
	}
}

// run lets time pass, with everything durable at once.
func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now < end; w.now = w.now.Add(5 * time.Millisecond) {
		beat := w.now/model.Mono(5*time.Millisecond)%15 == 0
		for _, id := range w.ids {
			if p := w.peers[id]; p.r != nil {
				p.r.Tick()
				if beat {
					p.r.Beat()
				}
				p.drain()
			}
		}
		w.settle()
	}
}

func (w *world) settle() {
	for range 100 {
		w.deliver()
		for _, id := range w.ids {
			w.peers[id].sync(-1)
		}
		if len(w.sent) == 0 {
			return
		}
	}
}

// elect has a replica lead.
func (w *world) elect(id uint64) *peer {
	w.t.Helper()
	p := w.peers[id]
	for range 50 {
		if p.r.Leading() {
			return p
		}
		_ = p.r.rn.Campaign()
		p.touched = true
		p.drain()
		w.run(400 * time.Millisecond)
	}
	w.t.Fatalf("%d does not get to lead", id)
	return nil
}

func (p *peer) propose(b byte) bool {
	ok := p.r.Propose([]byte{b})
	p.drain()
	return ok
}

// fill has the leader commit n entries.
func (w *world) fill(p *peer, n int) {
	w.t.Helper()
	for i := range n {
		if !p.propose(byte(i)) {
			w.t.Fatal("not proposed")
		}
		w.settle()
	}
	w.run(100 * time.Millisecond)
}

// agree checks that what replicas applied are prefixes of each other.
func (w *world) agree() {
	w.t.Helper()
	var longest []byte
	for _, id := range w.ids {
		if p := w.peers[id]; p.r != nil && len(p.m.applied) > len(longest) {
			longest = p.m.applied
		}
	}
	for _, id := range w.ids {
		if p := w.peers[id]; p.r != nil && !slices.Equal(p.m.applied, longest[:len(p.m.applied)]) {
			w.t.Fatalf("%d applied %v, another %v", id, p.m.applied, longest)
		}
	}
}

// Crashes, lost, doubled and late packets, and journals that are durable at some
// later time: no promise goes too early, no two replicas differ, and what a
// leader applied is never lost.
func TestRandomSchedules(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t, 3)
		w.cfg.WindowEntries = 8
		var promised []byte // the longest that a leader applied
		next := byte(0)
		for range 1500 {
			w.now = w.now.Add(time.Duration(rng.IntN(20)) * time.Millisecond)
			p := w.peers[w.ids[rng.IntN(3)]]
			switch x := rng.IntN(100); {
			case x < 45 && len(w.sent) > 0:
				i := 0
				if rng.IntN(8) == 0 {
					i = rng.IntN(len(w.sent)) // overtakes
				}
				m := w.sent[i]
				if rng.IntN(20) != 0 { // else it comes again
					w.sent = slices.Delete(w.sent, i, i+1)
				}
				w.hand(m)
			case x < 70:
				p.sync(1 + rng.IntN(3))
			case x < 80 && p.r != nil:
				p.r.Tick()
				p.drain()
			case x < 90 && p.r != nil:
				p.r.Beat()
				p.drain()
			case x < 97 && p.r != nil:
				if p.propose(next) {
					next++
				}
			case x < 98:
				if p.r != nil {
					p.crash()
					// What is under way to and from it goes with its streams.
					w.sent = slices.DeleteFunc(w.sent, func(m *pb.Message) bool { return m.GetTo() == p.id || m.GetFrom() == p.id })
				}
			case p.r == nil:
				w.start(p.id)
			}
			if p.r != nil && p.r.Leading() && len(p.m.applied) > len(promised) {
				promised = slices.Clone(p.m.applied)
			}
			w.agree()
		}
		for _, id := range w.ids {
			if w.peers[id].r == nil {
				w.start(id)
			}
		}
		w.run(5 * time.Second)
		w.agree()
		for _, id := range w.ids {
			if got := w.peers[id].m.applied; len(got) < len(promised) || !slices.Equal(got[:len(promised)], promised) {
				t.Fatalf("seed %d: %d ends with %v; %v was promised", seed, id, got, promised)
			}
		}
		if !slices.ContainsFunc(w.ids, func(id uint64) bool { return w.peers[id].r.IsLeader() }) {
			t.Fatalf("seed %d: nobody leads in the end", seed)
		}
	}
}
