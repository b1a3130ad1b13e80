package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// OperatorOptions are what the people who run the cluster do to it meanwhile: a
// mean time between two acts of each kind, 0 for never, and a mean time until
// one is undone.
type OperatorOptions struct {
	Move            time.Duration // a replica of a partition goes to another node
	Transfer        time.Duration // leadership goes to another replica
	Drain, DrainFor time.Duration // a node's replicas go elsewhere
	Join, JoinFor   time.Duration // a node is added; later one is removed
	Topic, TopicFor time.Duration // a topic is created, used and deleted
	Partitions      time.Duration // a topic gets one more partition
	Retention       time.Duration // a topic's retention is changed
}

// drawOperator draws what the operator does. Each kind is off in most seeds.
func drawOperator(s *stream, o *Options) {
	second := time.Second
	p := &o.Operator
	seldom := func(lo, hi time.Duration) time.Duration {
		if d := s.between(lo, hi); s.IntN(4) == 0 {
			return d
		}
		return 0
	}
	p.Move = seldom(3*second, 10*second)
	p.Transfer = seldom(2*second, 10*second)
	p.Drain, p.DrainFor = seldom(6*second, 15*second), s.between(2*second, 8*second)
	p.Join, p.JoinFor = seldom(4*second, 15*second), s.between(3*second, 12*second)
	p.Topic, p.TopicFor = seldom(4*second, 15*second), s.between(second, 8*second)
	p.Partitions = seldom(10*second, 25*second)
	p.Retention = seldom(5*second, 20*second)
}

// operator acts during the safety phase, then puts its house in order.
type operator struct {
	r       *run
	c       *client
	stopped bool
	joined  *simNode // added, as long as none was removed for it
	leaving *simNode // being drained and removed
	drained []model.NodeID
	topics  []string // its own, not deleted yet
	made    int
	// creating says of each of its topics whether the creation has ended.
	creating map[string]*bool
	owed     []*bool // calls that must succeed before the cluster can be at rest
}

func (r *run) startOperator() *operator {
	o := &operator{r: r, c: r.newClient("operator"), creating: map[string]*bool{}}
	r.operator = o
	p := &r.w.opts.Operator
	for _, h := range []chore{
		{"move", p.Move, 0, o.move},
		{"transfer", p.Transfer, 0, o.transfer},
		{"drain", p.Drain, p.DrainFor, o.drain},
		{"join", p.Join, p.JoinFor, o.join},
		{"topic", p.Topic, p.TopicFor, o.topic},
		{"partitions", p.Partitions, 0, o.partitions},
		{"retention", p.Retention, 0, o.retention},
	} {
		if h.every > 0 {
			o.live(h, newStream(r.w.opts.Seed, "operator "+h.name))
		}
	}
	return o
}

// chore is a habit of the operator's. act does something and returns what undoes
// it, or nil.
type chore struct {
	name         string
	every, mends time.Duration // means; every 0: never
	act          func(s *stream) (undo func())
}

// live schedules a chore's next turn, and after it the one after.
func (o *operator) live(h chore, s *stream) {
	o.r.w.loop.after(s.about(h.every), func() {
		if o.stopped {
			return
		}
		undo, lasts := h.act(s), s.about(h.mends)
		if undo != nil {
			o.r.w.loop.after(lasts, func() {
				if !o.stopped {
					undo()
				}
			})
		}
		o.live(h, s)
	})
}

// stop undoes what is not to stay. What is under way must come to its end.
func (o *operator) stop() {
	o.stopped = true
	for _, id := range slices.Clone(o.drained) {
		o.undrain(id)
	}
	for _, t := range o.topics {
		o.deleteTopic(t)
	}
	for i := range o.r.w.opts.Topics {
		o.count(i)
	}
}

// restless says what keeps the cluster from being at rest, with everybody where
// they belong.
func (r *run) restless() string {
	if o := r.operator; o != nil {
		for _, done := range o.owed {
			if !*done {
				return "a call of the operator does not succeed"
			}
		}
		if o.leaving != nil {
			return string(o.leaving.id) + " does not leave"
		}
	}
	for _, n := range r.w.nodes {
		if owed := n.unmended(); owed != "" {
			return string(n.id) + " does not mend its files: " + owed
		}
	}
	return r.w.unsettled()
}

// ask makes a call that may fail.
func (o *operator) ask(q call.Client) { o.try(q, func(*model.Error) {}) }

func (o *operator) try(q call.Client, done func(err *model.Error)) {
	if a, ok := q.(*call.Admin); ok {
		o.say("%T %+v", a.Request, a.Request)
	} else {
		o.say("%T", q)
	}
	o.c.ask(q, 3*time.Second, func(_ call.ClientResult, err *model.Error) { done(err) })
}

func (o *operator) say(format string, args ...any) {
	o.r.w.trace.say(o.r.w.loop.now, "operator", kindClient, format, args...)
}

// must makes a call until it succeeds, or fails with the code that says that it
// succeeded before.
func (o *operator) must(q call.Client, or model.Code) {
	done := new(bool)
	o.owed = append(o.owed, done)
	var again func()
	again = func() {
		o.try(q, func(err *model.Error) {
			if *done = err == nil || err.Code == or; !*done {
				o.c.later(200*time.Millisecond, again)
			}
		})
	}
	again()
}

// some picks a partition of a topic of the run and its group as far as the
// cluster knows.
func (o *operator) some(s *stream) (topic string, p model.Partition, g *model.Group) {
	which, at := s.Uint64(), s.Uint64()
	cat, why := o.r.w.catalog()
	topics := o.r.w.opts.Topics
	t := topics[which%uint64(len(topics))].Name
	if why != "" {
		return t, 0, nil
	}
	known, ok := cat.Topic(t)
	if !ok {
		return t, 0, nil
	}
	n := at % uint64(len(known.Partitions))
	g, _ = cat.Group(known.Partitions[n])
	return t, model.Partition(n), g
}

func (o *operator) move(s *stream) func() {
	t, p, g := o.some(s)
	from, to := s.Uint64(), s.Uint64()
	if g == nil || len(g.Replicas) == 0 {
		return nil
	}
	nodes := o.r.w.nodes
	o.r.w.probe("operator moves")
	o.ask(&call.Admin{Request: &call.MovePartition{Topic: t, Partition: p,
		From: g.Replicas[from%uint64(len(g.Replicas))].Node, To: nodes[to%uint64(len(nodes))].id}})
	return nil
}

func (o *operator) transfer(s *stream) func() {
	t, p, g := o.some(s)
	to := s.Uint64()
	if g != nil && len(g.Replicas) > 0 {
		o.r.w.probe("operator transfers")
		o.ask(&call.TransferPartition{Topic: t, Partition: p, To: g.Replicas[to%uint64(len(g.Replicas))].Node})
	}
	return nil
}

func (o *operator) drain(s *stream) func() {
	n := o.r.w.nodes[s.IntN(len(o.r.w.nodes))]
	if n.harm.retired || slices.Contains(o.drained, n.id) || o.leaving == n {
		return nil
	}
	o.r.w.probe("operator drains")
	o.drained = append(o.drained, n.id)
	o.ask(&call.Admin{Request: &call.DrainNode{Node: n.id}})
	return func() { o.undrain(n.id) }
}

func (o *operator) undrain(id model.NodeID) {
	o.drained = slices.DeleteFunc(o.drained, func(d model.NodeID) bool { return d == id })
	if o.leaving == nil || o.leaving.id != id {
		o.must(&call.Admin{Request: &call.DrainNode{Node: id, Undo: true}}, model.NotFound)
	}
}

// join starts one more node. Undoing it removes some node: the new one, or one
// that was there before.
func (o *operator) join(s *stream) func() {
	w := o.r.w
	if o.joined != nil || o.leaving != nil || len(w.nodes) > w.founded+2 {
		return nil
	}
	o.joined = w.addNode()
	w.probe("operator adds a node")
	return func() {
		n := w.nodes[s.IntN(len(w.nodes))]
		if n.harm.retired || o.joined.host == nil || o.joined.host.Shard().Catalog() == nil {
			return // the new one stays
		}
		o.joined, o.leaving = nil, n
		w.probe("operator removes a node")
		o.say("removes %s", n.id)
		o.remove(n)
	}
}

// remove drains and removes a node, and stops it once meta has let go of it.
// That goes on when everything is healed: it has to come to an end. A node whose
// request to join was on its way while it was removed is known again afterwards,
// as a new one: a person sees it in the list and removes it once more.
func (o *operator) remove(n *simNode) {
	w := o.r.w
	cat, why := w.catalog()
	listed := func(m *model.Node) bool { return m.ID == n.id }
	again := func() { w.loop.after(500*time.Millisecond, func() { o.remove(n) }) }
	switch {
	case why != "":
		again()
	case !slices.ContainsFunc(cat.Nodes(), listed):
		if !n.harm.retired {
			w.retire(n)
		}
		o.leaving = nil
		w.loop.after(2*time.Second, func() { o.keepOut(n) })
	default:
		o.try(&call.Admin{Request: &call.DrainNode{Node: n.id}}, func(err *model.Error) {
			if err != nil && err.Code == model.FailedPrecondition {
				o.say("%s stays: %v", n.id, err)
				o.leaving = nil
				w.engage(n)
				return
			}
			o.try(&call.Admin{Request: &call.RemoveNode{Node: n.id}}, func(*model.Error) { again() })
		})
	}
}

// keepOut looks after a removed node's name: if meta knows it again, it is removed again.
func (o *operator) keepOut(n *simNode) {
	cat, why := o.r.w.catalog()
	again := why == "" && slices.ContainsFunc(cat.Nodes(), func(m *model.Node) bool { return m.ID == n.id })
	switch {
	case !n.harm.retired:
	case again && o.leaving == nil:
		o.r.w.probe("a removed node joined again")
		o.leaving = n
		o.remove(n)
	default:
		o.r.w.loop.after(2*time.Second, func() { o.keepOut(n) })
	}
}

// topic makes a topic of its own, publishes a little, and deletes it.
func (o *operator) topic(s *stream) func() {
	o.made++
	t := fmt.Sprintf("extra%d", o.made)
	q := &call.CreateTopic{Name: t, Owner: "sim", Partitions: pick[uint32](s, 1, 2),
		Settings: model.TopicSettings{Replicas: o.r.w.opts.Topics[0].Replicas}}
	if len(o.topics) > 2 {
		return nil
	}
	o.topics = append(o.topics, t)
	o.r.w.probe("operator creates a topic")
	var sent int
	made := new(bool)
	o.owed = append(o.owed, made)
	o.creating[t] = made
	o.try(&call.Admin{Request: q}, func(err *model.Error) {
		*made = true
		for ; err == nil && sent < 5; sent++ {
			o.ask(&call.Publish{Topic: t, HasPartition: true,
				Messages: []batch.Message{{Payload: fmt.Appendf(nil, "%s-%d", t, sent)}}})
		}
	})
	return func() {
		o.r.w.probe("operator deletes a topic")
		o.topics = slices.DeleteFunc(o.topics, func(d string) bool { return d == t })
		o.deleteTopic(t)
	}
}

// deleteTopic deletes a topic whose creation has come to its end: before that it
// would not be found, and be there afterwards.
func (o *operator) deleteTopic(t string) {
	if made := o.creating[t]; !*made {
		o.r.w.loop.after(100*time.Millisecond, func() { o.deleteTopic(t) })
		return
	}
	o.must(&call.Admin{Request: &call.DeleteTopic{Name: t, Force: true}}, model.NotFound)
}

// maxPartitions bounds how far a topic grows.
const maxPartitions = 5

func (o *operator) partitions(s *stream) func() {
	i := s.IntN(len(o.r.w.opts.Topics))
	t := &o.r.w.opts.Topics[i]
	if t.Partitions >= maxPartitions {
		return nil
	}
	o.r.w.probe("operator adds a partition")
	o.try(&call.Admin{Request: &call.UpdateTopic{Name: t.Name, Partitions: t.Partitions + 1}},
		func(*model.Error) { o.count(i) })
	return nil
}

// count learns how many partitions a topic has by now.
func (o *operator) count(i int) {
	t := &o.r.w.opts.Topics[i]
	done := new(bool)
	o.owed = append(o.owed, done)
	var again func()
	again = func() {
		o.c.ask(&call.GetTopic{Name: t.Name}, 3*time.Second, func(result call.ClientResult, err *model.Error) {
			if *done = err == nil; !*done {
				o.c.later(200*time.Millisecond, again)
				return
			}
			t.Partitions = max(t.Partitions, uint32(len(result.(*call.GetTopicResult).Topic.Partitions)))
			o.r.counts[t.Name] = t.Partitions
		})
	}
	again()
}

func (o *operator) retention(s *stream) func() {
	t := o.r.w.opts.Topics[s.IntN(len(o.r.w.opts.Topics))].Name
	bytes := pick[uint64](s, 5_000, 50_000, math.MaxUint64)
	o.r.w.probe("operator changes retention")
	o.ask(&call.Admin{Request: &call.UpdateTopic{Name: t, Settings: model.TopicSettings{RetentionBytes: bytes}}})
	return nil
}

// addNode makes a node that knows the founders, and starts it.
func (w *World) addNode() *simNode {
	id := model.NodeID(fmt.Sprintf("n%d", len(w.nodes)+1))
	w.ids = append(w.ids, id)
	n := newNode(w, len(w.nodes), newClock(0, 0))
	w.nodes = append(w.nodes, n)
	w.inv.seen = append(w.inv.seen, nil)
	n.start()
	return n
}

// retire stops a node for good.
func (w *World) retire(n *simNode) {
	n.crash(keepUnsynced)
	n.harm.retired, n.harm.damaged = true, false
	w.retired = true
}

// engage starts a retired node again, that is to stay.
func (w *World) engage(n *simNode) {
	if n.harm.retired {
		n.harm.retired = false
		n.start()
	}
}

// peersOf lists the nodes that a node is configured with: the founders, or, for
// one that joined or that outlived a founder, whoever is there.
func (w *World) peersOf(n *simNode) []model.NodeID {
	var there []model.NodeID
	for i, id := range w.ids {
		switch {
		case i >= len(w.nodes): // not made yet: all of these are founders
			there = append(there, id)
		case !w.nodes[i].harm.retired && (i < w.founded || n.index >= w.founded || w.retired):
			there = append(there, id)
		}
	}
	return there
}
