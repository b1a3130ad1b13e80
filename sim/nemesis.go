package sim

import (
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

// nemesis breaks things during the safety phase. Each kind of fault is a habit
// with a random stream of its own, so that taking one away leaves the others'
// strikes where they were.
type nemesis struct {
	w       *World
	stopped bool
}

// habit is one kind of fault. strike breaks something and returns what mends it,
// or nil if nothing was broken.
type habit struct {
	name         string
	every, mends time.Duration // means; every 0: never
	strike       func(s *stream) (mend func())
}

func (w *World) startNemesis() *nemesis {
	m := &nemesis{w: w}
	f := &w.opts.Faults
	for _, h := range append(m.harms(), []habit{
		{"crash", f.Crash, f.CrashFor, m.crash},
		{"power cut", f.PowerCut, f.CrashFor, m.powerCut},
		{"pause", f.Pause, f.PauseFor, m.pause},
		{"cut", f.Cut, f.CutFor, m.cut},
		{"one way", f.OneWay, f.OneWayFor, m.oneWay},
		{"isolate", f.Isolate, f.IsolateFor, m.isolate},
		{"hold", f.Hold, f.HoldFor, m.hold},
		{"reset", f.Reset, 0, m.reset},
		{"slow disk", f.SlowDisk, f.SlowFor, m.slowDisk},
		{"jump", f.Jump, 0, m.jump},
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
		mend, lasts := h.strike(s), s.about(h.mends)
		if mend != nil {
			m.w.loop.after(lasts, func() {
				if !m.stopped {
					mend()
				}
			})
		}
		m.live(h, s)
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

func (m *nemesis) crash(s *stream) func() {
	n, keep, again := m.target(s), m.w.drawUnsynced(s), s.hit(2000)
	if !n.up {
		return nil
	}
	n.crash(keep)
	return func() {
		if n.up || n.harm.retired {
			return
		}
		n.start()
		if again && n.up { // power fails once more, just after recovery
			n.crash(m.w.drawUnsynced(m.w.crashes))
			n.start()
		}
	}
}

func (m *nemesis) powerCut(s *stream) func() {
	for _, n := range m.w.nodes {
		n.crash(m.w.drawUnsynced(s))
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

func (m *nemesis) pause(s *stream) func() {
	n := m.target(s)
	n.pause()
	return n.resume
}

func (m *nemesis) cut(s *stream) func() {
	a, b, ok := m.pair(s)
	if !ok {
		return nil
	}
	a.struck("cut")
	m.w.cutBoth(a.id, b.id)
	return func() { m.w.healBoth(a.id, b.id) }
}

func (m *nemesis) oneWay(s *stream) func() {
	a, b, ok := m.pair(s)
	if !ok {
		return nil
	}
	if s.IntN(2) == 0 {
		a, b = b, a
	}
	a.struck("cut")
	m.w.cutOneWay(a.id, b.id)
	return func() { m.w.healOneWay(a.id, b.id) }
}

func (m *nemesis) isolate(s *stream) func() {
	n := m.target(s)
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

func (m *nemesis) hold(s *stream) func() {
	a, b, ok := m.pair(s)
	if !ok {
		return nil
	}
	m.w.network("hold", a.id, b.id)
	m.w.net.Hold(a.id, b.id)
	return func() {
		m.w.network("release", a.id, b.id)
		m.w.net.Release(a.id, b.id)
	}
}

func (m *nemesis) reset(s *stream) func() {
	if a, b, ok := m.pair(s); ok {
		m.w.network("reset", a.id, b.id)
		m.w.net.Reset(a.id, b.id)
	}
	return nil
}

func (m *nemesis) slowDisk(s *stream) func() {
	n := m.target(s)
	n.struck("slow disk")
	n.slow = true
	m.w.fault(n.id, kindNetwork, "disk is slow")
	return func() { n.slow = false }
}

func (m *nemesis) jump(s *stream) func() {
	n, by := m.target(s), s.between(-m.w.opts.Faults.MaxJump, m.w.opts.Faults.MaxJump)
	n.clock.jump(m.w.loop.now, by)
	m.w.trace.note(m.w.loop.now, n.index, kindClock, uint64(by))
	m.w.fault(n.id, kindClock, "wall clock jumps by %v", by)
	return nil
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
