package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

// change has every replica know of a change of members, as the catalog tells it.
func (w *world) change(c model.Change) {
	c.ID = 1
	w.group.Change = c
	for _, id := range w.ids {
		if p := w.peers[id]; p.r != nil {
			p.r.SetGroup(w.group)
		}
	}
}

// carry takes the change on until the leader says what is wanted.
func (w *world) carry(want Progress) {
	w.t.Helper()
	for range 200 {
		if w.leader().r.Carry(w.group.Change, false) == want {
			return
		}
		w.leader().drain()
		w.run(50 * time.Millisecond)
	}
	p := w.leader()
	w.t.Fatalf("never got to %d; members %v", want, p.r.conf)
}

func (w *world) members(voters, learners []uint64) {
	w.t.Helper()
	w.run(300 * time.Millisecond)
	c := w.leader().r.conf
	v, l := slices.Sorted(slices.Values(c.GetVoters())), slices.Sorted(slices.Values(c.GetLearners()))
	if !slices.Equal(v, voters) || !slices.Equal(l, learners) || len(c.GetVotersOutgoing()) != 0 {
		w.t.Fatalf("members are %v", c)
	}
}

// A replica that moves to another node learns first, and is swapped in by one
// joint change: never is there one voter fewer.
func TestMove(t *testing.T) {
	w := newWorld(t, 3)
	w.fill(w.elect(1), 5)
	w.change(model.Change{Add: model.Replica{ID: 4, Node: "d", Disk: 1, Joined: true}, Remove: 3})
	lead := w.leader()
	for range 20 { // its node is not there yet: it stays a learner
		if lead.r.Carry(w.group.Change, false) != ChangePending {
			t.Fatal("done without the new replica")
		}
		lead.drain()
		w.run(50 * time.Millisecond)
	}
	w.members([]uint64{1, 2, 3}, []uint64{4})
	p := w.start(4)
	w.carry(ChangeDone)
	w.members([]uint64{1, 2, 4}, nil)
	w.fill(w.leader(), 3)
	w.agree()
	if len(p.m.applied) != 8 || !p.r.HasSelf() {
		t.Fatalf("the new replica applied %d entries", len(p.m.applied))
	}
	if w.peers[3].r.IsLeader() {
		t.Fatal("the removed replica leads")
	}
}

// A leader can be moved away, too.
func TestMoveTheLeader(t *testing.T) {
	w := newWorld(t, 3)
	w.fill(w.elect(1), 5)
	w.change(model.Change{Add: model.Replica{ID: 4, Node: "d", Disk: 1, Joined: true}, Remove: 1})
	w.start(4)
	for range 100 {
		lead := w.leader()
		if lead.r.Carry(w.group.Change, false) == ChangeDone {
			break
		}
		lead.drain()
		w.run(50 * time.Millisecond)
	}
	w.members([]uint64{2, 3, 4}, nil)
	if w.leader().id == 1 {
		t.Fatal("the removed leader leads")
	}
}

// One that is replaced on its own node is out before the new one begins: a node
// must not hold two, and a voter that lost its log must not vote.
func TestReplaceOnTheSameNode(t *testing.T) {
	w := newWorld(t, 3)
	w.fill(w.elect(1), 5)
	w.peers[3].crash()
	w.change(model.Change{Add: model.Replica{ID: 103, Node: "c", Disk: 2, Joined: true}, Remove: 3})
	w.carry(ChangeRemoved)
	w.members([]uint64{1, 2}, []uint64{103})
	for range 5 {
		if got := w.leader().r.Carry(w.group.Change, false); got != ChangeRemoved {
			t.Fatalf("goes on (%d) before meta knows", got)
		}
	}
	c := w.group.Change
	c.Removed = true
	w.change(c)
	w.start(103)
	w.carry(ChangeDone)
	w.members([]uint64{1, 2, 103}, nil)
	w.fill(w.leader(), 1)
	w.agree()
}

func TestRemoveAndAddALearner(t *testing.T) {
	w := newWorld(t, 5)
	w.fill(w.elect(1), 2)
	w.change(model.Change{Remove: 5})
	w.carry(ChangeDone)
	w.members([]uint64{1, 2, 3, 4}, nil)
	w.change(model.Change{Add: model.Replica{ID: 6, Node: "f", Disk: 1, Joined: true, Learner: true}})
	w.start(6)
	w.carry(ChangeDone)
	w.members([]uint64{1, 2, 3, 4}, []uint64{6})
}

// Only one change at a time, and none by who does not lead.
func TestChangesWait(t *testing.T) {
	w := newWorld(t, 3)
	p := w.elect(1)
	c := model.Change{ID: 1, Remove: 3}
	if w.peers[2].r.Carry(c, false) != ChangePending || w.peers[2].r.confIndex != 0 {
		t.Fatal("a follower proposes changes")
	}
	if p.r.Carry(c, false); !p.r.changing() {
		t.Fatal("nothing was proposed")
	}
	p.drain()
	at := p.r.confIndex
	if at == 0 || !p.r.changing() {
		t.Fatal("nothing was proposed")
	}
	if p.r.Carry(c, false) != ChangePending || p.r.confIndex != at {
		t.Fatal("a second change while one is under way")
	}
}

func TestTransferWaitsForAFollowerThatIsUpToDate(t *testing.T) {
	w := newWorld(t, 3)
	p := w.elect(1)
	w.fill(p, 3)
	if p.r.TransferTo(1) || p.r.TransferTo(9) || w.peers[2].r.TransferTo(3) {
		t.Fatal("handed over to itself, to nobody, or by a follower")
	}
	p.r.Propose([]byte{1})
	if p.r.TransferTo(2) {
		t.Fatal("handed over with a proposal under way")
	}
	w.run(200 * time.Millisecond)
	if !p.r.TransferTo(2) || p.r.Propose([]byte{2}) {
		t.Fatal("not handed over, or still taking proposals")
	}
	p.drain()
	w.run(time.Second)
	if !w.peers[2].r.Leading() {
		t.Fatal("the other does not lead")
	}
}

// A change whose new folder is no more is given up, once raft has applied that it
// is no member: until then another leader might be promoting it.
func TestGiveUp(t *testing.T) {
	for _, began := range []bool{false, true} {
		w := newWorld(t, 3)
		p := w.elect(1)
		w.fill(p, 3)
		w.change(model.Change{Add: model.Replica{ID: 4, Node: "d", Disk: 1, Joined: true}, Remove: 3})
		if began {
			p.r.Carry(w.group.Change, false)
			p.drain()
			w.members([]uint64{1, 2, 3}, []uint64{4})
		}
		if p.r.Carry(w.group.Change, true) != ChangePending || p.r.Carry(w.group.Change, true) != ChangePending {
			t.Fatal("given up before it is applied")
		}
		p.drain()
		w.run(300 * time.Millisecond)
		if p.r.Carry(w.group.Change, true) != ChangeGivenUp {
			t.Fatal("not given up")
		}
		w.members([]uint64{1, 2, 3}, nil)
	}
}
