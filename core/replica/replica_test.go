package replica

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

func votes(w *world) (n int) {
	for _, m := range w.sent {
		if m.GetType() == pb.MsgVote {
			n++
		}
	}
	return n
}

// A candidate's requests wait for its term, its vote and all of its log.
func TestVoteRequestsWaitForTheDisk(t *testing.T) {
	w := newWorld(t, 3)
	p := w.peers[1]
	w.settle()
	_ = p.r.rn.Campaign()
	p.touched = true
	p.drain()
	for range 20 { // pre-votes come back; the others' disks are fast
		w.deliver()
		w.peers[2].sync(-1)
		w.peers[3].sync(-1)
		if len(p.journal) > p.durable && p.r.hard.Vote == p.id {
			break
		}
		if p.r.hard.Vote != p.id {
			p.sync(-1)
		}
	}
	if p.r.hard.Vote != p.id || votes(w) != 0 {
		t.Fatalf("vote %d under way, %d requests sent", p.r.hard.Vote, votes(w))
	}
	p.sync(-1)
	if votes(w) != 2 {
		t.Fatalf("%d requests sent once it is durable", votes(w))
	}
}

// Who won an election does not lead before an entry of its own term is applied.
func TestOwnTermGate(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(1)
	w.fill(w.peers[1], 3)
	p := w.peers[2]
	_ = p.r.rn.Campaign()
	p.touched = true
	p.drain()
	w.lose = func(m *pb.Message) bool { // the others' acks of entries do not arrive
		return m.GetTo() == 2 && m.GetType() == pb.MsgAppResp
	}
	w.peers[1].crash()
	w.run(time.Second)
	if !p.r.IsLeader() {
		w.elect(2)
	}
	if p.r.Leading() || p.m.starts != 0 || p.r.Propose([]byte{9}) {
		t.Fatalf("leads %v, started %d times, without an entry of its term applied", p.r.Leading(), p.m.starts)
	}
	p.r.ReadIndex(5)
	if p.replies[5] == nil {
		t.Fatal("a read was taken without the gate")
	}
	w.lose = nil
	w.run(time.Second)
	if !p.r.Leading() || p.m.starts != 1 {
		t.Fatalf("leads %v, started %d times", p.r.Leading(), p.m.starts)
	}
}

// What raft drops as a whole is void; the machine starts afresh.
func TestDroppedProposalsReset(t *testing.T) {
	w := newWorld(t, 3)
	p := w.elect(1)
	w.fill(p, 2)
	p.r.rn.TransferLeader(2) // behind the replica's back
	if !p.r.Propose([]byte{8}) {
		t.Fatal("not taken")
	}
	p.r.ReadIndex(6)
	p.r.Drain()
	if p.m.stops != 1 || p.m.starts != 2 || !p.r.leading || len(p.r.proposals) != 0 || p.r.uncommitted != 0 {
		t.Fatalf("stopped %d, started %d times, %d proposals, %d bytes", p.m.stops, p.m.starts, len(p.r.proposals),
			p.r.uncommitted)
	}
	if p.replies[6] == nil {
		t.Fatal("the read that waited was forgotten")
	}
	w.run(2 * time.Second)
	w.agree()
	if strings.ContainsRune(string(w.peers[2].m.applied), 8) {
		t.Fatal("a dropped proposal was applied")
	}
}

func TestProposalsAreBounded(t *testing.T) {
	w := newWorld(t, 3)
	w.cfg.UncommittedBytes = 100
	w.peers[1].crash()
	p := w.start(1)
	w.elect(1)
	w.lose = func(m *pb.Message) bool { return m.GetFrom() == 1 && m.GetType() == pb.MsgApp }
	if !p.r.Propose(make([]byte, 1000)) {
		t.Fatal("one entry must be taken however large")
	}
	if p.r.Propose([]byte{1}) {
		t.Fatal("taken beyond the limit")
	}
}

func TestLeadershipLostAnswersReads(t *testing.T) {
	w := newWorld(t, 3)
	p := w.elect(1)
	w.lose = func(m *pb.Message) bool { return m.GetTo() == 1 || m.GetFrom() == 1 }
	p.r.ReadIndex(1)
	p.r.ReadIndex(2)
	p.drain()
	w.run(3 * time.Second)
	if p.r.Leading() || p.replies[1] == nil || p.replies[2] == nil || len(p.m.indexes) != 0 {
		t.Fatalf("leads %v, replies %v, done %v", p.r.Leading(), p.replies, p.m.indexes)
	}
}

// Reads that come while a round is under way wait for the next: the round began
// before they came.
func TestReadsShareRounds(t *testing.T) {
	w := newWorld(t, 3)
	p := w.elect(1)
	for ref := range group.Ref(10) {
		p.r.ReadIndex(ref)
	}
	p.r.Drain()
	p.r.ReadIndex(10)
	p.r.Drain()
	if len(p.r.reads.running) != 10 || len(p.r.reads.waiting) != 1 {
		t.Fatalf("%d run, %d wait", len(p.r.reads.running), len(p.r.reads.waiting))
	}
	w.run(200 * time.Millisecond)
	if len(p.m.indexes) != 11 || len(p.replies) != 0 {
		t.Fatalf("done: %v, refused: %v", p.m.indexes, p.replies)
	}
}

// One that missed more than the window holds is sent a snapshot; what is under
// way when it crashes comes again.
func TestSnapshot(t *testing.T) {
	w := newWorld(t, 3)
	w.cfg.WindowEntries = 4
	for _, id := range w.ids {
		w.peers[id].crash()
		w.start(id)
	}
	p := w.elect(1)
	w.fill(p, 2)
	w.peers[3].crash()
	w.fill(p, 20)
	late := w.start(3)
	late.mayNot = true
	w.run(2 * time.Second)
	if len(late.kept) == 0 || late.r.Applied() > 5 {
		t.Fatalf("%d snapshots came, applied %d", len(late.kept), late.r.Applied())
	}
	if got := len(late.kept); got > 3 {
		t.Fatalf("%d snapshots in two seconds", got)
	}
	late.r.Install(late.kept[len(late.kept)-1])
	late.drain()
	if a, _, ok := late.r.Checkpoint(); ok {
		t.Fatalf("a checkpoint at %d while a snapshot is not durable", a.Index)
	}
	w.run(time.Second)
	w.agree()
	if len(late.m.applied) != 22 {
		t.Fatalf("applied %d entries", len(late.m.applied))
	}
	late.crash()
	late = w.start(3) // from a journal with the snapshot in it
	w.run(time.Second)
	w.fill(w.leader(), 1)
	w.agree()
	if len(late.m.applied) != 23 {
		t.Fatalf("applied %d entries after a restart", len(late.m.applied))
	}
}

func (w *world) leader() *peer {
	w.t.Helper()
	for range 100 {
		for _, id := range w.ids {
			if p := w.peers[id]; p.r != nil && p.r.Leading() {
				return p
			}
		}
		w.run(100 * time.Millisecond)
	}
	w.t.Fatal("nobody leads")
	return nil
}

// The base of a checkpoint holds what is still under way to the disk, as the
// journal's FIFO will have it.
func TestCheckpointHoldsWhatIsUnderWay(t *testing.T) {
	w := newWorld(t, 3)
	p := w.elect(1)
	w.fill(p, 3)
	p.sync(-1)
	durable := p.r.log.last()
	p.propose(7)
	p.propose(8)
	a, payload, ok := p.r.Checkpoint()
	if !ok || a.Index != p.r.Applied() {
		t.Fatalf("%v at %d", ok, a.Index)
	}
	l := NewLoader(w.group, 1)
	l.Checkpoint(a)
	if err := l.Base(payload); err != nil {
		t.Fatal(err)
	}
	if err := l.Finish(); err != nil {
		t.Fatal(err)
	}
	if l.last() != durable+2 || l.hard.Term != p.r.hard.Term || l.hard.Vote != 1 {
		t.Fatalf("log to %d, hard state %+v", l.last(), l.hard)
	}
}

// Old manifest, both generations: the base comes over the log it was made of.
func TestBaseOverAnOlderGeneration(t *testing.T) {
	w := newWorld(t, 1)
	p := w.elect(1)
	w.fill(p, 5)
	_, payload, _ := p.r.Checkpoint()
	l := NewLoader(w.group, 1)
	for _, rec := range p.journal {
		if err := l.Ready(rec); err != nil {
			t.Fatal(err)
		}
	}
	last := l.last()
	if err := l.Base(payload); err != nil {
		t.Fatal(err)
	}
	if err := l.Finish(); err != nil || l.last() != last || l.applied != 1 {
		t.Fatalf("%v, log (%d, %d], before (1, %d]", err, l.applied, l.last(), last)
	}
	// The same base over a folder that lost the generation before it.
	if err := NewLoader(w.group, 1).Base(payload); err == nil {
		t.Fatal("a base above the log was taken")
	}
}

// A leader that counts on entries this log does not hold is told of, not obeyed.
func TestALostTailIsSaid(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(1)
	w.fill(w.peers[1], 3)
	p := w.peers[2]
	commit, term, from, to := p.r.log.last()+5, p.r.term, uint64(1), uint64(2)
	for range 3 {
		p.r.Step(&pb.Message{Type: pb.MsgHeartbeat.Enum(), From: &from, To: &to, Term: &term, Commit: &commit})
	}
	if len(p.notes) != 1 || !strings.Contains(p.notes[0], "durable data was lost") {
		t.Fatalf("notes: %q", p.notes)
	}
}

// A vote that was granted keeps the granter from campaigning at once; so does any
// word of a leader.
func TestTheClockIsRearmed(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(1)
	w.run(10 * time.Second)
	p := w.peers[1]
	if !p.r.IsLeader() || p.r.term > 4 {
		t.Fatalf("role %v in term %d after quiet seconds", p.r.role, p.r.term)
	}
	if d := w.peers[2].r.Deadline(); d < w.now.Add(200*time.Millisecond) {
		t.Fatalf("a follower's clock is due in %v", d.Sub(w.now))
	}
	p.crash()
	w.run(2 * time.Second)
	if w.peers[2].r.role != raft.StateLeader && w.peers[3].r.role != raft.StateLeader {
		t.Fatal("nobody leads two seconds after the leader died")
	}
}

func TestFromKnowsReplicasByNodeAndFolder(t *testing.T) {
	w := newWorld(t, 3)
	r := w.peers[1].r
	for _, c := range []struct {
		replica uint64
		node    model.NodeID
		disk    model.DiskID
		want    bool
	}{
		{2, "b", 1, true}, {2, "b", 2, false}, {2, "c", 1, false}, // wiped; another's name
		{9, "d", 4, true}, {9, "d", 5, false}, // joined after this catalog; then it is known
		{0, "d", 4, false}, {raft.LocalAppendThread, "d", 4, false}, {raft.LocalApplyThread, "d", 4, false},
	} {
		if r.From(c.replica, c.node, c.disk) != c.want {
			t.Errorf("replica %d from %s, disk %d: not %v", c.replica, c.node, c.disk, c.want)
		}
	}
	for id := range uint64(2 * maxPeers) {
		r.From(100+id, "x", 1)
	}
	if len(r.peers) > maxPeers {
		t.Fatalf("%d replicas are remembered", len(r.peers))
	}
}
