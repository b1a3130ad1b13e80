package sim

import (
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

// nemesis breaks things during the safety phase. Each kind of fault is a habit
// with a random stream of its own, so that taking one away leaves the others'
// strikes where they were. Given strikes take the place of all habits.
type nemesis struct {
	w       *World
	began   time.Duration
	stopped bool
	struck  []Strike // what was done, in order
}

// habit is one kind of fault. draw says what its next strike is, or nil.
type habit struct {
	name         string
	every, mends time.Duration // means; every 0: never
	draw         func(s *stream) *Strike
}

func (w *World) startNemesis() *nemesis {
	m := &nemesis{w: w, began: w.loop.now}
	w.nemesis = m
	if w.opts.Planned {
		for i := range w.opts.Strikes {
			m.w.loop.after(w.opts.Strikes[i].At, func() {
				if !m.stopped {
					m.strike(w.opts.Strikes[i])
				}
			})
		}
		return m
	}
	f := &w.opts.Faults
	for _, h := range append(m.harms(), []habit{
		{"crash", f.Crash, f.CrashFor, m.drawCrash},
		{"power cut", f.PowerCut, f.CrashFor, m.drawPowerCut},
		{"pause", f.Pause, f.PauseFor, m.drawOn(strikePause)},
		{"cut", f.Cut, f.CutFor, m.drawLink(strikeCut)},
		{"one way", f.OneWay, f.OneWayFor, m.drawLink(strikeOneWay)},
		{"isolate", f.Isolate, f.IsolateFor, m.drawOn(strikeIsolate)},
		{"hold", f.Hold, f.HoldFor, m.drawLink(strikeHold)},
		{"reset", f.Reset, 0, m.drawLink(strikeReset)},
		{"slow disk", f.SlowDisk, f.SlowFor, m.drawOn(strikeSlow)},
		{"jump", f.Jump, 0, m.drawJump},
	}...) {
		if h.every > 0 {
			m.live(h, newStream(w.opts.Seed, "nemesis "+h.name))
		}
	}
	return m
}

// live schedules the next strike of a habit, and after it the one after.
func (m *nemesis) live(h habit, s *stream) {
	m.w.loop.after(s.about(h.every), func() {
		if m.stopped {
			return
		}
		k, lasts := h.draw(s), s.about(h.mends)
		if k != nil {
			k.At = m.w.loop.now - m.began
			if h.mends > 0 {
				k.For = lasts
			}
			m.strike(*k)
		}
		m.live(h, s)
	})
}

// strike carries a strike out, and mends it when its time is over.
func (m *nemesis) strike(k Strike) {
	m.struck = append(m.struck, k)
	mend := m.carryOut(&k)
	if mend == nil {
		return
	}
	m.w.loop.after(k.For, func() {
		if !m.stopped {
			mend()
		}
	})
}

// stop ends all strikes and mends everything.
func (m *nemesis) stop() {
	m.stopped = true
	w := m.w
	w.trace.say(w.loop.now, "all", kindPhase, "heal")
	w.trace.note(w.loop.now, 0, kindPhase, 2)
	w.net.HealAll(w.ids)
	w.net.Loss, w.net.Duplicate, w.net.Reorder, w.net.Burst = 0, 0, 0, 0
	w.opts.Network.ClientLossOfRequest, w.opts.Network.ClientLossOfReply = 0, 0
	w.opts.Disk.Stall = 0
	for _, n := range w.nodes {
		n.slow = false
		n.clock.setDrift(w.loop.now, n.clock.drift)
		n.resume()
	}
	w.healHarm()
	for _, n := range w.nodes {
		if !n.up && !n.harm.retired {
			n.start()
		}
	}
}

// target picks a node: often the leader of some group, else any.
func (m *nemesis) target(s *stream) *simNode {
	any, aim, which := s.IntN(len(m.w.nodes)), s.hit(m.w.opts.Faults.AimAtLeader), s.Uint64()
	if aim {
		if leaders := m.w.leaders(); len(leaders) > 0 {
			return leaders[which%uint64(len(leaders))]
		}
	}
	return m.w.nodes[any]
}

// pair picks a node and another one; false in a cluster of one.
func (m *nemesis) pair(s *stream) (a, b *simNode, ok bool) {
	a = m.target(s)
	if len(m.w.nodes) < 2 {
		return a, nil, false
	}
	i := (a.index + 1 + s.IntN(len(m.w.nodes)-1)) % len(m.w.nodes)
	return a, m.w.nodes[i], true
}

// drawOn draws a strike that says nothing but whom it befalls.
func (m *nemesis) drawOn(kind string) func(s *stream) *Strike {
	return func(s *stream) *Strike { return &Strike{Kind: kind, Node: m.target(s).id} }
}

func (m *nemesis) drawCrash(s *stream) *Strike {
	n, keep, again := m.target(s), m.w.drawUnsynced(s), s.hit(2000)
	return &Strike{Kind: strikeCrash, Node: n.id, Unsynced: []string{string(keep)}, Again: again}
}

func (m *nemesis) crash(n *simNode, k *Strike) func() {
	if !n.up {
		return nil
	}
	n.crash(k.unsyncedAt(0))
	return func() {
		if n.up || n.harm.retired {
			return
		}
		n.start()
		if k.Again && n.up { // power fails once more, just after recovery
			n.crash(m.w.drawUnsynced(m.w.crashes))
			n.start()
		}
	}
}

func (m *nemesis) drawPowerCut(s *stream) *Strike {
	k := &Strike{Kind: strikePowerCut}
	for range m.w.nodes {
		k.Unsynced = append(k.Unsynced, string(m.w.drawUnsynced(s)))
	}
	return k
}

func (m *nemesis) powerCut(k *Strike) func() {
	for i, n := range m.w.nodes {
		n.crash(k.unsyncedAt(i))
	}
	return func() {
		for _, n := range m.w.nodes {
			if !n.up && !n.harm.retired {
				n.start()
			}
		}
	}
}

// drawUnsynced draws what a crash does to unsynced data.
func (w *World) drawUnsynced(s *stream) unsynced {
	torn, keep := s.hit(w.opts.Disk.TornTail), s.hit(2500)
	switch {
	case torn:
		return tearUnsynced
	case keep:
		return keepUnsynced
	}
	return loseUnsynced
}

// drawLink draws which link a strike befalls, and one way in which direction.
func (m *nemesis) drawLink(kind string) func(s *stream) *Strike {
	return func(s *stream) *Strike {
		a, b, ok := m.pair(s)
		if !ok {
			return nil
		}
		if kind == strikeOneWay && s.IntN(2) == 0 {
			a, b = b, a
		}
		return &Strike{Kind: kind, Node: a.id, Peer: b.id}
	}
}

// link strikes the link from a to b, or of a and b.
func (m *nemesis) link(kind string, a, b *simNode) func() {
	switch kind {
	case strikeCut:
		a.struck("cut")
		m.w.cutBoth(a.id, b.id)
		return func() { m.w.healBoth(a.id, b.id) }
	case strikeOneWay:
		a.struck("cut")
		m.w.cutOneWay(a.id, b.id)
		return func() { m.w.healOneWay(a.id, b.id) }
	case strikeHold:
		m.w.network("hold", a.id, b.id)
		m.w.net.Hold(a.id, b.id)
		return func() {
			m.w.network("release", a.id, b.id)
			m.w.net.Release(a.id, b.id)
		}
	}
	m.w.network("reset", a.id, b.id)
	m.w.net.Reset(a.id, b.id)
	return nil
}

func (m *nemesis) isolate(n *simNode) func() {
	n.struck("isolation")
	for _, p := range m.w.ids {
		if p != n.id {
			m.w.cutBoth(n.id, p)
		}
	}
	return func() {
		for _, p := range m.w.ids {
			if p != n.id {
				m.w.healBoth(n.id, p)
			}
		}
	}
}

func (m *nemesis) slowDisk(n *simNode) func() {
	n.struck("slow disk")
	n.slow = true
	m.w.fault(n.id, kindNetwork, "disk is slow")
	return func() { n.slow = false }
}

func (m *nemesis) drawJump(s *stream) *Strike {
	n, by := m.target(s), s.between(-m.w.opts.Faults.MaxJump, m.w.opts.Faults.MaxJump)
	return &Strike{Kind: strikeJump, Node: n.id, By: by}
}

func (m *nemesis) jump(n *simNode, by time.Duration) {
	n.clock.jump(m.w.loop.now, by)
	m.w.trace.note(m.w.loop.now, n.index, kindClock, uint64(by))
	m.w.fault(n.id, kindClock, "wall clock jumps by %v", by)
}

// network traces a change of a link.
func (w *World) network(what string, from, to model.NodeID) {
	w.trace.note(w.loop.now, w.node(from).index, kindNetwork, uint64(len(what))<<8|uint64(w.node(to).index))
	w.fault(from, kindNetwork, "%s to %s", what, to)
}

func (w *World) cutOneWay(from, to model.NodeID) {
	w.network("cut", from, to)
	w.net.Cut(from, to)
}

func (w *World) healOneWay(from, to model.NodeID) {
	w.network("heal", from, to)
	w.net.Heal(from, to)
}

func (w *World) cutBoth(a, b model.NodeID) {
	w.cutOneWay(a, b)
	w.cutOneWay(b, a)
}

func (w *World) healBoth(a, b model.NodeID) {
	w.healOneWay(a, b)
	w.healOneWay(b, a)
}
