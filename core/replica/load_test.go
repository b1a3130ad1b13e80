package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// entries are those of [from, to] in one term.
func entries(term, from, to uint64) (es []*pb.Entry) {
	for i := from; i <= to; i++ {
		es = append(es, newEntry(pb.EntryNormal, term, i, []byte{byte(term), byte(i)}))
	}
	return es
}

func TestWindow(t *testing.T) {
	var w window
	w.reset(10, 2)
	w.append(entries(3, 11, 30))
	w.evict(25, 8, 1<<20)
	if w.first != 23 || w.last() != 30 {
		t.Fatalf("[%d, %d]", w.first, w.last())
	}
	for i, want := range map[uint64]uint64{22: 3, 23: 3, 30: 3} {
		if got, err := w.Term(i); err != nil || got != want {
			t.Fatalf("term of %d: %d, %v", i, got, err)
		}
	}
	if _, err := w.Term(21); !errors.Is(err, raft.ErrCompacted) {
		t.Fatal(err)
	}
	if _, err := w.Term(31); !errors.Is(err, raft.ErrUnavailable) {
		t.Fatal(err)
	}
	if _, err := w.Entries(22, 24, 1<<20); !errors.Is(err, raft.ErrCompacted) {
		t.Fatal(err)
	}
	if _, err := w.Entries(24, 32, 1<<20); !errors.Is(err, raft.ErrUnavailable) {
		t.Fatal(err)
	}
	if es, err := w.Entries(24, 31, 1); err != nil || len(es) != 1 {
		t.Fatalf("%d entries, %v", len(es), err) // one however small the limit
	}
	// What is not applied is never evicted, however full the window.
	w.evict(25, 0, 0)
	if w.first != 26 {
		t.Fatalf("first is %d", w.first)
	}
	// A new tail replaces the old one, without touching what raft still holds.
	held, _ := w.Entries(26, 31, 1<<20)
	w.append(entries(4, 28, 29))
	if w.last() != 29 || held[2].GetTerm() != 3 || w.entries[2].GetTerm() != 4 {
		t.Fatalf("last %d, held %d, kept %d", w.last(), held[2].GetTerm(), w.entries[2].GetTerm())
	}
	bytes := 0
	for _, e := range w.entries {
		bytes += entrySize(e)
	}
	if w.bytes != bytes {
		t.Fatalf("counts %d bytes, holds %d", w.bytes, bytes)
	}
	for _, hole := range [][]*pb.Entry{entries(4, 31, 31), entries(4, 25, 25)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Fatal("a hole was taken")
				}
			}()
			w.append(hole)
		}()
	}
}

func groupOf(founders ...model.ReplicaID) model.Group {
	g := model.Group{ID: 7, Founders: founders}
	for _, id := range founders {
		g.Replicas = append(g.Replicas, model.Replica{ID: id})
	}
	return g
}

func snapshotAt(index, term uint64) *pb.Snapshot {
	return &pb.Snapshot{Data: []byte("state"), Metadata: &pb.SnapshotMetadata{Index: &index, Term: &term,
		ConfState: &pb.ConfState{Voters: []uint64{1, 2, 3}, AutoLeave: new(bool)}}}
}

func TestLoader(t *testing.T) {
	hard := func(term, vote, commit uint64) ready {
		return ready{hasHard: true, hard: hardState{term, vote, commit}}
	}
	log := func(es []*pb.Entry) ready { return ready{entries: es} }
	for _, c := range []struct {
		name    string
		writes  []ready
		refused string
		last    uint64
		hard    hardState
	}{
		{"nothing", nil, "", 1, hardState{1, 0, 1}},
		{"a log", []ready{log(entries(1, 2, 4)), hard(2, 1, 3)}, "", 4, hardState{2, 1, 3}},
		{"a new tail", []ready{log(entries(1, 2, 9)), log(entries(2, 5, 6)), hard(2, 0, 6)}, "", 6, hardState{2, 0, 6}},
		{"a hole", []ready{log(entries(1, 2, 4)), log(entries(1, 6, 7))}, "entry 6 follows entry 4", 0, hardState{}},
		{"a log below its commit", []ready{log(entries(1, 2, 4)), hard(1, 0, 5)}, "below its commit index 5", 0, hardState{}},
		{"a tail cut below commit", []ready{log(entries(1, 2, 9)), hard(1, 0, 8), log(entries(2, 5, 6))},
			"below its commit index 8", 0, hardState{}},
		{"a snapshot", []ready{log(entries(1, 2, 4)), {snapshot: snapshotAt(50, 3)}, log(entries(3, 51, 52))}, "", 52,
			hardState{1, 0, 50}},
		{"entries known already", []ready{{snapshot: snapshotAt(50, 3)}, log(entries(3, 48, 51))}, "", 51,
			hardState{1, 0, 50}},
		{"a hole behind a snapshot", []ready{{snapshot: snapshotAt(50, 3)}, log(entries(3, 52, 53))},
			"entry 52 follows entry 50", 0, hardState{}},
	} {
		l := NewLoader(groupOf(1, 2, 3), 1)
		var err error
		for i := range c.writes {
			if err = l.Ready(wire.Encode(&c.writes[i])); err != nil {
				break
			}
		}
		if err == nil {
			err = l.Finish()
		}
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || l.last() != c.last || l.hard != c.hard {
			t.Errorf("%s: %v, last %d, %+v", c.name, err, l.last(), l.hard)
		}
		for i, e := range l.entries {
			if e.GetIndex() != l.applied+1+uint64(i) {
				t.Errorf("%s: entry %d at place %d", c.name, e.GetIndex(), i)
			}
		}
	}
}

// A founder begins at entry 1; who joins begins with nothing, and so only by a
// snapshot, which says who is a member.
func TestWhereALogBegins(t *testing.T) {
	g := groupOf(1, 2, 3)
	g.Replicas = append(g.Replicas, model.Replica{ID: 4, Learner: true}, model.Replica{ID: 5, Joined: true, Learner: true})
	for _, c := range []struct {
		self             model.ReplicaID
		applied          uint64
		voters, learners []uint64
	}{
		{1, 1, []uint64{1, 2, 3}, []uint64{4}}, {4, 1, []uint64{1, 2, 3}, []uint64{4}}, {5, 0, nil, nil}, {9, 0, nil, nil},
	} {
		l := NewLoader(g, c.self)
		if l.applied != c.applied || !slices.Equal(l.conf.Voters, c.voters) || !slices.Equal(l.conf.Learners, c.learners) {
			t.Errorf("replica %d begins at %d with %v", c.self, l.applied, l.conf)
		}
	}
}

func TestCodecRoundTrips(t *testing.T) {
	conf := &pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}, VotersOutgoing: []uint64{1, 4},
		LearnersNext: []uint64{4}, AutoLeave: new(true)}
	snap := snapshotAt(9, 2)
	snap.Metadata.ConfState = conf
	for _, v := range []interface {
		wire.Coder
	}{
		&Message{&pb.Message{Type: pb.MsgApp.Enum(), To: new(uint64(1)), From: new(uint64(2)), Term: new(uint64(3)),
			LogTerm: new(uint64(2)), Index: new(uint64(7)), Commit: new(uint64(6)), Entries: entries(3, 8, 10)}},
		&Message{&pb.Message{Type: pb.MsgSnap.Enum(), To: new(uint64(1)), Snapshot: snap}},
		&Message{&pb.Message{Type: pb.MsgAppResp.Enum(), Reject: new(true), RejectHint: new(uint64(4)),
			Context: []byte("c")}},
		&ready{hasHard: true, hard: hardState{4, 1, 9}, entries: entries(4, 10, 12)},
		&ready{snapshot: snap},
		&base{hard: hardState{4, 1, 9}, applied: 9, appliedTerm: 3, conf: conf, entries: entries(4, 10, 12)},
		&Applied{Index: 9, Term: 3, Conf: conf, Machine: []byte("state")},
	} {
		b := wire.Encode(v)
		var again wire.Coder
		switch v.(type) {
		case *Message:
			again = &Message{}
		case *ready:
			again = &ready{}
		case *base:
			again = &base{}
		case *Applied:
			again = &Applied{}
		}
		if err := wire.Decode(b, again); err != nil {
			t.Fatalf("%T: %v", v, err)
		}
		if !slices.Equal(wire.Encode(again), b) {
			t.Errorf("%T is another after a round trip", v)
		}
		for cut := range len(b) {
			_ = wire.Decode(b[:cut], again) // must not panic
		}
	}
}

func FuzzCodec(f *testing.F) {
	f.Add(wire.Encode(&Message{&pb.Message{Type: pb.MsgApp.Enum(), Term: new(uint64(3)), Entries: entries(3, 8, 9)}}))
	f.Add(wire.Encode(&ready{hasHard: true, hard: hardState{4, 1, 9}, snapshot: snapshotAt(3, 1)}))
	f.Add(wire.Encode(&base{hard: hardState{4, 1, 9}, applied: 9, conf: &pb.ConfState{Voters: []uint64{1}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []wire.Coder{&Message{}, &ready{}, &base{}, &Applied{}} {
			if wire.Decode(b, v) != nil {
				continue
			}
			// What decodes says the same once more.
			again := wire.Encode(v)
			if err := wire.Decode(again, v); err != nil || !slices.Equal(wire.Encode(v), again) {
				t.Fatalf("%T: %v", v, err)
			}
		}
		l := NewLoader(groupOf(1, 2, 3), 1)
		if l.Ready(b) == nil && l.Base(b) == nil {
			_ = l.Finish()
		}
	})
}

// Messages that raft would panic on, or take for its own, are refused.
func TestCheckRefuses(t *testing.T) {
	w := newWorld(t, 3)
	r := w.peers[1].r
	app := func(term, index, logTerm uint64, es []*pb.Entry) *pb.Message {
		return &pb.Message{Type: pb.MsgApp.Enum(), From: new(uint64(2)), Term: &term, Index: &index,
			LogTerm: &logTerm, Entries: es}
	}
	snap := func(term uint64, s *pb.Snapshot) *pb.Message {
		return &pb.Message{Type: pb.MsgSnap.Enum(), From: new(uint64(2)), Term: &term, Snapshot: s}
	}
	conf := func(c *pb.ConfState) *pb.Snapshot {
		s := snapshotAt(9, 2)
		s.Metadata.ConfState = c
		return s
	}
	plain := func(kind pb.MessageType, from, term uint64) *pb.Message {
		return &pb.Message{Type: kind.Enum(), From: &from, Term: &term}
	}
	for name, m := range map[string]*pb.Message{
		"a gap":                    app(3, 1, 1, entries(2, 3, 4)),
		"a gap within":             app(3, 1, 1, append(entries(2, 2, 3), entries(2, 5, 5)...)),
		"terms that fall":          app(3, 1, 1, append(entries(3, 2, 3), entries(2, 4, 4)...)),
		"an entry of the future":   app(3, 1, 1, entries(4, 2, 3)),
		"a damaged change":         app(3, 1, 1, []*pb.Entry{newEntry(pb.EntryConfChangeV2, 2, 2, []byte{0xff})}),
		"no snapshot":              snap(3, nil),
		"a snapshot of the future": snap(1, snapshotAt(9, 2)),
		"nobody votes":             snap(3, conf(&pb.ConfState{})),
		"one votes twice":          snap(3, conf(&pb.ConfState{Voters: []uint64{1, 1}})),
		"one votes and learns":     snap(3, conf(&pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{2}})),
		"nobody is a voter":        snap(3, conf(&pb.ConfState{Voters: []uint64{0}})),
		"who never voted": snap(3, conf(&pb.ConfState{Voters: []uint64{1}, VotersOutgoing: []uint64{2},
			LearnersNext: []uint64{3}})),
		"commit above the log": {Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), Term: new(uint64(3)),
			Commit: new(uint64(99))},
		"a proposal":       plain(pb.MsgProp, 2, 3),
		"a read":           plain(pb.MsgReadIndex, 2, 3),
		"a read's answer":  plain(pb.MsgReadIndexResp, 2, 3),
		"a campaign":       plain(pb.MsgHup, 2, 3),
		"a transfer":       plain(pb.MsgTransferLeader, 2, 3),
		"a storage answer": plain(pb.MsgStorageAppendResp, 2, 3),
		"no term":          plain(pb.MsgAppResp, 2, 0),
		"nobody":           plain(pb.MsgAppResp, 0, 3),
		"itself":           plain(pb.MsgAppResp, 1, 3),
		"its own disk":     plain(pb.MsgAppResp, raft.LocalAppendThread, 3),
	} {
		if r.check(m) == nil && r.checkSender(m) == nil {
			t.Errorf("%s: passed", name)
		}
		term, role := r.term, r.role
		r.Step(m) // must not panic, nor change anything
		r.Drain()
		if r.term != term || r.role != role {
			t.Errorf("%s: moved to term %d", name, r.term)
		}
	}
	for name, m := range map[string]*pb.Message{
		"entries":    app(3, 1, 1, append(entries(2, 2, 3), entries(3, 4, 4)...)),
		"a snapshot": snap(3, snapshotAt(9, 2)),
		"a joint one": snap(3, conf(&pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3},
			VotersOutgoing: []uint64{1, 4}, LearnersNext: []uint64{4}})),
		"a vote": plain(pb.MsgVoteResp, 2, 3),
	} {
		if err := errors.Join(r.check(m), r.checkSender(m)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
