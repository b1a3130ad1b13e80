package core

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// busy is a cluster at work, and the packets' bodies that its nodes sent to n1.
func busy(t *testing.T) (r *rig, bodies [][]byte) {
	t.Helper()
	r = newRig(t, 3, Limits{WindowEntries: 4, WindowBytes: 1, HotBytes: 1})
	r.cut = func(_, to model.NodeID) bool { return false }
	seen := map[string]bool{}
	r.stop = func(n *rigNode, e Effect) bool {
		s, ok := e.(Send)
		if !ok || s.To != "n1" {
			return false
		}
		c := wire.Codec{Buf: s.Data, Decoding: true}
		var h header
		h.Code(&c)
		if c.Err != nil {
			t.Fatalf("%s sends a packet that does not decode: %v", n.id, c.Err)
		}
		if body := c.Buf; len(body) < 4<<10 && !seen[string(body)] {
			seen[string(body)] = true
			bodies = append(bodies, slices.Clone(body))
		}
		return false
	}
	r.startAll()
	r.createTopic("orders", 2, 3)
	for _, via := range r.names {
		r.publish(via, "orders", "m")
	}
	if _, err := r.call("n2", &call.CreateSubscriptionCall{Topic: "orders", Name: "audit"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.call("n3", &call.Pull{Subscription: "orders/audit", Member: "a"}); err != nil {
		t.Fatal(err)
	}
	r.stop = nil
	return r, bodies
}

// from puts a body into a packet from n2's incarnation to n1's.
func (r *rig) from(body []byte) []byte { return r.between("n2", "n1", body) }

func (r *rig) between(from, to model.NodeID, body []byte) []byte {
	c := wire.Codec{}
	r.nodes[from].s.header(r.nodes[to].s.self).Code(&c)
	return append(c.Buf, body...)
}

// mutate damages a body, or lays pieces of two end to end.
func mutate(rng *rand.Rand, bodies [][]byte) []byte {
	b := slices.Clone(bodies[rng.IntN(len(bodies))])
	for range 1 + rng.IntN(3) {
		if len(b) == 0 {
			break
		}
		at := rng.IntN(len(b))
		switch rng.IntN(6) {
		case 0:
			b = b[:at]
		case 1:
			b[at] ^= 1 << rng.IntN(8)
		case 2:
			b[at] = byte(rng.Uint32())
		case 3:
			b = slices.Insert(b, at, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)
		case 4:
			b = append(b[:at:at], bodies[rng.IntN(len(bodies))]...)
		case 5:
			b = slices.Delete(b, at, min(len(b), at+1+rng.IntN(4)))
		}
	}
	return b
}

// No packet makes a node panic, whatever it does to the peer that sent it.
func TestDamagedPackets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ended := 0
	for round := range 25 {
		r, bodies := busy(t)
		// Damage can make a packet say that its sender remembers a later state of
		// this folder. A node that believes it ends itself, as it must.
		r.stop = func(_ *rigNode, e Effect) bool { _, is := e.(Refuse); return is }
		if len(bodies) < 20 {
			t.Fatalf("only %d packets to damage", len(bodies))
		}
		for range 100 {
			data := r.from(mutate(rng, bodies))
			_, _ = DecodePacket(slices.Clone(data)) // must not panic
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Fatalf("round %d: packet %x: %v", round, data, p)
					}
				}()
				r.nodes["n1"].step(Packet{From: "n2", Data: data})
			}()
			if r.nodes["n1"].s == nil {
				ended++
				break
			}
		}
	}
	if ended > 5 {
		t.Errorf("in %d of 25 rounds the node ended itself: too many to try what comes after", ended)
	}
}

func FuzzPacket(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{itemRaft, 1, 5, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{itemRequest, 1, 1, 2, 1, 0, itemCancel, 1})
	f.Add([]byte{itemResponse, 1, 0, 1, 0})
	f.Add([]byte{itemHello, 1, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		r, _ := busy(t)
		// A hello that remembers a later state of this folder ends the node, as it must.
		r.stop = func(_ *rigNode, e Effect) bool { _, is := e.(Refuse); return is }
		data := r.from(body)
		_, _ = DecodePacket(slices.Clone(data))
		r.nodes["n1"].step(Packet{From: "n2", Data: data})
	})
}

// What DecodePacket shows an observer is what a node acts on.
func TestDecodePacketCountsItems(t *testing.T) {
	r, bodies := busy(t)
	var v PacketView
	for _, b := range bodies {
		p, err := DecodePacket(r.from(b))
		if err != nil {
			t.Fatal(err)
		}
		v.Raft = append(v.Raft, p.Raft...)
		v.Hellos, v.Requests, v.Answers = v.Hellos+p.Hellos, v.Requests+p.Requests, v.Answers+p.Answers
	}
	if len(v.Raft) == 0 || v.Hellos == 0 || v.Requests == 0 || v.Answers == 0 {
		t.Fatalf("%d raft messages, %d hellos, %d requests, %d answers", len(v.Raft), v.Hellos, v.Requests, v.Answers)
	}
	if _, err := DecodePacket(r.from([]byte{99})); err == nil {
		t.Fatal("an unknown item passed")
	}
}

func TestWindowTakesAnIdOnce(t *testing.T) {
	var w window
	want := func(id uint64, is bool) {
		t.Helper()
		if w.take(id) != is {
			t.Fatalf("take(%d) is not %v", id, is)
		}
	}
	want(1, true)
	want(1, false)
	want(5, true) // others went to other nodes
	want(3, true) // overtaken on the way
	want(3, false)
	want(5, false)
	want(windowIDs+5, true)
	want(5, false)               // too old to be remembered: taken
	want(6, true)                // just not
	want(10*windowIDs, true)     // a long jump forgets everything below
	want(9*windowIDs, false)     // …
	want(9*windowIDs+1, true)    // … but what is still within
	want(1<<63-1, true)          // and takes no time
	want(1<<63-1, false)         //
	want(1<<63-windowIDs, true)  // within
	want(1<<63-windowIDs, false) //
}

// Against a plain set: an id is new iff it was never taken and is among the newest.
func TestWindowAgainstASet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var w window
	taken, high := map[uint64]bool{}, uint64(0)
	for range 200_000 {
		id := high + uint64(rng.IntN(40))
		if back := uint64(rng.IntN(2 * windowIDs)); rng.IntN(3) == 0 && back < high {
			id = high - back
		}
		if rng.IntN(10_000) == 0 {
			id = high + windowIDs + uint64(rng.IntN(3*windowIDs))
		}
		want := !taken[id] && id+windowIDs > high
		if w.take(id) != want {
			t.Fatalf("take(%d) with %d the highest is not %v", id, high, want)
		}
		taken[id], high = taken[id] || want, max(high, id)
	}
}

func TestFormerLivesAreFenced(t *testing.T) {
	r := newRig(t, 3, Limits{})
	r.startAll()
	r.until("a founding", func() bool { return len(r.founded()) == 3 })
	n1, n2 := r.nodes["n1"], r.nodes["n2"]
	former := r.from([]byte{itemCancel, 1})
	old := n2.s.self
	n2.crash()
	n2.start()
	r.run(time.Second)
	if n1.s.peer("n2").inc.Boot <= old.Boot {
		t.Fatal("n1 does not know n2's new life")
	}
	heard := n1.s.peer("n2").heard
	r.now = r.now.Add(time.Millisecond)
	n1.step(Packet{From: "n2", Data: former})
	if n1.s.peer("n2").heard != heard {
		t.Fatal("a packet of the former life was taken")
	}
	// A packet for n1's former life is answered by a hello, and nothing of it done.
	forFormer := r.from([]byte{itemRequest, 7, 1, 1, 0})
	n1.crash()
	n1.start()
	r.run(time.Second)
	n1.step(Packet{From: "n2", Data: forFormer})
	if count[Send](n1) != 1 || len(n1.s.asked) != 0 {
		t.Fatalf("%d packets sent, %d asks taken", count[Send](n1), len(n1.s.asked))
	}
}

// What a former life asked is dropped: its next life counts anew, and must not
// get answers to questions it did not ask.
func TestAsksOfAFormerLifeAreDropped(t *testing.T) {
	r := newRig(t, 3, Limits{})
	r.startAll()
	r.createTopic("orders", 1, 3)
	r.publish("n1", "orders", "m")
	var leader, asker *rigNode
	for _, id := range r.names {
		if n := r.nodes[id]; n.s.Replica(firstPartition).IsLeader() {
			leader = n
		} else {
			asker = n
		}
	}
	asker.step(Request{ID: 9, Call: &call.Fetch{Topic: "orders", Offset: 1, Wait: 50 * time.Second},
		Deadline: r.now.Add(time.Minute)})
	r.until("the fetch to wait", func() bool { return len(leader.s.refs) == 1 })
	asker.crash()
	asker.start()
	r.run(time.Second)
	if len(leader.s.refs) != 0 || len(leader.s.asked) != 0 {
		t.Fatalf("%d refs and %d asks of the former life are left", len(leader.s.refs), len(leader.s.asked))
	}
}

// A repeated packet makes its calls once, also when they have no sequence.
func TestARepeatedPacketCallsOnce(t *testing.T) {
	r := newRig(t, 3, Limits{})
	r.startAll()
	r.createTopic("orders", 1, 3)
	r.publish("n1", "orders", "m")
	for i, id := range r.names {
		n, from := r.nodes[id], r.names[(i+1)%3]
		if !n.s.Replica(firstPartition).IsLeader() {
			continue
		}
		body := call.Encode(nil, &call.Append{Batch: batch.Encode([]batch.Message{{Payload: []byte("x")}}, batch.Options{})})
		c := wire.Codec{Buf: []byte{itemRequest}}
		ask, g := uint64(1<<40), firstPartition
		wire.Uint(&c, &ask)
		wire.Uint(&c, &g)
		c.Bytes(&body)
		for range 3 {
			n.step(Packet{From: from, Data: r.between(from, id, c.Buf)})
		}
		r.run(time.Second)
		if hw := n.machine().HighWatermark(); hw != 2 {
			t.Fatalf("high watermark %d after one append, repeated", hw)
		}
		return
	}
	t.Fatal("nobody leads")
}

// Which clock is off is not known from two; among three it is.
func TestWallTrusted(t *testing.T) {
	for _, c := range []struct {
		skews []time.Duration // of reachable peers against this node
		want  bool
	}{
		{nil, true},
		{[]time.Duration{time.Second}, true},
		{[]time.Duration{time.Minute}, false},
		{[]time.Duration{-time.Minute}, false},
		{[]time.Duration{time.Minute, time.Millisecond}, true},
		{[]time.Duration{-time.Minute, time.Millisecond}, true},
		{[]time.Duration{time.Minute, time.Minute}, false},
		{[]time.Duration{-time.Minute, -time.Minute}, false},
		{[]time.Duration{-time.Minute, time.Minute}, true},
		{[]time.Duration{0, 0, time.Minute}, true},
		{[]time.Duration{0, -time.Minute, -time.Minute}, false},
		{[]time.Duration{0, time.Minute, time.Minute}, false},
	} {
		r := newRig(t, 1+len(c.skews), Limits{})
		r.nodes["n1"].start()
		s := r.nodes["n1"].s
		for i, p := range s.peers {
			p.known, p.heard, p.skew = true, r.now, int64(c.skews[i])
		}
		if s.wallTrusted() != c.want {
			t.Errorf("skews %v: trusted is not %v", c.skews, c.want)
		}
	}
}
