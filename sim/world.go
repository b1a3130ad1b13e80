package sim

import (
	"fmt"
	"time"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/sim/simnet"
)

// World is one simulated cluster with its clients' links: what runs and
// scenarios are both made of.
type World struct {
	opts  Options
	loop  loop
	trace *Trace
	net   *simnet.Net
	nodes []*simNode
	ids   []model.NodeID

	disks   *stream // delays of disk work
	links   *stream // client links
	crashes *stream // what a crash keeps
	inv     *invariants
	// broken is the first violated invariant; the run stops there.
	broken  *Violation
	faults  []checker.Annotation
	probes  map[string]int // how often something worth reaching was reached
	request uint64

	replays *stream  // which checkpoints are held to the live state
	harms   *stream  // what a stopped node's disk does, and when it is started again
	nemesis *nemesis // nil before the faults of a run begin, and in scenarios
	retired bool     // some node was removed for good
	choices Choices  // live at the moment
	chooser *stream
	founded int // nodes that founded the cluster; the others joined
}

// Violation is a broken invariant: which, where, when, and what was seen.
type Violation struct {
	Invariant string
	Detail    string
	At        time.Duration
}

// String is one line.
func (v *Violation) String() string {
	return fmt.Sprintf("%s at %.6fs: %s", v.Invariant, v.At.Seconds(), v.Detail)
}

func newWorld(o Options, line func(string)) *World {
	w := &World{
		opts:    o,
		trace:   newTrace(line),
		probes:  map[string]int{},
		disks:   newStream(o.Seed, "disks"),
		links:   newStream(o.Seed, "client links"),
		crashes: newStream(o.Seed, "crashes"),
		harms:   newStream(o.Seed, "harm"),
		replays: newStream(o.Seed, "replay"),
		choices: o.Choices,
		chooser: newStream(o.Seed, "choices"),
		founded: o.Nodes,
	}
	w.inv = newInvariants(w)
	w.net = simnet.New(netOptions(o.Network), outside{w}, newStream(o.Seed, "network").Rand)
	clocks := newStream(o.Seed, "clocks")
	for i := range o.Nodes {
		w.ids = append(w.ids, model.NodeID(fmt.Sprintf("n%d", i+1)))
		offset := clocks.between(-o.Clock.MaxOffset, o.Clock.MaxOffset)
		drift := int64(clocks.between(-time.Duration(o.Clock.MaxDrift), time.Duration(o.Clock.MaxDrift)))
		w.nodes = append(w.nodes, newNode(w, i, newClock(offset, drift)))
	}
	return w
}

func netOptions(o NetworkOptions) simnet.Options {
	return simnet.Options{MinDelay: o.MinDelay, MaxDelay: o.MaxDelay, Loss: int(o.Loss),
		Duplicate: int(o.Duplicate), Reorder: int(o.Reorder), Burst: int(o.Burst)}
}

// fault traces something that breaks or mends, and keeps it for the picture.
func (w *World) fault(who model.NodeID, k kind, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	at := checker.Moment(w.loop.now)
	w.faults = append(w.faults, checker.Annotation{Tag: string(who), From: at, To: at, Text: kindNames[k] + " " + text})
	w.trace.say(w.loop.now, string(who), k, "%s", text)
}

// violate records a broken invariant; the first one counts.
func (w *World) violate(invariant, format string, args ...any) {
	if w.broken == nil {
		w.broken = &Violation{Invariant: invariant, Detail: fmt.Sprintf(format, args...), At: w.loop.now}
		w.trace.say(w.loop.now, "check", kindPhase, "VIOLATED %s: %s", invariant, w.broken.Detail)
	}
}

// run advances virtual time by d, or until stop says so. It ends early when an
// invariant breaks.
func (w *World) run(d time.Duration, stop func() bool) {
	limit := w.loop.now + d
	for w.broken == nil && (stop == nil || !stop()) {
		if !w.loop.step(limit) {
			return
		}
	}
}

func (w *World) node(id model.NodeID) *simNode {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// outside connects the network to the world.
type outside struct{ w *World }

func (o outside) After(d time.Duration, run func()) { o.w.loop.after(d, run) }
func (o outside) Now() time.Duration                { return o.w.loop.now }

func (o outside) Deliver(from, to model.NodeID, data []byte) { o.w.node(to).packet(from, data) }
func (o outside) Down(at, peer model.NodeID)                 { o.w.node(at).peerDown(peer) }
