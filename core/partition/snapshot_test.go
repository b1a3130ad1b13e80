package partition

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// busy makes a partition with something in every field.
func busy(t testing.TB) *Machine {
	h, m := lead(t, Limits{SegmentBytes: 4000, SegmentAge: time.Minute})
	for i := range 100 {
		h.Advance(time.Second)
		put(t, h, messages(2, from(1, 1, model.Sequence(2*i))))
		if i%10 == 0 {
			put(t, h, messages(1, from(model.ProducerID(2+i), 3, 0)))
		}
	}
	if _, err := h.Do(&call.Fence{Producer: 500, Epoch: 9}); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSnapshotCarriesTheWholeState(t *testing.T) {
	m := busy(t)
	snap := m.Snapshot()
	n := New(m.cfg)
	if err := n.Restore(snap); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(n.Snapshot(), snap) || n.Hash() != m.Hash() {
		t.Fatal("restored state gives another snapshot")
	}
	if !reflect.DeepEqual(n.Segments(), m.Segments()) || n.Next() != m.Next() || n.Bytes() != m.Bytes() ||
		n.LogTime() != m.LogTime() || n.LastAppendTime() != m.LastAppendTime() || n.Producers() != m.Producers() {
		t.Fatalf("restored %+v", n.st)
	}
	for p, q := m.st.producers.oldest, n.st.producers.oldest; p != nil || q != nil; p, q = p.newer, q.newer {
		if p.id != q.id || p.epoch != q.epoch || p.next != q.next || p.last != q.last || len(p.ring) != len(q.ring) {
			t.Fatalf("producer %+v became %+v", p, q)
		}
		for i := range p.ring {
			if *p.at(i) != *q.at(i) {
				t.Fatalf("producer %d's batch %d: %+v became %+v", p.id, i, *p.at(i), *q.at(i))
			}
		}
	}
}

// A replica that begins with a snapshot goes on like one that applied everything.
func TestSnapshotAndReplayAgree(t *testing.T) {
	h, m := lead(t, Limits{})
	fill(t, h, 5, time.Second)
	put(t, h, messages(1, from(1, 1, 0)))
	snap, at := m.Snapshot(), len(h.Log.Entries)
	put(t, h, messages(1, from(1, 1, 1)))
	fill(t, h, 5, time.Second)
	f, n := follower(h)
	if n.Hash() != m.Hash() {
		t.Fatal("replay from the start differs")
	}
	if err := n.Restore(snap); err != nil {
		t.Fatal(err)
	}
	f.Store.Batches = f.Store.Batches[:6]
	f.Applied = at
	f.CatchUp()
	if n.Hash() != m.Hash() {
		t.Fatal("snapshot and replay differ")
	}
	f.Lead()
	if got := put(t, f, messages(1, from(1, 1, 0))); !got.Duplicate || got.Base != 5 {
		t.Fatalf("after the restore a retry got %+v", got)
	}
}

func TestBadSnapshotsAreRefused(t *testing.T) {
	m := busy(t)
	good := m.Snapshot()
	for name, spoil := range map[string]func(s *state){
		"no segment":           func(s *state) { s.segments = nil },
		"hole at the end":      func(s *state) { s.active().Base = s.next + 1 },
		"empty closed segment": func(s *state) { s.segments[0].Bytes = 0 },
		"order":                func(s *state) { s.segments[1].Base = s.segments[0].Base },
		"full but empty":       func(s *state) { s.active().Bytes = 0 },
		"producer twice":       func(s *state) { s.producers.newest.id = s.producers.oldest.id },
		"producer without id":  func(s *state) { s.producers.newest.id = 0 },
		"activity order":       func(s *state) { s.producers.newest.last = 0 },
		"sequences":            func(s *state) { s.producers.get(1).next = 3 },
		"too many batches": func(s *state) {
			p := s.producers.get(1)
			p.ring = append(p.ring, remembered{count: 1})
		},
	} {
		n := New(m.cfg)
		if err := n.Restore(good); err != nil {
			t.Fatal(err)
		}
		spoil(&n.st)
		if err := New(m.cfg).Restore(n.Snapshot()); err == nil {
			t.Errorf("%s: the snapshot was taken", name)
		}
	}
	n := New(m.cfg)
	if err := n.Restore(good[:len(good)-1]); err == nil || n.Next() != 0 || len(n.Segments()) != 1 {
		t.Errorf("a short snapshot: %v, next %d", err, n.Next())
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(New(Config{}).Snapshot())
	small := New(Config{})
	v := messages(2, from(1, 1, 0))
	v.Stamp(0, 5)
	small.st.acceptBatch(v)
	small.st.roll(2)
	small.st.fence(2, 1)
	f.Add(small.Snapshot())
	f.Fuzz(func(t *testing.T, data []byte) {
		m := New(Config{})
		if m.Restore(data) != nil {
			return
		}
		snap := m.Snapshot()
		n := New(Config{})
		if err := n.Restore(snap); err != nil || !bytes.Equal(n.Snapshot(), snap) {
			t.Fatalf("snapshot of a restored state: %v", err)
		}
	})
}

func FuzzCommand(f *testing.F) {
	for _, c := range []command{
		{kind: cmdFence, at: 1, producer: 2, epoch: 3},
		{kind: cmdConfigure, settings: settings{1, time.Hour, 5}},
		{kind: cmdRoll, offset: 7}, {kind: cmdTrim, at: -1, offset: 1 << 63}, {kind: cmdExpire, at: -5, untrusted: true},
	} {
		f.Add(encodeCommand(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c, again command
		if wire.Decode(data, &c) != nil {
			return
		}
		if isBatch(data) {
			t.Fatal("a command can be taken for a batch")
		}
		if err := wire.Decode(wire.Encode(&c), &again); err != nil || c != again {
			t.Fatalf("%+v became %+v: %v", c, again, err)
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	m := New(Config{})
	v := messages(1, batch.Options{})
	for i := range 1000 {
		v = messages(1, from(model.ProducerID(i+1), 1, 0))
		v.Stamp(model.Offset(i), 1)
		m.st.acceptBatch(v)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Snapshot()
	}
}
