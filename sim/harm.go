package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/disk/segment"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// HarmOptions are what befalls disks beyond a crash's loss of unsynced data. A
// mean time between two strikes of each kind, 0 for never, and a mean time until
// it is over.
type HarmOptions struct {
	Full, FullFor     time.Duration // the disk has little room or none
	Fail, FailFor     time.Duration // a call fails with EIO; the node stops, and is started after FailFor
	Damage, DamageFor time.Duration // durable bytes change while the node is down
	Wipe, WipeFor     time.Duration // the node comes back with an empty folder
	SetBack           time.Duration // the folder is that of a while ago
	SetBackFor        time.Duration // how long ago
	Replay            Rate          // of a checkpoint: what it and the journal give is held to the live state
}

// Harm costs something that was promised to be durable only within the budget:
// at most one node at a time has copies that are damaged or gone, the next one
// not before every group has all its replicas again, each a member in force, as
// meta has it; and never a node that holds the only copy of something.
// So of each group at most one machine's copy is damaged or lost at a time.
//
// What no rule of recovery can see - a durable tail that vanishes without a
// witness - would cost such a copy without anybody knowing, to be lent to a
// quorum: it is not done. Damage in a journal falls on records that a later one
// testifies to.

// harm is what was done to one node's disk.
type harm struct {
	damaged  bool // durable bytes were changed and the folder is still in use
	past     bool // the folder is an old copy of itself
	watching bool // the shard is told how much room there is
	stopping bool // it said Fatal: nothing it does counts any more
	retired  bool // it was removed from the cluster, and is stopped for good
	setback  *simdisk.Disk
}

// drawHarm draws which harm befalls the run. Each kind is off in most seeds.
func drawHarm(s *stream, o *Options) {
	second := time.Second
	h := &o.Harm
	seldom := func(lo, hi time.Duration) time.Duration {
		if d := s.between(lo, hi); s.IntN(4) == 0 {
			return d
		}
		return 0
	}
	h.Full, h.FullFor = seldom(5*second, 15*second), s.between(second, 6*second)
	h.Fail, h.FailFor = seldom(4*second, 15*second), s.between(second/10, 4*second)
	h.Damage, h.DamageFor = seldom(6*second, 15*second), s.between(second/10, 4*second)
	h.Wipe, h.WipeFor = seldom(6*second, 20*second), s.between(second/10, 4*second)
	h.SetBack, h.SetBackFor = seldom(6*second, 20*second), s.between(second, 8*second)
	h.Replay = pick[Rate](s, 0, 0, 500, 2000)
	if h.Full > 0 {
		o.Limits.FreeLow = pick[uint64](s, 4<<10, 64<<10)
		o.Limits.FreeHigh = 2 * o.Limits.FreeLow
	}
}

// notStarted judges a node that does not open its folder.
func (n *simNode) notStarted(err error) {
	w := n.w
	var refused *record.Refused
	switch {
	case errors.As(err, &refused) && n.harm.damaged:
		w.fault(n.id, kindNotice, "refused: %v", err)
		w.probe("damaged folder refused")
		if w.nemesis != nil { // the operator rebuilds it
			n.wipe()
			n.startIn(w.harms.between(0, time.Second))
		}
	case injected(err):
		w.fault(n.id, kindNotice, "does not start: %v", err)
		w.probe("start failed by the disk")
		// After a failed sync the kernel may show what is not on the disk, and say
		// that a later sync succeeded: the machine is started anew, not the process.
		n.dying(w.drawUnsynced(w.harms))
		if w.nemesis != nil {
			n.startIn(500 * time.Millisecond)
		}
	default:
		w.violate("recovery", "%s refuses to start on a disk that lost nothing synced: %v", n.id, err)
	}
}

// injected says that an error is one that the simulated disk was made to give.
func injected(err error) bool {
	return errors.Is(err, simdisk.ErrFault) || errors.Is(err, disk.ErrNoSpace)
}

// startIn starts the node after a while, if nobody did so meanwhile.
func (n *simNode) startIn(d time.Duration) {
	n.w.loop.after(d, func() {
		if !n.up && !n.harm.retired {
			n.start()
		}
	})
}

// Fatal implements node.Env: a node must not stop by itself on a disk that
// works, and must on one whose journal failed. It is started again later, from
// what is durable.
func (n *simNode) Fatal(err error) {
	w := n.w
	var refused *record.Refused
	var damaged *segment.Damaged
	expected := injected(err) || n.harm.damaged && (errors.As(err, &refused) || errors.As(err, &damaged))
	if !expected {
		if refused != nil {
			w.violate("recovery", "%s: %v", n.id, err)
			return
		}
		w.violate("fatal", "%s stops on a disk that works: %v", n.id, err)
		return
	}
	if n.harm.stopping {
		return
	}
	w.fault(n.id, kindNotice, "stops: %v", err)
	w.probe("stopped by its disk")
	n.harm.stopping = true
	boot := n.boot
	w.loop.after(0, func() {
		if n.boot != boot || !n.up {
			return
		}
		n.crash(w.drawUnsynced(w.harms))
		if w.nemesis != nil {
			n.startIn(w.harms.about(max(w.opts.Harm.FailFor, time.Second)))
		}
	})
}

// watchDisk tells the shard of the free space, as the host does at intervals.
func (n *simNode) watchDisk() {
	if n.w.opts.Harm.Full == 0 && !n.harm.watching {
		return
	}
	n.w.loop.after(500*time.Millisecond, n.live(func() {
		if free, err := n.fs.Free(); err == nil {
			n.enter(kindLane, xxhash.Sum64String("space"), func() { n.host.Step(core.DiskSpace{Free: free}) })
		}
		n.watchDisk()
	}))
}

// wipe takes the whole folder of a node that is down: it comes back empty.
func (n *simNode) wipe() {
	n.w.fault(n.id, kindNotice, "its folder is wiped")
	n.disk, n.harm.damaged, n.harm.past = simdisk.New(), false, false
	n.w.probe("wiped")
}

// unsettled says what keeps the cluster from being whole: every group has all
// the replicas that meta gives it, on folders that are there, and no change of
// members is under way. "" is whole. Only a cluster whose nodes are all up can tell.
func (w *World) unsettled() string {
	for _, n := range w.nodes {
		if !n.harm.retired && (!n.up || n.host.Shard().Catalog() == nil) {
			return string(n.id) + " is not part of the cluster"
		}
	}
	cat, why := w.catalog()
	if why != "" {
		return why
	}
	folders := map[model.NodeID]model.DiskID{}
	for _, m := range cat.Nodes() {
		folders[m.ID] = m.Disk
		if n := w.node(m.ID); n == nil || n.harm.retired || n.host.Disk() != m.Disk {
			return "meta knows another folder of " + string(m.ID)
		}
	}
	for _, g := range cat.Groups() {
		if g.Change.ID != 0 {
			return "group " + itoa(int(g.ID)) + " is changing its members"
		}
		for _, m := range g.Replicas {
			r := w.node(m.Node)
			if folders[m.Node] != m.Disk || r == nil {
				return "group " + itoa(int(g.ID)) + " has a replica on a folder that is gone"
			}
			if at := r.host.Shard().Replica(g.ID); at == nil || at.Self() != m.ID {
				return "group " + itoa(int(g.ID)) + " lacks its replica on " + string(m.Node)
			}
		}
	}
	return ""
}

// members holds the voters that a leader counts to those that meta names, at rest.
func (w *World) members(n *simNode, id model.GroupID) {
	r := n.host.Shard().Replica(id)
	if !r.Leading() {
		return
	}
	var named []uint64
	for _, m := range r.Group().Replicas {
		if !m.Learner {
			named = append(named, uint64(m.ID))
		}
	}
	slices.Sort(named)
	if counted := slices.Sorted(slices.Values(r.Voters())); !slices.Equal(named, counted) && r.Group().Change.ID == 0 {
		w.violate("members as meta names them", "group %d at rest: its leader on %s counts voters %v; named are %v",
			id, n.id, counted, named)
	}
}

// catalog is what meta's leader has applied, if no replica has seen a later term.
func (w *World) catalog() (model.Catalog, string) {
	lead := w.leaderOf(model.MetaGroup)
	if lead == nil {
		return nil, "meta has no leader"
	}
	term := lead.host.Shard().Replica(model.MetaGroup).View().Term
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		if r := n.host.Shard().Replica(model.MetaGroup); r != nil && r.View().Term > term {
			return nil, "meta is electing"
		}
	}
	return lead.host.Shard().Catalog(), ""
}

// mayHarm says whether the budget allows that a node's copies are damaged or lost.
func (w *World) mayHarm(n *simNode) bool {
	for _, o := range w.nodes {
		if o.harm.damaged {
			return false
		}
	}
	if n.harm.retired || w.unsettled() != "" {
		return false
	}
	p := &w.opts.Operator
	for _, t := range w.opts.Topics {
		// The only replica of a partition that is made or moved meanwhile could come
		// into the folder that is gone, or that is wiped in the end.
		if t.Replicas < 3 && p.Partitions+p.Move+p.Drain+p.Join+p.Topic > 0 {
			return false
		}
	}
	cat, why := w.catalog()
	if why != "" {
		return false
	}
	for _, g := range cat.Groups() {
		here, voters := false, 0
		for _, r := range g.Replicas {
			here = here || r.Node == n.id
			if !r.Learner {
				voters++
			}
		}
		if here && voters < 3 {
			return false
		}
	}
	return true
}

// healHarm ends all faults of disks. A folder set back to an old copy is rebuilt;
// what is damaged is refused at a start, and rebuilt, or mended by the node itself.
func (w *World) healHarm() {
	for _, n := range w.nodes {
		n.disk.Heal()
		if n.harm.past {
			n.crash(keepUnsynced)
			n.wipe()
		}
	}
}
