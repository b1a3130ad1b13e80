package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// rig runs shards without hosts: packets are handed over in order, journals are
// durable when the test (or run) says so, and a folder is what is in rigNode.
type rig struct {
	t     *testing.T
	now   model.Mono
	nodes map[model.NodeID]*rigNode
	names []model.NodeID
	cfg   Config
	wire  []rigPacket
	cut   func(from, to model.NodeID) bool // packets that are lost
	stop  func(n *rigNode, e Effect) bool  // an effect at which a node dies
	sent  map[model.NodeID]int             // bytes sent to each node, if not nil
}

type rigPacket struct {
	from, to model.NodeID
	data     []byte
}

type rigNode struct {
	r    *rig
	id   model.NodeID
	disk model.DiskID
	boot uint64
	s    *Shard // nil: down
	hold bool   // run does not make the journal durable
	rots bool   // whatever is read from segments is damaged, repaired or not

	repairs int // that rotten segments were given

	sequence uint64 // of this boot's last record
	done     uint64 // reported durable
	wake     model.Mono

	// The folder. Records and generations hold what was appended; synced counts
	// the records that are durable.
	records    []rigRecord
	synced     int
	generation uint64
	checkpoint []byte
	dropped    int    // records gone with their generation
	first      uint64 // generation that the manifest names
	stores     map[model.GroupID]*rigStore

	pending []Checkpoint
	notes   []string
	replies map[uint64]Reply
	effects []Effect // of the last step
}

type rigRecord struct {
	generation uint64
	JournalRecord
}

// rigStore stands in for a partition's segments: every write is durable at once.
type rigStore struct {
	start, end model.Offset
	batches    []batch.View
}

func newRig(t *testing.T, n int, limits Limits) *rig {
	r := &rig{t: t, now: 1, nodes: map[model.NodeID]*rigNode{}, cfg: Config{Limits: limits, Coordinators: 1}}
	for i := range n {
		id := model.NodeID(fmt.Sprintf("n%d", i+1))
		r.names = append(r.names, id)
		r.cfg.Peers = append(r.cfg.Peers, model.Node{ID: id, Address: string(id)})
		r.nodes[id] = &rigNode{r: r, id: id, disk: model.DiskID(i + 1), stores: map[model.GroupID]*rigStore{}}
	}
	return r
}

func (r *rig) startAll() {
	for _, id := range r.names {
		r.nodes[id].start()
	}
}

func (r *rig) instant() model.Instant {
	return model.Instant{Mono: r.now, Wall: model.Wall(r.now) + model.Wall(1_700_000_000*time.Second)}
}

// start opens the folder as a host would, and fails the test if Load refuses it
// or the segments do not hold what the marks say.
func (n *rigNode) start() {
	n.r.t.Helper()
	cfg := n.r.cfg
	cfg.Self, cfg.Seed = n.id, uint64(n.disk)
	n.boot = model.Incarnation{Boot: n.boot}.NextBoot(0)
	rec := Recovered{Incarnation: model.Incarnation{Disk: n.disk, Boot: n.boot}, Checkpoint: n.checkpoint,
		Generation: n.generation, Sequence: uint64(n.dropped + len(n.records))}
	for _, x := range n.records {
		if x.generation >= n.first {
			rec.Records = append(rec.Records, x.JournalRecord)
		}
	}
	loaded, marks, err := rec.Load(n.id, cfg.Limits)
	if err != nil {
		n.r.t.Fatalf("%s does not start: %v", n.id, err)
	}
	rec.Loaded = loaded
	kept := map[model.GroupID]*rigStore{}
	for _, m := range marks {
		st := n.stores[m.Group]
		if st == nil {
			st = &rigStore{}
		}
		if m.Start != m.End && (st.start > m.Start || st.end < m.End) {
			n.r.t.Fatalf("%s: the segments of group %d hold [%d, %d); [%d, %d) is missing there",
				n.id, m.Group, st.start, st.end, m.Start, m.End)
		}
		st.cut(m.Start, m.End)
		kept[m.Group] = st
	}
	n.stores = kept
	n.s, n.sequence, n.done, n.wake = New(cfg), 0, 0, model.Never
	n.pending, n.replies = nil, map[uint64]Reply{}
	n.step(Start{Recovered: rec})
}

func (st *rigStore) cut(start, end model.Offset) {
	st.batches = slices.DeleteFunc(st.batches, func(v batch.View) bool { return v.Next() > end || start == end })
	if start == end {
		st.start = start
	}
	st.end = end
}

// crash loses what is not durable.
func (n *rigNode) crash() {
	n.s = nil
	n.records = n.records[:n.synced]
}

// wipe gives the node that is down an empty folder.
func (n *rigNode) wipe() {
	n.disk += 1000
	n.boot, n.records, n.synced, n.generation, n.first, n.checkpoint = 0, nil, 0, 0, 0, nil
	n.stores, n.dropped = map[model.GroupID]*rigStore{}, 0
}

func (n *rigNode) step(ev Event) {
	if n.s == nil {
		return
	}
	n.effects = slices.Clone(n.s.Step(n.r.instant(), ev))
	for _, e := range n.effects {
		n.effect(e)
		if n.s != nil && n.r.stop != nil && n.r.stop(n, e) {
			n.crash()
		}
		if n.s == nil {
			return
		}
	}
}

func (n *rigNode) effect(e Effect) {
	switch e := e.(type) {
	case Wake:
		n.wake = e.At
	case Send:
		if n.r.sent != nil {
			n.r.sent[e.To] += len(e.Data)
		}
		n.r.wire = append(n.r.wire, rigPacket{n.id, e.To, slices.Clone(e.Data)})
	case JournalAppend:
		n.sequence++
		if e.Sequence != n.sequence {
			n.r.t.Fatalf("%s appends record %d after %d", n.id, e.Sequence, n.sequence-1)
		}
		n.records = append(n.records, rigRecord{n.generation, e.Record})
	case JournalRoll:
		n.generation = e.Generation
	case Checkpoint:
		n.pending = append(n.pending, e)
	case Reply:
		n.replies[e.ID] = e
	case Refuse:
		if n.r.stop == nil || !n.r.stop(n, e) {
			n.r.t.Fatalf("%s ends itself: %s", n.id, e.Cause)
		}
	case Note:
		n.notes = append(n.notes, e.Text)
	case Read:
		n.read(e)
	case SegmentRepair:
		if n.repairs++; n.repairs > 100 {
			n.r.t.Fatalf("%s repairs without end", n.id)
		}
		n.r.wire = append(n.r.wire, rigPacket{n.id, "repair", []byte{byte(e.Group >> 8), byte(e.Group)}})
	case SegmentSync:
		n.r.wire = append(n.r.wire, rigPacket{n.id, "", []byte{byte(e.ID)}})
	default:
		n.segment(e)
	}
}

func (n *rigNode) store(g model.GroupID) *rigStore {
	if n.stores[g] == nil {
		n.stores[g] = &rigStore{}
	}
	return n.stores[g]
}

func (n *rigNode) segment(e Effect) {
	switch e := e.(type) {
	case SegmentAppend:
		st, v := n.store(e.Group), batch.View(e.Batch)
		if v.Next() <= st.end {
			return
		}
		if v.Base() != st.end {
			n.r.t.Fatalf("%s: group %d: a batch at %d comes to segments that end at %d", n.id, e.Group, v.Base(), st.end)
		}
		st.batches, st.end = append(st.batches, v), v.Next()
	case SegmentReset:
		if e.Remove {
			delete(n.stores, e.Group)
			return
		}
		*n.store(e.Group) = rigStore{start: e.At, end: e.At}
	}
}

func (n *rigNode) read(e Read) {
	if n.rots {
		n.r.wire = append(n.r.wire, rigPacket{n.id, "rotten", []byte{byte(e.ID), byte(e.Offset)}})
		return
	}
	var run []byte
	for _, v := range n.store(e.Group).batches {
		if v.Next() > e.Offset {
			run = append(run, v...)
		}
	}
	n.r.wire = append(n.r.wire, rigPacket{n.id, "read", append([]byte{byte(e.ID)}, run...)})
}

// sync makes the journal durable, and says so.
func (n *rigNode) sync() {
	if n.s == nil || n.done == n.sequence {
		return
	}
	n.synced, n.done = len(n.records), n.sequence
	n.step(JournalDone{Upto: n.sequence})
}

// manifest makes the oldest checkpoint asked for durable.
func (n *rigNode) manifest() {
	cp := n.pending[0]
	n.pending = n.pending[1:]
	n.checkpoint, n.first = cp.State, cp.Generation
	before := len(n.records)
	n.records = slices.DeleteFunc(n.records, func(x rigRecord) bool { return x.generation < n.first })
	n.dropped += before - len(n.records)
	n.synced = len(n.records)
	n.step(CheckpointDone{ID: cp.ID})
}

// checkpoint lets a checkpoint begin and end that holds everything done so far.
func (r *rig) checkpoint(n *rigNode) {
	r.t.Helper()
	for range 2 { // the one under way may be older
		r.until("a checkpoint", func() bool { return len(n.pending) > 0 })
		n.sync()
		n.manifest()
	}
}

// deliver hands over everything under way, and what comes of it.
func (r *rig) deliver() {
	for len(r.wire) > 0 {
		p := r.wire[0]
		r.wire = r.wire[1:]
		switch {
		case p.to == "":
			r.nodes[p.from].step(SegmentDone{ID: uint64(p.data[0])})
		case p.to == "rotten":
			r.nodes[p.from].step(ReadDone{ID: uint64(p.data[0]), Err: model.Errorf(model.DataLoss, "rotten"),
				Damage: &SegmentDamage{Offset: model.Offset(p.data[1]), File: "f", Cause: "rotten"}})
		case p.to == "repair":
			r.nodes[p.from].step(RepairDone{Group: model.GroupID(p.data[0])<<8 | model.GroupID(p.data[1])})
		case p.to == "read":
			r.nodes[p.from].step(ReadDone{ID: uint64(p.data[0]), Data: p.data[1:]})
		case r.cut == nil || !r.cut(p.from, p.to):
			if to := r.nodes[p.to]; to != nil {
				to.step(Packet{From: p.from, Data: p.data})
			}
		}
	}
}

// run lets time pass: packets arrive and journals become durable in between.
func (r *rig) run(d time.Duration) {
	end := r.now.Add(d)
	for {
		for range 1000 {
			r.deliver()
			quiet := true
			for _, id := range r.names {
				if n := r.nodes[id]; n.s != nil && !n.hold && n.done < n.sequence {
					n.sync()
					quiet = false
				}
			}
			if quiet {
				break
			}
		}
		next := end
		for _, id := range r.names {
			if n := r.nodes[id]; n.s != nil {
				next = min(next, max(n.wake, r.now))
			}
		}
		if next >= end {
			r.now = end
			return
		}
		r.now = max(next, r.now.Add(time.Millisecond))
		for _, id := range r.names {
			if n := r.nodes[id]; n.s != nil && n.wake <= r.now {
				n.wake = model.Never
				n.step(Tick{})
			}
		}
	}
}

func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	for end := r.now.Add(time.Minute); !cond(); r.run(10 * time.Millisecond) {
		if r.now > end {
			r.t.Fatalf("never saw %s", what)
		}
	}
}

// call makes a client's request and waits for the answer.
func (r *rig) call(id model.NodeID, c call.Client) (call.ClientResult, *model.Error) {
	r.t.Helper()
	n, rid := r.nodes[id], uint64(r.now)
	n.step(Request{ID: rid, Call: c, Deadline: r.now.Add(20 * time.Second)})
	r.until(fmt.Sprintf("an answer to %T", c), func() bool { _, ok := n.replies[rid]; return ok })
	r.run(time.Millisecond)
	return n.replies[rid].Result, n.replies[rid].Err
}

func (r *rig) createTopic(name string, partitions, replicas uint32) {
	r.t.Helper()
	if _, err := r.call("n1", &call.Admin{Request: &call.CreateTopic{Name: name, Partitions: partitions,
		Settings: model.TopicSettings{Replicas: replicas}}}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) publish(via model.NodeID, topic, payload string) {
	r.t.Helper()
	if _, err := r.call(via, &call.Publish{Topic: topic,
		Messages: []batch.Message{{Key: []byte("k"), Payload: []byte(payload)}}}); err != nil {
		r.t.Fatal(err)
	}
}

// count says how many effects of a kind the last step had.
func count[T Effect](n *rigNode) (c int) {
	for _, e := range n.effects {
		if _, ok := e.(T); ok {
			c++
		}
	}
	return c
}

const firstPartition = model.FirstPartitionGroup
