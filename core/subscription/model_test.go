package subscription

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// world drives a coordinator with clients, gateways, lost answers, late
// deliveries, failovers and seeks, one step at a time, and checks after each
// what must hold.
type world struct {
	*bench
	rt      *rapid.T
	clients []*client
	flows   []*flow
	acks    map[group.Ref]sentAck
	checked int // entries of the log looked at
	limit   uint32
	healing bool
	graves  graves
	seeks   map[model.Partition]int
	tries   map[grave]uint32 // the attempt that a message was given with last, since a seek
	failed  map[grave]uint32 // attempts counted, as of the last look

	owners  map[[2]uint64]model.MemberID // by partition and fence
	seekGen map[model.Partition]model.Generation
	last    View
}

// client is a member that pulls with a sequence, one pull at a time.
type client struct {
	id       model.MemberID
	sequence uint64 // of its last pull
	open     *flow
	next     map[model.Partition]received
}

// received is the end of what arrived of a partition under one fence.
type received struct {
	fence model.Generation
	end   model.Offset
	pull  model.Generation // of the pull that brought it
}

// flow is one pull at its gateway; the client may have given it up.
type flow struct {
	client   *client
	sequence uint64
	ref      group.Ref
	deliver  bool // its Deliver is under way, else its Grant
	granted  *call.Granted
}

type sentAck struct {
	to   call.PartitionOffset
	pull model.Generation
}

func newWorld(t *testing.T, rt *rapid.T) *world {
	w := &world{bench: newBench(t, rapid.IntRange(1, 5).Draw(rt, "partitions")), rt: rt,
		acks: map[group.Ref]sentAck{}, graves: newGraves(), seeks: map[model.Partition]int{},
		tries: map[grave]uint32{}, failed: map[grave]uint32{},
		owners: map[[2]uint64]model.MemberID{}, seekGen: map[model.Partition]model.Generation{}}
	w.limit = rapid.SampledFrom([]uint32{3, 7, 1000}).Draw(rt, "in flight")
	w.settings = model.SubscriptionSettings{MaxInFlightMember: w.limit, AckDeadline: 4 * time.Second,
		SessionTimeout: rapid.SampledFrom([]time.Duration{4, 10}).Draw(rt, "session") * time.Second}
	if rapid.Bool().Draw(rt, "dead letters") {
		w.settings.MaxAttempts, w.settings.DeadLetterTopic = 3, "dead"
		w.Cat.PutTopic(&model.Topic{ID: 2, Name: "dead", Partitions: []model.GroupID{deadGroup, deadGroup + 1}})
	}
	w.nextID--
	w.create()
	for i := range 4 {
		w.clients = append(w.clients, &client{id: model.MemberID(fmt.Sprint("c", i)),
			next: map[model.Partition]received{}})
	}
	return w
}

func (w *world) someClient() *client { return rapid.SampledFrom(w.clients).Draw(w.rt, "client") }

func (w *world) somePartition() model.Partition {
	return model.Partition(rapid.IntRange(0, max(0, len(w.view().Partitions)-1)).Draw(w.rt, "partition"))
}

// startPull begins the client's next pull, or its last one again if the answer
// did not come. What is under way goes on without it.
func (w *world) startPull(c *client) {
	if c.open == nil {
		c.sequence++
	}
	f := &flow{client: c, sequence: c.sequence}
	c.open = f
	f.ref = w.Call(&call.Grant{Target: target(), Member: c.id, PullSequence: f.sequence})
	w.flows = append(w.flows, f)
	w.observe()
}

// stepFlow lets a gateway go on: after its grant it delivers.
func (w *world) stepFlow(f *flow) {
	if f.granted == nil || f.deliver {
		return
	}
	req := &call.Deliver{Target: target(), Member: f.client.id, Generation: f.granted.Generation,
		PullSequence: f.sequence}
	for _, r := range f.granted.Ranges {
		most := r.From + model.Offset(rapid.IntRange(0, 5).Draw(w.rt, "messages"))
		if !f.granted.Replay && (r.To == 0 || r.To > most) {
			r.To = most
		}
		if r.To > r.From {
			req.Ranges = append(req.Ranges, r)
		}
	}
	f.deliver = true
	f.ref = w.Call(req)
	w.observe()
}

// observe looks at the answers that came.
func (w *world) observe() {
	w.flows = slices.DeleteFunc(w.flows, w.observeFlow)
	for _, ref := range slices.Sorted(maps.Keys(w.acks)) {
		a, ok := w.Answers[ref]
		if !ok {
			continue
		}
		sent := w.acks[ref]
		delete(w.acks, ref)
		if a.Err != nil {
			continue
		}
		r := a.Resp.(*call.Acked).Results[0]
		if r.Err == nil && sent.pull < w.seekGen[r.Partition] {
			w.rt.Fatalf("an ack of generation %d passed the seek of %d", sent.pull, w.seekGen[r.Partition])
		}
		if r.Err == nil && r.Cursor < sent.to.Offset {
			w.rt.Fatalf("an ack up to %d succeeded with cursor %d", sent.to.Offset, r.Cursor)
		}
	}
}

// observeFlow says whether the flow has ended.
func (w *world) observeFlow(f *flow) bool {
	if f.granted != nil && !f.deliver {
		return false // its gateway sleeps
	}
	a, ok := w.Answers[f.ref]
	switch {
	case !ok:
		return false
	case a.Err != nil:
		if f.client.open == f && a.Err.Code == model.InvalidArgument { // another run is known there
			f.client.open, f.client.sequence, f.client.next = nil, 0, map[model.Partition]received{}
		}
		return true
	case !f.deliver:
		f.granted = a.Resp.(*call.Granted)
		return false
	}
	w.arrived(f, a.Resp.(*call.Delivered))
	return true
}

// arrived checks what goes out, and, unless the client gave the pull up, that
// nothing was left out since the client's last answer.
func (w *world) arrived(f *flow, d *call.Delivered) {
	v := w.view()
	for _, r := range d.Ranges {
		part := v.Partitions[r.Partition]
		if part.Owner != f.client.id {
			w.rt.Fatalf("%s was given %+v of %s", f.client.id, r, part.Owner)
		}
		if r.From < part.Cursor {
			w.rt.Fatalf("%+v goes out again; the cursor is %d", r, part.Cursor)
		}
		for o := r.From; o < r.To; o++ {
			w.tries[grave{r.Partition, o}] = max(w.tries[grave{r.Partition, o}], r.Attempt)
		}
		if f.client.open != f {
			continue
		}
		known := f.client.next[r.Partition]
		if known.fence != part.Fence {
			known.end = 0
		}
		acked := w.acked(r.Partition)
		if acked.within(r.From, r.To) > 0 {
			w.rt.Fatalf("%+v goes out again; acked are %d and %+v", r, part.Cursor, acked)
		}
		if r.From > acked.free(max(known.end, part.Cursor)) {
			w.rt.Fatalf("%s: pull %d brings %+v after %+v, cursor %d", f.client.id, f.sequence, r, known, part.Cursor)
		}
		f.client.next[r.Partition] = received{part.Fence, max(known.end, r.To), d.Generation}
	}
	if f.client.open == f {
		f.client.open = nil
	}
}

func (w *world) acked(p model.Partition) intervals {
	return w.machine().state.subscriptions[w.nextID].partitions[p].acked
}

// sendSingles acks messages of the last ten that arrived, one by one.
func (w *world) sendSingles(c *client, p model.Partition) {
	known := c.next[p]
	req := &call.AckCursors{Target: target(), Member: c.id, Generation: known.pull,
		Ends: []call.PartitionOffset{{Partition: p, Offset: 1 << 40}}}
	for range rapid.IntRange(1, 3).Draw(w.rt, "singles") {
		if back := model.Offset(rapid.IntRange(1, 10).Draw(w.rt, "back")); back <= known.end {
			req.Offsets = append(req.Offsets, call.PartitionOffset{Partition: p, Offset: known.end - back})
		}
	}
	if len(req.Offsets) > 0 {
		w.acks[w.Call(req)] = sentAck{call.PartitionOffset{Partition: p}, known.pull}
		w.observe()
	}
}

func (w *world) sendAck(c *client, p model.Partition) {
	known, ok := c.next[p]
	if !ok {
		return
	}
	back := model.Offset(rapid.IntRange(0, 3).Draw(w.rt, "short of"))
	to := call.PartitionOffset{Partition: p, Offset: max(known.end, back) - back}
	ref := w.Call(&call.AckCursors{Target: target(), Member: c.id, Generation: known.pull,
		UpTo: []call.PartitionOffset{to}, Ends: []call.PartitionOffset{{Partition: p, Offset: 1 << 40}}})
	w.acks[ref] = sentAck{to, known.pull}
	w.observe()
}

// commit applies one entry, on both replicas, and checks the state.
func (w *world) commit() {
	w.Host.Commit(1)
	w.follower.CatchUp()
	w.check()
	w.observe()
}

func (w *world) check() {
	if a, b := w.machine(), w.follower.Machine.(*Machine); a.Hash() != b.Hash() {
		w.rt.Fatalf("replicas differ:\n%x\n%x", a.Snapshot(), b.Snapshot())
	}
	v := w.view()
	seeked := map[model.Partition]bool{}
	for ; w.checked < len(w.Log.Entries); w.checked++ {
		e, err := decodeEntry(w.Log.Entries[w.checked].Data)
		if err != nil {
			w.rt.Fatal(err)
		}
		switch c := e.command.(type) {
		case *seekCommand:
			for _, to := range c.to {
				seeked[to.partition], w.seekGen[to.partition] = true, v.Generation
				w.seeks[to.partition]++
				maps.DeleteFunc(w.tries, func(at grave, _ uint32) bool { return at.partition == to.partition })
			}
		case *letteredCommand:
			if !w.graves.has(deadGroup+model.GroupID(c.target), c.source, c.sequence) {
				w.rt.Fatalf("a move ended without a copy: %+v", c)
			}
		case *lapseCommand:
			for _, l := range c.lapses {
				w.lapsed(l)
			}
		}
	}
	if v.Generation < w.last.Generation {
		w.rt.Fatalf("generation %d after %d", v.Generation, w.last.Generation)
	}
	for p, part := range v.Partitions {
		key := [2]uint64{uint64(p), uint64(part.Fence)}
		if owner, ok := w.owners[key]; ok && owner != part.Owner {
			w.rt.Fatalf("partition %d, fence %d: owners %q and %q", p, part.Fence, owner, part.Owner)
		}
		w.owners[key] = part.Owner
		if p >= len(w.last.Partitions) {
			continue
		}
		before := w.last.Partitions[p]
		if part.Cursor < before.Cursor && !seeked[model.Partition(p)] {
			w.rt.Fatalf("partition %d: cursor fell from %d to %d", p, before.Cursor, part.Cursor)
		}
		w.checkFailed(model.Partition(p))
		changed := before.Owner != part.Owner || seeked[model.Partition(p)]
		if changed != (before.Fence != part.Fence) || part.Fence > v.Generation {
			w.rt.Fatalf("partition %d: %+v became %+v", p, before, part)
		}
	}
	w.last = v
}

// lapsed: what came back is no longer with the clients of that fence.
func (w *world) lapsed(l lapse) {
	part := &w.machine().state.subscriptions[w.nextID].partitions[l.partition]
	if part.fence != l.fence || part.isAcked(l.offset) || w.failed[grave{l.partition, l.offset}] != l.before {
		return
	}
	for _, c := range w.clients {
		if known, ok := c.next[l.partition]; ok && known.fence == l.fence {
			known.end = min(known.end, l.offset)
			c.next[l.partition] = known
		}
	}
}

// checkFailed: what is out keeps the limit, a delivery counts one attempt, and
// nobody counts attempts of what is acked.
func (w *world) checkFailed(p model.Partition) {
	st, l := w.machine().state.subscriptions[w.nextID], w.machine().lead
	maps.DeleteFunc(w.failed, func(at grave, _ uint32) bool { return at.partition == p })
	for _, f := range st.partitions[p].failed {
		at := grave{p, f.offset}
		if st.partitions[p].isAcked(f.offset) {
			w.rt.Fatalf("partition %d: %+v is acked", p, f)
		}
		if w.failed[at] = f.attempts; f.attempts > w.tries[at] {
			w.rt.Fatalf("partition %d: %+v, though it was given for the %dth time only", p, f, w.tries[at])
		}
	}
	out := uint64(0)
	for _, owned := range l.subscription(st.id).ownedBy(st, st.partitions[p].owner) {
		mem := l.subscription(st.id).at(st, owned)
		out += mem.out(&st.partitions[owned])
		if n := len(mem.leases); mem.leased > mem.delivered || n > 0 && mem.leases[n-1].to > mem.leased {
			w.rt.Fatalf("partition %d: %+v", owned, mem)
		}
	}
	if out > uint64(w.limit) && st.partitions[p].owner != "" {
		w.rt.Fatalf("%q holds %d messages, the limit is %d", st.partitions[p].owner, out, w.limit)
	}
}

// sendNack gives back one of the last ten messages that arrived.
func (w *world) sendNack(c *client, p model.Partition) {
	known := c.next[p]
	back := model.Offset(rapid.IntRange(1, 10).Draw(w.rt, "back"))
	if back > known.end {
		return
	}
	w.Call(&call.NackCursors{Target: target(), Member: c.id, Generation: known.pull,
		Offsets: []call.PartitionOffset{{Partition: p, Offset: known.end - back}},
		Delay:   time.Duration(rapid.IntRange(0, 3).Draw(w.rt, "delay")) * time.Second,
		Ends:    []call.PartitionOffset{{Partition: p, Offset: 1 << 40}}})
	w.observe()
}

func (w *world) sendExtend(c *client, p model.Partition) {
	known := c.next[p]
	w.Call(&call.ExtendLeases{Target: target(), Member: c.id, Generation: known.pull, Extension: 7 * time.Second,
		Offsets: []call.PartitionOffset{{Partition: p, Offset: known.end - min(known.end, 1)}}})
	w.observe()
}

// checkRestore: a replica made from the snapshot is the same.
func (w *world) checkRestore() {
	m := New(w.config)
	if err := m.Restore(w.machine().Snapshot()); err != nil || m.Hash() != w.machine().Hash() {
		w.rt.Fatalf("restore: %v", err)
	}
}

func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"pull":   func(*rapid.T) { w.startPull(w.someClient()) },
		"commit": func(*rapid.T) { w.commit() },
		"index":  func(*rapid.T) { w.FinishIndexes(); w.observe() },
		"gateway": func(*rapid.T) {
			if len(w.flows) > 0 {
				w.stepFlow(rapid.SampledFrom(w.flows).Draw(w.rt, "flow"))
			}
		},
		"ack":              func(*rapid.T) { w.sendAck(w.someClient(), w.somePartition()) },
		"ask":              func(*rapid.T) { w.answerOne() },
		"another ask":      func(*rapid.T) { w.answerOne() },
		"nack":             func(*rapid.T) { w.sendNack(w.someClient(), w.somePartition()) },
		"extend":           func(*rapid.T) { w.sendExtend(w.someClient(), w.somePartition()) },
		"single acks":      func(*rapid.T) { w.sendSingles(w.someClient(), w.somePartition()) },
		"more single acks": func(*rapid.T) { w.sendSingles(w.someClient(), w.somePartition()) },
		"seek": func(*rapid.T) {
			to := model.Offset(rapid.IntRange(0, 20).Draw(w.rt, "to"))
			w.Call(&call.MoveCursors{Target: target(), To: []call.PartitionOffset{{Partition: w.somePartition(), Offset: to}}})
		},
		"heartbeat": func(*rapid.T) { w.Call(&call.Heartbeat{Target: target(), Member: w.someClient().id}) },
		"leave":     func(*rapid.T) { w.Call(&call.Leave{Target: target(), Member: w.someClient().id}) },
		"restart client": func(*rapid.T) {
			c := w.someClient()
			c.open, c.sequence, c.next = nil, 0, map[model.Partition]received{}
		},
		"time": func(*rapid.T) {
			w.Advance(time.Duration(rapid.IntRange(1, 6000).Draw(w.rt, "ms")) * time.Millisecond)
			w.observe()
		},
		"grow": func(*rapid.T) {
			w.putTopic(min(8, len(w.view().Partitions)+1))
			w.Host.Machine.CatalogChanged(w.Host)
		},
		"failover": func(*rapid.T) {
			w.StepDown()
			w.observe()
			w.takeOver()
		},
		"drop": func(*rapid.T) {
			w.DropProposals = true
			w.startPull(w.someClient())
			w.sendAck(w.someClient(), w.somePartition())
			w.DropProposals = false
		},
		"whole pull":      w.wholePull,
		"another":         w.wholePull,
		"pull and ack":    w.pullAndAck,
		"more of the two": w.pullAndAck,
		"":                func(*rapid.T) { w.checkRestore() },
	}
}

func (w *world) wholePull(*rapid.T) { w.pullThrough(w.someClient()) }

func (w *world) pullAndAck(*rapid.T) {
	c := w.someClient()
	w.pullThrough(c)
	for _, p := range slices.Sorted(maps.Keys(c.next)) {
		w.sendAck(c, p)
	}
}

// pullThrough pulls to the end, with every other flow standing still.
func (w *world) pullThrough(c *client) {
	w.startPull(c)
	f := c.open
	w.quiet()
	w.stepFlow(f)
	w.quiet()
}

// quiet runs everything under way to its end, step by step.
func (w *world) quiet() {
	for w.Pending()+len(w.Indexes) > 0 || w.healing && len(w.Asks) > 0 {
		if w.Pending() > 0 {
			w.commit()
		} else if w.healing && len(w.Asks) > 0 {
			w.answerOne()
		} else {
			w.FinishIndexes()
			w.observe()
		}
	}
}

// heal lets half the clients go on for a minute, pulling and acking; then every
// partition must have an owner among them, evenly, and all that is pulled acked.
func (w *world) heal() {
	live := w.clients[:2]
	w.healing = true
	for range 30 {
		w.Advance(2 * time.Second)
		w.quiet()
		for _, c := range live {
			w.startPull(c)
			w.quiet()
			for _, f := range slices.Clone(w.flows) {
				w.stepFlow(f)
				w.quiet()
			}
			for _, p := range slices.Sorted(maps.Keys(c.next)) {
				known := c.next[p]
				ref := w.Call(&call.AckCursors{Target: target(), Member: c.id, Generation: known.pull,
					UpTo: []call.PartitionOffset{{Partition: p, Offset: known.end}},
					Ends: []call.PartitionOffset{{Partition: p, Offset: 1 << 40}}})
				w.acks[ref] = sentAck{call.PartitionOffset{Partition: p, Offset: known.end}, known.pull}
				w.quiet()
			}
		}
	}
	w.wantHealed(live)
	w.graves.check(w)
}

func (w *world) wantHealed(live []*client) {
	v, counts := w.view(), w.counts()
	n := len(v.Partitions)
	if len(v.Members) != len(live) {
		w.rt.Fatalf("members %+v", v.Members)
	}
	for _, c := range live {
		if got := counts[c.id]; got != n/2 && got != (n+1)/2 {
			w.rt.Fatalf("partitions per owner %v", counts)
		}
		for p, part := range v.Partitions {
			known := c.next[model.Partition(p)]
			if part.Owner == c.id && (known.fence != part.Fence || known.end != part.Cursor || part.Acked != 0) {
				w.rt.Fatalf("partition %d: %+v, its owner got %+v", p, part, known)
			}
		}
	}
	if l := w.machine().lead; len(l.pending) != 0 || len(l.waits) != 0 || len(l.acks) != 0 {
		w.rt.Fatalf("left over: %d proposals, %d requests", len(l.pending), len(l.waits))
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt)
		rt.Repeat(w.actions())
		w.heal()
	})
}
