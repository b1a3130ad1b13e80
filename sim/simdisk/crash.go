package simdisk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Keep says what a crash keeps of what was not synced.
type Keep uint8

// Kinds of crashes.
const (
	KeepSome Keep = 0 // any part of it, torn and in any order, by the random source
	KeepNone Keep = 1 // a power cut at its worst
	KeepAll  Keep = 2 // only the process died
)

// CrashMode says how a disk crashes.
type CrashMode struct{ Keep Keep }

// sector is the unit in which unsynced bytes survive out of order.
const sector = 512

// Crash is a crash of the machine: afterwards the disk holds what was synced and
// a share of the rest, all of it durable. Handles and file systems from before
// return ErrCrashed; FS gives a new one. rng is used by KeepSome only.
func (d *Disk) Crash(mode CrashMode, rng *rand.Rand) {
	d.epoch++
	d.faults = nil
	d.used = 0
	c := crash{mode.Keep, rng, map[*node]bool{}, d}
	c.folder(d.root)
}

type crash struct {
	keep Keep
	rng  *rand.Rand
	seen map[*node]bool
	d    *Disk
}

func (c *crash) folder(n *node) {
	if c.seen[n] {
		return
	}
	c.seen[n] = true
	n.entries = maps.Clone(n.kept)
	for _, changes := range n.edits {
		if c.keep == KeepAll || c.keep == KeepSome && c.rng.IntN(2) == 0 {
			n.apply(changes)
		}
	}
	n.kept, n.edits, n.broken = maps.Clone(n.entries), nil, false
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		if child := n.entries[name]; child.dir {
			c.folder(child)
		} else {
			c.file(child)
		}
	}
}

func (c *crash) file(n *node) {
	if c.seen[n] {
		return
	}
	c.seen[n] = true
	if len(n.undo) > 0 && c.keep != KeepAll {
		old := n.synced()
		if c.keep == KeepNone {
			n.data = old
		} else {
			n.data = mix(old, n.data, c.rng)
		}
	}
	n.undo, n.broken, n.removed = nil, false, false
	c.d.used += uint64(len(n.data))
}

// synced is what a file looked like at its last sync.
func (n *node) synced() []byte {
	data := slices.Clone(n.data)
	for i := len(n.undo) - 1; i >= 0; i-- {
		u := n.undo[i]
		if grow := int(u.size) - len(data); grow > 0 {
			data = append(data, make([]byte, grow)...)
		}
		data = data[:u.size]
		copy(data[u.off:], u.old)
	}
	return data
}

// mix makes a file of two states, as a crash between them may leave it.
func mix(old, now []byte, rng *rand.Rand) []byte {
	switch rng.IntN(5) {
	case 0:
		return old
	case 1:
		return now
	}
	short, long := min(len(old), len(now)), max(len(old), len(now))
	size := short + rng.IntN(long-short+1)
	out := make([]byte, size)
	copy(out, old)
	if rng.IntN(2) == 0 {
		// Written from the front on; the last write torn at any byte.
		first := 0
		for first < short && old[first] == now[first] {
			first++
		}
		if first < size {
			upTo := first + rng.IntN(size-first+1)
			copy(out[:upTo], now)
		}
		if len(old) <= size && rng.IntN(2) == 0 && len(now) > len(old) {
			clear(out[len(old):][min(len(out)-len(old), rng.IntN(len(out)-len(old)+1)):])
		}
		return out
	}
	for at := 0; at < size; at += sector {
		if rng.IntN(2) == 0 && at < len(now) {
			copy(out[at:min(at+sector, size)], now[at:])
		}
	}
	return out
}

// Clone copies a disk as it would be after the process died: for setting a
// folder back to an old copy, and for trying many crashes of one state.
func (d *Disk) Clone() *Disk {
	out := &Disk{root: nil, epoch: d.epoch, limited: d.limited, capacity: d.capacity, used: d.used}
	copies := map[*node]*node{}
	var clone func(n *node) *node
	table := func(m map[string]*node) map[string]*node {
		t := make(map[string]*node, len(m))
		for _, name := range slices.Sorted(maps.Keys(m)) {
			t[name] = clone(m[name])
		}
		return t
	}
	clone = func(n *node) *node {
		if n == nil {
			return nil
		}
		if c := copies[n]; c != nil {
			return c
		}
		c := &node{dir: n.dir, broken: n.broken, removed: n.removed}
		copies[n] = c
		if !n.dir {
			c.data, c.undo = slices.Clone(n.data), slices.Clone(n.undo)
			return c
		}
		c.entries, c.kept = table(n.entries), table(n.kept)
		for _, changes := range n.edits {
			e := make([]change, len(changes))
			for i, ch := range changes {
				e[i] = change{ch.name, clone(ch.to)}
			}
			c.edits = append(c.edits, e)
		}
		return c
	}
	out.root = clone(d.root)
	return out
}
