package subscription

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

const (
	sharedEnd  model.Offset = 30 // of every partition
	sharedKeys              = 4
)

// crowd drives a shared subscription: members pull, ack, give back, fall
// silent, and come late, over failovers and seeks. What must hold is looked at
// after each entry.
type crowd struct {
	*world
	settings model.SubscriptionSettings
	members  []model.MemberID
	late     []*call.Deliver // read, and not yet told
	under    map[group.Ref]*call.Deliver
	got      []gotten
	out      map[grave]slot // leases as of the last entry
	given    map[grave]uint32
}

// gotten is a message that arrived somewhere.
type gotten struct {
	member     model.MemberID
	at         grave
	generation model.Generation
	delivery   uint64
}

func keyOf(o model.Offset) uint32 {
	if k := uint32(o*7+o/5) % sharedKeys; k > 0 {
		return k
	}
	return keyless
}

func newCrowd(t *testing.T, rt *rapid.T) *crowd {
	s := model.SubscriptionSettings{Mode: model.ModeShared, AckDeadline: 4 * time.Second,
		KeyOrdered:        rapid.Bool().Draw(rt, "by key"),
		MaxInFlightMember: rapid.SampledFrom([]uint32{2, 5, 1000}).Draw(rt, "a member's limit"),
		MaxInFlight:       rapid.SampledFrom([]uint32{0, 7}).Draw(rt, "limit")}
	w := &world{bench: newBench(t, rapid.IntRange(1, 2).Draw(rt, "partitions")), rt: rt, graves: newGraves(),
		seeks: map[model.Partition]int{}}
	if rapid.Bool().Draw(rt, "dead letters") {
		s.MaxAttempts, s.DeadLetterTopic = 3, "dead"
		w.Cat.PutTopic(&model.Topic{ID: 2, Name: "dead", Partitions: []model.GroupID{deadGroup, deadGroup + 1}})
	}
	w.StepDown()
	w.nextID++
	w.settings = s
	w.create()
	w.Lead()
	c := &crowd{world: w, settings: s, under: map[group.Ref]*call.Deliver{}, out: map[grave]slot{},
		given: map[grave]uint32{}}
	for i := range 3 {
		c.members = append(c.members, model.MemberID(fmt.Sprint("c", i)))
	}
	return c
}

func (c *crowd) state() *subscription { return c.machine().state.subscriptions[c.nextID] }

// read asks for a grant and reads some of it.
func (c *crowd) read(m model.MemberID, n model.Offset) {
	resp, err := c.Do(&call.Grant{Target: target(), Member: m})
	c.look()
	if err != nil {
		return
	}
	g := resp.(*call.Granted)
	req := &call.Deliver{Target: target(), Member: m, Generation: g.Generation}
	for _, r := range g.Ranges {
		to := sharedEnd
		if r.To != 0 {
			to = min(to, r.To)
		}
		for o := r.From; o < to && n > 0; o++ {
			if slices.ContainsFunc(g.Acked, func(a call.Range) bool {
				return a.Partition == r.Partition && a.From <= o && o < a.To
			}) {
				continue
			}
			n--
			req.Ranges = append(req.Ranges, span(r.Partition, o, o+1))
			req.Keys = append(req.Keys, keyOf(o))
		}
	}
	c.late = append(c.late, req)
}

func (c *crowd) tell() {
	if len(c.late) == 0 {
		return
	}
	i := rapid.IntRange(0, len(c.late)-1).Draw(c.rt, "which")
	req := c.late[i]
	c.late = slices.Delete(c.late, i, i+1)
	ref := c.Call(req)
	c.under[ref] = req
	if rapid.IntRange(0, 5).Draw(c.rt, "patience") == 0 {
		c.Cancel(ref)
		delete(c.under, ref)
	}
}

func (c *crowd) some() (gotten, bool) {
	if len(c.got) == 0 {
		return gotten{}, false
	}
	return c.got[rapid.IntRange(max(0, len(c.got)-8), len(c.got)-1).Draw(c.rt, "message")], true
}

func (c *crowd) ack() {
	if g, ok := c.some(); ok {
		c.Call(&call.AckCursors{Target: target(), Member: g.member, Generation: g.generation,
			Offsets: at(g.at.partition, g.at.offset)})
	}
}

func (c *crowd) nack() {
	if g, ok := c.some(); ok {
		c.Call(&call.NackCursors{Target: target(), Member: g.member, Generation: g.generation,
			Offsets: at(g.at.partition, g.at.offset), Deliveries: []uint64{g.delivery}})
	}
}

// step commits one entry and looks.
func (c *crowd) step() {
	c.Host.Commit(1)
	c.look()
}

// look checks the state, and what arrived.
func (c *crowd) look() {
	for c.follower.ApplyNext() {
		c.count(c.follower.Machine.(*Machine).state.subscriptions[c.nextID])
	}
	if a, b := c.machine(), c.follower.Machine.(*Machine); a.Hash() != b.Hash() {
		c.rt.Fatalf("replicas differ:\n%x\n%x", a.Snapshot(), b.Snapshot())
	}
	st := c.state()
	if st == nil {
		return
	}
	if err := st.check(); err != nil {
		c.rt.Fatal(err)
	}
	for _, mb := range st.members {
		own, all := st.held(mb.joined)
		if own > uint64(c.settings.MaxInFlightMember) || c.settings.MaxInFlight > 0 && all > uint64(c.settings.MaxInFlight) {
			c.rt.Fatalf("%s holds %d, all hold %d", mb.id, own, all)
		}
	}
	for ref, req := range c.under {
		a, ok := c.Answers[ref]
		if !ok {
			continue
		}
		delete(c.under, ref)
		if a.Err == nil {
			c.arrive(req.Member, a.Resp.(*call.Delivered))
		}
	}
	c.graves.check(c.world)
}

// count follows what each entry gives out: no message has more attempts than it
// was given out.
func (c *crowd) count(st *subscription) {
	if st == nil {
		return
	}
	out := map[grave]slot{}
	for p := range st.partitions {
		for _, s := range st.partitions[p].slots {
			at := grave{model.Partition(p), s.offset}
			if !s.out() {
				continue
			}
			if out[at] = s; c.out[at].delivery != s.delivery {
				c.given[at]++
			}
		}
		for _, f := range st.partitions[p].failed {
			if at := (grave{model.Partition(p), f.offset}); f.attempts > c.given[at] {
				c.rt.Fatalf("%+v has %d attempts after %d deliveries", at, f.attempts, c.given[at])
			}
		}
	}
	c.out = out
}

func (c *crowd) arrive(m model.MemberID, d *call.Delivered) {
	for _, r := range d.Ranges {
		for o := r.From; o < r.To; o++ {
			c.got = append(c.got, gotten{m, grave{r.Partition, o}, d.Generation, d.Delivery})
		}
	}
}

func (c *crowd) seekSome() {
	p := c.somePartition()
	c.seeks[p]++
	c.Call(&call.MoveCursors{Target: target(), To: []call.PartitionOffset{
		{Partition: p, Offset: model.Offset(rapid.IntRange(0, int(sharedEnd)).Draw(c.rt, "to"))}}})
}

// drain has one member take and ack all there is.
func (c *crowd) drain() {
	c.healing = true
	c.grant("last", 0)
	c.look()
	for round := 0; ; round++ {
		done := true
		for p := range c.state().partitions {
			done = done && c.state().partitions[p].cursor >= sharedEnd
		}
		if done {
			return
		}
		if round == 400 {
			c.rt.Fatalf("not drained: %+v", c.state().partitions)
		}
		c.read("last", sharedEnd)
		for len(c.late) > 0 {
			c.tell()
		}
		c.Settle()
		c.look()
		for _, g := range c.got {
			c.Call(&call.AckCursors{Target: target(), Member: g.member, Generation: g.generation,
				Offsets: at(g.at.partition, g.at.offset)})
		}
		c.got = nil
		for len(c.Asks) > 0 {
			c.answerOne()
			c.Settle()
			c.look()
		}
		c.Advance(time.Second)
		c.Settle()
		c.look()
	}
}

func TestSharedModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newCrowd(t, rt)
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) { c.rt = rt; c.look() },
			"read": func(rt *rapid.T) {
				c.read(rapid.SampledFrom(c.members).Draw(rt, "member"),
					model.Offset(rapid.IntRange(1, 6).Draw(rt, "messages")))
			},
			"tell":   func(*rapid.T) { c.tell() },
			"ack":    func(*rapid.T) { c.ack() },
			"ack 2":  func(*rapid.T) { c.ack() },
			"nack":   func(*rapid.T) { c.nack() },
			"commit": func(*rapid.T) { c.step() },
			"settle": func(*rapid.T) { c.Settle(); c.look() },
			"wait": func(rt *rapid.T) {
				c.Advance(time.Duration(rapid.IntRange(1, 5000).Draw(rt, "ms")) * time.Millisecond)
				c.look()
			},
			"bury": func(*rapid.T) { c.answerOne(); c.look() },
			"seek": func(*rapid.T) { c.seekSome() },
			"failover": func(*rapid.T) {
				c.StepDown()
				c.look()
				clear(c.under) // requests are the host's
				c.takeOver()
				c.look()
			},
		})
		c.rt = rt
		c.drain()
	})
}
