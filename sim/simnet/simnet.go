// Package simnet is the simulated network between nodes: it delays, loses,
// repeats and reorders packets, cuts and holds links, and tells both ends of a
// broken stream, all by one random source.
//
// Invariants: a packet is delivered as the bytes it was sent as, copied; without
// a drawn reordering a link delivers in the order sent; a cut link delivers
// nothing sent before or while it is cut; a held one delivers nothing until
// released, then everything, in order.
//
// Units: rates are chances in 10,000; times are virtual.
package simnet

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

// maxInFlight bounds a link's queue, in bytes: more is dropped, as a full send
// queue does.
const maxInFlight = 16 << 20

// Options are the network's weather.
type Options struct {
	MinDelay, MaxDelay time.Duration
	Loss               int // of a packet
	Duplicate          int // of a packet: it comes a second time, later
	Reorder            int // of a packet: later ones may overtake it
	Burst              int // of a packet: a delay of ten times the usual
}

// Outside is what the network needs of the world.
type Outside interface {
	After(d time.Duration, run func())
	Now() time.Duration
	// Deliver hands a packet to its receiver; Data is the receiver's.
	Deliver(from, to model.NodeID, data []byte)
	// Down tells a node that its stream with a peer broke.
	Down(at, peer model.NodeID)
}

type linkName struct{ from, to model.NodeID }

// link is one direction between two nodes.
type link struct {
	cut     bool
	holding bool
	held    [][]byte
	last    time.Duration // delivery of the last in-order packet
	bytes   int           // in flight
	epoch   uint64        // raised by a cut or a reset: what is in flight is lost
}

// Stats count what happened to packets.
type Stats struct{ Sent, Delivered, Lost, Duplicated, Reordered uint64 }

// Net is the network. Links are made at first use.
type Net struct {
	Options
	Stats Stats
	out   Outside
	rand  *rand.Rand
	links map[linkName]*link
}

// New makes a network in which every link works.
func New(o Options, out Outside, r *rand.Rand) *Net {
	return &Net{Options: o, out: out, rand: r, links: map[linkName]*link{}}
}

func (n *Net) link(from, to model.NodeID) *link {
	k := linkName{from, to}
	l := n.links[k]
	if l == nil {
		l = &link{}
		n.links[k] = l
	}
	return l
}

func (n *Net) hit(rate int) bool { return n.rand.IntN(10_000) < rate }

func (n *Net) delay() time.Duration {
	d := n.MinDelay
	if spread := int64(n.MaxDelay - n.MinDelay); spread > 0 {
		d += time.Duration(min(n.rand.Int64N(spread), n.rand.Int64N(spread), n.rand.Int64N(spread)))
	}
	return d
}

// Send copies the packet and delivers it later, or never.
func (n *Net) Send(from, to model.NodeID, data []byte) {
	l := n.link(from, to)
	n.Stats.Sent++
	// Every packet draws the same number of times, whatever becomes of it.
	delay, lost, twice := n.delay(), n.hit(n.Loss), n.hit(n.Duplicate)
	loose, burst, again := n.hit(n.Reorder), n.hit(n.Burst), n.delay()
	if l.cut || lost || l.bytes+len(data) > maxInFlight {
		n.Stats.Lost++
		return
	}
	data = bytes.Clone(data)
	if l.holding {
		l.bytes += len(data)
		l.held = append(l.held, data)
		return
	}
	if burst {
		delay *= 10
	}
	at := n.out.Now() + delay
	if loose {
		n.Stats.Reordered++
		at += again
	} else {
		at = max(at, l.last)
		l.last = at
	}
	n.deliverAt(l, from, to, data, at)
	if twice {
		n.Stats.Duplicated++
		n.deliverAt(l, from, to, bytes.Clone(data), at+again)
	}
}

func (n *Net) deliverAt(l *link, from, to model.NodeID, data []byte, at time.Duration) {
	epoch := l.epoch
	l.bytes += len(data)
	n.out.After(at-n.out.Now(), func() {
		l.bytes -= len(data)
		switch {
		case l.epoch != epoch:
			n.Stats.Lost++
		case l.holding:
			l.bytes += len(data)
			l.held = append(l.held, data)
		default:
			n.Stats.Delivered++
			n.out.Deliver(from, to, data)
		}
	})
}

// drop forgets what is in flight on a link.
func (l *link) drop() {
	l.epoch++
	for _, p := range l.held {
		l.bytes -= len(p)
	}
	l.held = nil
}

// Cut breaks one direction: what is in flight is lost. The sender learns of it
// after a while, as a stream without answers would.
func (n *Net) Cut(from, to model.NodeID) {
	l := n.link(from, to)
	if l.cut {
		return
	}
	l.cut = true
	l.drop()
	n.downLater(from, to)
	n.downLater(to, from)
}

// downLater reports a broken stream after a drawn delay, if it is not whole by then.
func (n *Net) downLater(at, peer model.NodeID) {
	d := 20 * n.delay()
	n.out.After(d, func() {
		if n.link(at, peer).cut || n.link(peer, at).cut {
			n.out.Down(at, peer)
		}
	})
}

// CutBoth breaks both directions.
func (n *Net) CutBoth(a, b model.NodeID) {
	n.Cut(a, b)
	n.Cut(b, a)
}

// Heal mends one direction.
func (n *Net) Heal(from, to model.NodeID) { n.link(from, to).cut = false }

// HealAll mends every link and releases what is held.
func (n *Net) HealAll(nodes []model.NodeID) {
	for _, a := range nodes {
		for _, b := range nodes {
			if a != b {
				n.Heal(a, b)
				n.Release(a, b)
			}
		}
	}
}

// IsCut says whether a direction is broken.
func (n *Net) IsCut(from, to model.NodeID) bool { return n.link(from, to).cut }

// Hold keeps one direction's packets back, those in flight too.
func (n *Net) Hold(from, to model.NodeID) { n.link(from, to).holding = true }

// Release delivers what is held, in order, at once, and holds no more.
func (n *Net) Release(from, to model.NodeID) {
	l := n.link(from, to)
	l.holding = false
	held := l.held
	l.held = nil
	for _, p := range held {
		l.bytes -= len(p)
		n.deliverAt(l, from, to, p, max(l.last, n.out.Now()))
	}
}

// Held is the number of packets held on a link.
func (n *Net) Held(from, to model.NodeID) int { return len(n.link(from, to).held) }

// Reset breaks the stream between two nodes for a moment: what is in flight
// both ways is lost and both ends hear of it.
func (n *Net) Reset(a, b model.NodeID) {
	for _, k := range [2]linkName{{a, b}, {b, a}} {
		n.link(k.from, k.to).drop()
		n.out.After(n.delay(), func() { n.out.Down(k.from, k.to) })
	}
}

// NodeDown breaks a stopped node's streams: packets to it are lost, those from
// it still arrive, and its peers hear of it.
func (n *Net) NodeDown(id model.NodeID, peers []model.NodeID) {
	for _, p := range peers {
		if p == id {
			continue
		}
		n.link(p, id).drop()
		d := 2 * n.delay()
		n.out.After(d, func() { n.out.Down(p, id) })
	}
}
