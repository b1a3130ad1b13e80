package sim

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// Exit classes of a run: the codes of tapedeck-sim.
const (
	Passed         = 0
	SafetyBroken   = 10
	LivenessBroken = 11
	Crashed        = 12
	Undecided      = 13
)

// Result is what a run came to.
type Result struct {
	Exit       int
	Why        string     // the first thing found, one line; empty if passed
	Broken     *Violation // the invariant, if one broke
	Report     checker.Report
	Hash       uint64        // of the trace
	Points     []uint64      // the running hash after each 1,024 events
	Events     uint64        // taken off the heap
	Virtual    time.Duration // simulated
	Operations int           // client calls
	Acked      int           // messages acknowledged to sessions
	Probes     map[string]int
	Strikes    []Strike // that befell the run
	Stack      string   // of a panic
	History    *checker.History
	Final      checker.Final
	Linear     checker.LinearReport
	Faults     []checker.Annotation // what broke, for a picture of the history
}

// ExitName says an exit class in words.
func ExitName(exit int) string {
	switch exit {
	case Passed:
		return "passed"
	case SafetyBroken:
		return "safety broken"
	case LivenessBroken:
		return "liveness broken"
	case Crashed:
		return "crashed"
	}
	return "undecided"
}

// run is one seed's workload on one world.
type run struct {
	w          *World
	rec        *recorder
	clients    int
	producers  []*producer
	consumers  []*consumer
	refs       []string // subscriptions
	healed     bool     // the liveness phase has begun
	operations int
	acked      int
	counts     map[string]uint32 // partitions by topic
	final      checker.Final
	operator   *operator // nil before faults begin, and in scenarios
}

func (r *run) probe(name string) { r.w.probe(name) }

// resting says that clients begin nothing new.
func (r *run) resting() bool {
	stop := r.w.opts.Load.Stop
	return r.healed || stop > 0 && r.operations >= stop
}

func (r *run) partitions(topic string) uint32 { return max(r.counts[topic], 1) }

// Run simulates one set of options and judges it. line, if not nil, takes a line
// per interesting event.
func Run(o Options, line func(string)) (res Result) {
	o = o.clone() // an operator changes topics; the caller keeps what it asked for
	w := newWorld(o, line)
	r := &run{w: w, counts: map[string]uint32{}}
	r.rec = &recorder{w: w}
	defer func() {
		defer w.closeEngines()
		if p := recover(); p != nil {
			res.Exit, res.Why, res.Stack = Crashed, fmt.Sprintf("panic: %v", p), string(debug.Stack())
		}
		res.Hash, res.Points, res.Events, res.Virtual = w.trace.Hash(), w.trace.Points(), w.loop.ran, w.loop.now
		res.Operations, res.Acked, res.Probes, res.History = r.operations, r.acked, w.probes, &r.rec.history
		if w.nemesis != nil {
			res.Strikes = w.nemesis.struck
		}
		res.Final, res.Broken, res.Faults = r.final, w.broken, w.faults
	}()
	stuck := r.phases()
	if stuck != "" && line != nil {
		w.describe(line)
	}
	if w.broken != nil {
		res.Exit, res.Why = SafetyBroken, w.broken.String()
		return res
	}
	// Safety is judged whether or not the end was reached.
	report, linear := r.judge()
	res.Linear = linear
	switch {
	case stuck != "" && len(r.final.Logs) == 0 && r.retains():
		// Nobody could read where the logs begin: what retention took cannot be told
		// from what was skipped.
		res.Exit, res.Why = LivenessBroken, stuck
	case report.Result() == checker.Failed:
		f := report.Failures()[0]
		res.Exit, res.Why = SafetyBroken, f.Name+": "+f.Detail
	case stuck != "":
		res.Exit, res.Why = LivenessBroken, stuck
	case report.Result() == checker.Undecided:
		res.Exit, res.Why = Undecided, "a verdict is undecided: "+report.Line()
	}
	res.Report = report
	return res
}

// budgets for the search of linearizations: small windows decide nearly always,
// and what they leave undecided gets a wider look.
var budgets = []checker.Budget{
	{Window: 40, Steps: 200_000, Total: 20_000_000},
	{Window: 100, Steps: 2_000_000, Total: 50_000_000},
}

func (r *run) judge() (report checker.Report, linear checker.LinearReport) {
	for _, b := range budgets {
		report, linear = checker.CheckAll(&r.rec.history, r.final, b)
		if report.Result() != checker.Undecided {
			break
		}
	}
	return report, linear
}

// retains says that some topic lets go of messages.
func (r *run) retains() bool {
	for _, t := range r.w.opts.Topics {
		if t.RetentionBytes > 0 || t.RetentionTime > 0 {
			return true
		}
	}
	return r.w.opts.Operator.Retention > 0
}

// phases runs setup, safety, healing and liveness; it returns what was not
// reached in time, or "".
func (r *run) phases() (stuck string) {
	w := r.w
	for _, n := range w.nodes {
		w.loop.after(w.disks.between(0, 20*time.Millisecond), n.start)
	}
	if stuck := r.setup(); stuck != "" || w.broken != nil {
		return stuck
	}
	nemesis := w.startNemesis()
	operator := r.startOperator()
	r.startLoad()
	w.run(w.opts.Safety, nil)
	if w.broken != nil {
		return ""
	}
	nemesis.stop()
	operator.stop()
	w.choices = nil
	r.healed = true
	for _, p := range r.producers {
		p.session.Flush()
		p.pump()
	}
	r.drain()
	return r.liveness()
}

// eventually runs until done says nothing is missing, asking it every quarter
// of a virtual second; it returns what is missing when time is up.
func (r *run) eventually(within time.Duration, missing func() string) string {
	deadline := r.w.loop.now + within
	for {
		m := missing()
		if m == "" || r.w.broken != nil {
			return ""
		}
		if r.w.loop.now >= deadline {
			return m
		}
		r.w.run(250*time.Millisecond, nil)
	}
}

// must makes a call until it succeeds.
func (r *run) must(c *client, q call.Client, done func(result call.ClientResult)) (finished *bool) {
	finished = new(bool)
	var try func()
	try = func() {
		c.ask(q, 3*time.Second, func(result call.ClientResult, err *model.Error) {
			if err != nil {
				c.node = c.rand.IntN(len(r.w.nodes))
				c.later(100*time.Millisecond, try)
				return
			}
			*finished = true
			if done != nil {
				done(result)
			}
		})
	}
	try()
	return finished
}

// all makes calls one after the other until each succeeded.
func (r *run) all(c *client, within time.Duration, what string, qs ...call.Client) string {
	for i, q := range qs {
		finished := r.must(c, q, nil)
		stuck := r.eventually(within, func() string {
			if *finished {
				return ""
			}
			return fmt.Sprintf("%s: call %d (%T) did not succeed within %v", what, i, q, within)
		})
		if stuck != "" {
			return stuck
		}
	}
	return ""
}

// setup makes topics and subscriptions before anything breaks.
func (r *run) setup() string {
	c := r.newClient("setup")
	var qs []call.Client
	for _, t := range r.w.opts.Topics {
		r.counts[t.Name] = t.Partitions
		qs = append(qs, &call.Admin{Request: &call.CreateTopic{Name: t.Name, Owner: "sim", Partitions: t.Partitions,
			Settings: model.TopicSettings{Replicas: t.Replicas, RetentionTime: t.RetentionTime,
				RetentionBytes: t.RetentionBytes}}})
		for i := range r.w.opts.Load.Subscriptions {
			name := fmt.Sprintf("s%d", i+1)
			r.refs = append(r.refs, t.Name+"/"+name)
			qs = append(qs, &call.CreateSubscriptionCall{Topic: t.Name, Name: name,
				Settings: model.SubscriptionSettings{SessionTimeout: r.w.opts.Load.Session,
					AckDeadline: r.w.opts.Load.Session, Filter: r.w.opts.Load.filterOf(i)}})
		}
	}
	return r.all(c, 30*time.Second, "setup", append(qs, r.workSetup()...)...)
}

// startLoad starts every client. Each acts at intervals that share the
// operations out evenly.
func (r *run) startLoad() {
	o, l := &r.w.opts, &r.w.opts.Load
	actors := len(o.Topics) * (l.Producers + l.Plain + l.Readers + l.Subscriptions*(l.Raw+l.Describers+2*l.Consumers))
	every := o.Safety * time.Duration(actors) / time.Duration(max(l.Operations, 1))
	r.startWork()
	for _, t := range o.Topics {
		for i := range l.Producers {
			r.startProducer(t.Name, i+1, every)
		}
		for range l.Rivals {
			r.startRivals(t.Name, 2*every)
		}
		for i := range l.Plain {
			r.startPlain(t.Name, i+1, every)
		}
		for i := range l.Readers {
			r.startReader(t, i+1, every)
		}
		for s := range l.Subscriptions {
			ref := fmt.Sprintf("%s/s%d", t.Name, s+1)
			for i := range l.Consumers {
				r.startConsumer(ref, i+1, 0)
			}
			for i := range l.Raw {
				r.startRaw(ref, i+1, every)
			}
			for range l.Seekers {
				r.startSeeker(ref, t, 5*time.Second)
			}
			for range l.Keepers {
				r.startKeeper(ref, 4*time.Second)
			}
			for range l.Describers {
				r.startDescriber(ref, t.Name, every)
			}
		}
	}
}

// openCalls is longer than any client's call is pursued after its client gave up.
const openCalls = 8 * time.Second

// liveness requires that everything succeeds on a healed cluster.
func (r *run) liveness() string {
	within := r.w.opts.Liveness
	if stuck := r.eventually(within, r.restless); stuck != "" {
		return stuck
	}
	if stuck := r.eventually(within, r.unpublished); stuck != "" {
		return stuck
	}
	// A publish whose client gave up may still be on its way through a gateway:
	// only when those are over does lag 0 stay what it was.
	r.w.run(openCalls, nil)
	c := r.newClient("final")
	if stuck := r.eventually(within, r.undrained(c)); stuck != "" {
		return stuck
	}
	r.final.Drained = r.w.broken == nil
	for _, k := range r.consumers {
		if !k.dead {
			k.session.Leave(k.now())
			k.pump()
		}
	}
	if stuck := r.readBack(c); stuck != "" {
		return stuck
	}
	if stuck := r.eventually(keepsFor, r.keeps); stuck != "" {
		return stuck
	}
	return r.eventually(within, r.w.diverging)
}

// unpublished says which producer still waits, or failed without need.
func (r *run) unpublished() string {
	for _, p := range r.producers {
		if len(p.failed) > 0 {
			return p.name + ": " + p.failed[0]
		}
		if !p.session.Idle() {
			n, _ := p.session.Pending()
			_, err := p.session.Ready()
			return fmt.Sprintf("%s: %d messages are not published (%v)", p.name, n, err)
		}
	}
	return ""
}

// undrained asks for every subscription's lag until all are 0.
func (r *run) undrained(c *client) func() string {
	state := map[string]string{}
	asking := map[string]bool{}
	for _, ref := range r.refs {
		state[ref] = "not asked"
	}
	return func() string {
		for _, ref := range r.refs {
			if state[ref] == "" || asking[ref] {
				continue
			}
			asking[ref] = true
			c.ask(&call.GetSubscription{Subscription: ref}, 3*time.Second,
				func(result call.ClientResult, err *model.Error) {
					asking[ref] = false
					state[ref] = lagOf(result, err)
				})
		}
		for _, ref := range r.refs {
			if state[ref] != "" {
				return "subscription " + ref + " does not drain: " + state[ref]
			}
		}
		return ""
	}
}

func lagOf(result call.ClientResult, err *model.Error) string {
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, p := range result.(*call.GetSubscriptionResult).Partitions {
		if p.Err != nil {
			fmt.Fprintf(&b, "partition %d: %v ", p.Partition, p.Err)
		} else if p.Lag > 0 {
			fmt.Fprintf(&b, "partition %d: cursor %d of %d, owner %q ", p.Partition, p.Cursor, p.HighWatermark, p.Owner)
		}
	}
	return b.String()
}

// diverging says where replicas of a group differ, once they should not.
func (w *World) diverging() string {
	type seen struct {
		node    model.NodeID
		applied uint64
		hash    uint64
	}
	groups := map[model.GroupID]seen{}
	for _, n := range w.nodes {
		if n.harm.retired {
			continue
		}
		if !n.up {
			return string(n.id) + " is down"
		}
		for _, id := range n.host.Shard().Replicas() {
			v := n.host.Shard().Replica(id).View()
			w.members(n, id)
			s := seen{n.id, v.Applied, xxhash.Sum64(v.Machine.Snapshot())}
			old, there := groups[v.Group]
			switch {
			case !there:
				groups[v.Group] = s
			case old.applied != s.applied:
				return fmt.Sprintf("group %d: %s has applied %d, %s %d", v.Group, old.node, old.applied, n.id, s.applied)
			case old.hash != s.hash:
				w.violate("replicas differ", "group %d at applied index %d at rest: %s and %s have other states",
					v.Group, s.applied, old.node, n.id)
			}
		}
	}
	return ""
}

// leaders lists the nodes that lead some group, by index.
func (w *World) leaders() []*simNode {
	var out []*simNode
	for _, n := range w.nodes {
		if n.up && n.host.Shard().Load().Leading > 0 {
			out = append(out, n)
		}
	}
	return out
}
