package sim

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/node"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// farAway is the time beyond which a wake is not scheduled: no run lasts that long.
const farAway = 10 * time.Hour

// simNode is one node: the host, its clocks, its disk, and the lanes between
// them. It implements node.Env. Invariant: nothing scheduled for one boot runs
// in another, and nothing runs while the process is paused.
type simNode struct {
	w     *World
	index int
	id    model.NodeID
	clock clock
	disk  *simdisk.Disk
	fs    disk.FS // of this boot
	// engine is the journal's, of the latest boot.
	engine record.Engine
	host   *node.Host
	rand   *stream // of this node's boots

	// book is whose address this boot was told: to others it cannot send.
	book map[model.NodeID]bool

	boot     uint64 // raised by start and crash
	up       bool
	paused   bool
	deferred []func() // what came in while paused
	slow     bool     // a slow disk: work takes ten times as long
	stalled  bool     // the journal completes nothing
	waiting  func()   // the write that the stall holds back
	harm     harm

	journal journalLane
	lanes   map[node.Lane]*lane
	wake    wake
	pending map[uint64]*request // client requests under way here
}

// journalLane gathers steps' work while a sync is under way.
type journalLane struct {
	queue []*node.JournalWork // waiting
	doing []*node.JournalWork // being written
	then  time.Duration       // when the last continuation runs: they keep their order
}

// lane is a FIFO of work; last is when the latest work ends.
type lane struct {
	last    time.Duration
	pending []node.Work
}

// wake is the host's timer: one live event at armed, moved on if it comes early.
type wake struct {
	want  model.Mono
	armed time.Duration
	on    bool
}

func newNode(w *World, index int, c clock) *simNode {
	n := &simNode{w: w, index: index, id: w.ids[index], clock: c}
	n.rand = newStream(w.opts.Seed, "node "+string(n.id))
	n.disk = simdisk.New()
	return n
}

// live wraps what is to run on the node's thread in this boot: dropped after a
// crash, put off while paused.
func (n *simNode) live(run func()) func() {
	boot := n.boot
	return func() {
		switch {
		case n.boot != boot || !n.up || n.harm.stopping:
		case n.paused:
			n.deferred = append(n.deferred, run)
		default:
			run()
		}
	}
}

// enter runs one step of the host and judges what it did.
func (n *simNode) enter(k kind, content uint64, run func()) {
	n.w.trace.note(n.w.loop.now, n.index, k, content)
	run()
	if n.up {
		n.w.inv.after(n)
	}
}

// start opens the data folder and starts the host.
func (n *simNode) start() {
	if n.harm.retired {
		return // removed for good, by whoever it was to be started again
	}
	w := n.w
	n.boot++
	n.up, n.paused, n.deferred = true, false, nil
	n.stalled, n.waiting, n.harm.stopping = false, nil, false
	n.journal, n.lanes, n.wake = journalLane{}, map[node.Lane]*lane{}, wake{}
	n.pending = map[uint64]*request{}
	n.clock.boot(w.loop.now, model.Mono(n.rand.Int64N(int64(time.Hour))))
	n.fs = n.disk.FS()
	n.closeEngine()
	n.engine = n.w.newEngine(n.fs)
	host, err := node.Open(n.config())
	w.trace.note(w.loop.now, n.index, kindStart, n.boot)
	if err != nil {
		n.up = false
		n.notStarted(err)
		return
	}
	w.fault(n.id, kindStart, "boot %d", n.boot)
	n.host = host
	w.inv.started(n)
	n.enter(kindStart, n.boot, func() { host.Start(n) })
	n.watchDisk()
}

func (n *simNode) config() node.Config {
	o := &n.w.opts
	n.book = map[model.NodeID]bool{}
	cfg := core.Config{Self: n.id, Seed: n.rand.Uint64(), Timing: o.Timing, Limits: o.Limits,
		Coordinators: o.Coordinators, Choice: n.w.choose,
		Probe: func(p probe.Point) { n.w.probe(string(p)) }}
	for _, id := range n.w.peersOf(n) {
		cfg.Peers = append(cfg.Peers, model.Node{ID: id, Address: string(id) + ":7070"})
		n.book[id] = true
	}
	return node.Config{Core: cfg, FS: n.fs, Journal: n.engine,
		NewDisk: model.DiskID(n.rand.Uint64() | 1), Random: n.boot, Notice: n.notice,
		Peer: func(p model.Node) { n.book[p.ID] = p.Address != "" }}
}

// notice takes what the node would log.
func (n *simNode) notice(text string) { n.w.fault(n.id, kindNotice, "%s", text) }

// crash stops the process: what is not synced is at the mercy of keep.
func (n *simNode) crash(keep unsynced) {
	if !n.up {
		return
	}
	w := n.w
	w.trace.note(w.loop.now, n.index, kindCrash, n.boot)
	w.fault(n.id, kindCrash, "unsynced=%s", keep)
	n.w.inv.stopped(n)
	n.struck("crash")
	w.probe("crash, unsynced=" + string(keep))
	if n.host.Shard().Load().Checkpoints > 0 {
		w.probe("crash after a checkpoint of this boot")
	}
	if len(n.journal.doing) > 0 {
		w.probe("crash during a journal write")
	}
	n.dying(keep)
	n.up, n.paused, n.deferred = false, false, nil
	n.boot++
	n.host = nil
	w.net.NodeDown(n.id, w.ids)
	n.failPending()
}

// pause stalls the process; resume lets it take up what came meanwhile.
func (n *simNode) pause() {
	if n.up && !n.paused {
		n.struck("pause")
		n.paused = true
		n.w.trace.note(n.w.loop.now, n.index, kindPause, 0)
		n.w.fault(n.id, kindPause, "")
	}
}

func (n *simNode) resume() {
	if !n.up || !n.paused {
		return
	}
	n.paused = false
	n.w.trace.note(n.w.loop.now, n.index, kindResume, uint64(len(n.deferred)))
	n.w.fault(n.id, kindResume, "%d events waited", len(n.deferred))
	runs := n.deferred
	n.deferred = nil
	for _, run := range runs {
		n.w.loop.after(0, n.live(run))
	}
}

func (n *simNode) packet(from model.NodeID, data []byte) {
	n.live(func() {
		n.enter(kindPacket, xxhash.Sum64(data), func() { n.host.Step(core.Packet{From: from, Data: data}) })
	})()
}

func (n *simNode) peerDown(peer model.NodeID) {
	n.live(func() {
		n.enter(kindPeerDown, xxhash.Sum64String(string(peer)), func() { n.host.Step(core.PeerDown{Peer: peer}) })
	})()
}

// Now implements node.Env.
func (n *simNode) Now() model.Instant { return n.clock.at(n.w.loop.now) }

// Send implements node.Env.
func (n *simNode) Send(to model.NodeID, packet []byte) {
	n.w.trace.note(n.w.loop.now, n.index, kindSend, xxhash.Sum64(packet))
	n.w.inv.sending(n, to, packet)
	if n.book[to] && n.w.node(to) != nil && !n.harm.stopping {
		n.w.net.Send(n.id, to, packet)
	}
}

// Wake implements node.Env. An armed event that comes too early moves itself on.
func (n *simNode) Wake(at model.Mono) {
	n.wake.want = at
	n.arm()
}

func (n *simNode) arm() {
	if n.wake.want.Sub(n.Now().Mono) > farAway {
		return
	}
	t := max(n.clock.until(n.wake.want), n.w.loop.now)
	if n.wake.on && n.wake.armed <= t {
		return
	}
	n.wake.on, n.wake.armed = true, t
	n.w.loop.at(t, n.live(func() {
		if t != n.wake.armed {
			return // an earlier one was armed after this
		}
		n.wake.on = false
		if n.Now().Mono < n.wake.want {
			n.arm()
			return
		}
		n.wake.want = model.Never
		n.enter(kindTick, 0, n.host.Tick)
	}))
}

// RunJournal implements node.Env: one sync serves all that gathered meanwhile.
func (n *simNode) RunJournal(work *node.JournalWork) {
	n.journal.queue = append(n.journal.queue, work)
	if len(n.journal.doing) == 0 {
		n.writeJournal()
	}
}

func (n *simNode) writeJournal() {
	j := &n.journal
	j.doing, j.queue = j.queue, nil
	o := &n.w.opts.Disk
	d, stalled := n.w.disks.near(o.MinSync, o.MaxSync), n.w.disks.hit(o.Stall)
	if stalled {
		d += o.StallFor
	}
	n.w.loop.after(n.slowed(d), n.live(n.journalWritten))
}

// journalWritten completes the write under way and begins the next.
func (n *simNode) journalWritten() {
	j := &n.journal
	if n.stalled {
		n.waiting = n.live(n.journalWritten)
		return
	}
	then := n.host.DoJournal(j.doing)
	j.doing = nil
	if then != nil {
		n.continueLater(kindJournal, then)
	}
	if len(j.queue) > 0 {
		n.writeJournal()
	}
}

// unstall lets a stalled journal go on.
func (n *simNode) unstall() {
	n.stalled = false
	if waiting := n.waiting; waiting != nil {
		n.waiting = nil
		waiting()
	}
}

// continueLater runs a continuation on the node's thread after the small delay
// of a hand-over; a crash may fall in between. Journal continuations keep order.
func (n *simNode) continueLater(k kind, then func()) {
	t := n.w.loop.now + n.w.disks.between(0, 50*time.Microsecond)
	if k == kindJournal {
		t = max(t, n.journal.then)
		n.journal.then = t
	}
	n.w.loop.at(t, n.live(func() { n.enter(k, 0, then) }))
}

func (n *simNode) slowed(d time.Duration) time.Duration {
	if n.slow {
		return 10 * d
	}
	return d
}

// Run implements node.Env: segments FIFO per group, checkpoints FIFO, reads as
// they come.
func (n *simNode) Run(name node.Lane, work node.Work) {
	o := &n.w.opts.Disk
	d := n.slowed(n.w.disks.near(o.MinWrite, o.MaxWrite))
	at := n.w.loop.now + d
	if name.Kind == node.LaneCheckpoint {
		at += n.slowed(n.w.disks.near(o.MinSync, o.MaxSync))
	}
	if name.Kind != node.LaneRead {
		l := n.lanes[name]
		if l == nil {
			l = &lane{}
			n.lanes[name] = l
		}
		at = max(l.last, at)
		l.last = at
	}
	n.w.loop.at(at, n.live(func() {
		if then := work(); then != nil {
			n.continueLater(kindLane, then)
		}
		if name.Kind == node.LaneCheckpoint {
			n.replayLater()
		}
	}))
}

// Reply implements node.Env.
func (n *simNode) Reply(id uint64, result call.ClientResult, err *model.Error) {
	if r := n.pending[id]; r != nil && !n.harm.stopping {
		delete(n.pending, id)
		r.reply(result, err)
	}
}
