package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/segment"
)

// store is a partition's segments with the operations that wait for them.
// Operations run in order; one that fails for want of space stays first, and
// everything behind it waits: its messages are in the journal and in memory.
type store struct {
	*segment.Store
	group   model.GroupID
	ops     []core.Effect // queued; the shard thread's
	running bool          // a work of this store is on its lane
	removed bool          // its files are gone; set on the lane, read after it
	dirty   bool          // written since the last sync
	rebuilt uint64        // indexes made anew that were told of
	syncs   []func(error) // wait for everything queued before them
	// below is up to where segments are to go once a durable manifest no longer
	// names them; 0: nothing is.
	below model.Offset
}

type reader interface {
	Read(offset model.Offset, maxBytes int) ([]byte, error)
	ReadAt(t model.Wall) ([]byte, error)
}

func segmentDir(g model.GroupID) string { return "segments/" + strconv.FormatUint(uint64(g), 10) }

// segment queues an operation; Step runs what was queued, one work per store.
func (h *Host) segment(e core.Effect) {
	var g model.GroupID
	switch e := e.(type) {
	case core.SegmentAppend:
		g = e.Group
	case core.SegmentRoll:
		g = e.Group
	case core.SegmentDrop:
		g = e.Group
	case core.SegmentReset:
		g = e.Group
	case core.SegmentSync:
		g = e.Group
	case core.SegmentRepair:
		g = e.Group
	}
	st := h.store(g)
	if st == nil {
		return
	}
	if drop, ok := e.(core.SegmentDrop); ok {
		st.below = max(st.below, drop.Before)
		return
	}
	if a, ok := e.(core.SegmentAppend); ok {
		h.queued += int64(len(a.Batch))
	}
	st.ops = append(st.ops, e)
	if !slices.Contains(h.touched, st) {
		h.touched = append(h.touched, st)
	}
}

// dropSegments lets go of what a checkpoint that is durable by now no longer
// names. What a crash keeps from going goes when the store is opened.
func (h *Host) dropSegments(marks []core.SegmentMark) {
	for _, m := range marks {
		st := h.stores[m.Group]
		if st == nil || st.below == 0 || m.Start < st.below {
			continue
		}
		st.ops = append(st.ops, core.SegmentDrop{Group: m.Group, Before: st.below})
		st.below = 0
		h.runStore(st)
	}
}

// store opens a new partition's store at its first use. A folder that cannot be
// made is an error of the disk that stops the node.
func (h *Host) store(g model.GroupID) *store {
	if st := h.stores[g]; st != nil {
		return st
	}
	s, err := segment.Open(h.cfg.FS, segmentDir(g), 0, 0)
	if err != nil {
		h.fatal(fmt.Errorf("open the segments of group %d: %w", g, err))
		return nil
	}
	st := &store{Store: s, group: g}
	h.stores[g] = st
	return st
}

// runStore sends what is queued to the store's lane, one work at a time.
func (h *Host) runStore(st *store) {
	if st.running || len(st.ops) == 0 {
		return
	}
	ops := st.ops
	st.ops, st.running = nil, true
	h.env.Run(Lane{LaneSegment, st.group}, func() func() {
		done := 0
		var err error
		var answers []core.Event
		for _, op := range ops {
			switch op := op.(type) {
			case core.SegmentSync:
				answers = append(answers, core.SegmentDone{ID: op.ID, Err: diskError(st.Sync())})
			case core.SegmentRepair:
				answers = append(answers, core.RepairDone{Group: op.Group, Err: diskError(st.Repair(op.Batch))})
			default:
				err = st.do(op)
			}
			if err != nil {
				break
			}
			if done++; st.removed {
				break
			}
		}
		return func() {
			for _, op := range ops[:done] {
				if a, ok := op.(core.SegmentAppend); ok {
					h.queued -= int64(len(a.Batch))
				}
			}
			h.ranStore(st, ops[done:], answers, err)
			h.checkBehind()
		}
	})
}

func (st *store) do(op core.Effect) error {
	switch op := op.(type) {
	case core.SegmentAppend:
		// What a replay or a copy brings again is there already: committed
		// batches are the same wherever they come from.
		if v := batch.View(op.Batch); v.Next() <= st.End() {
			return nil
		}
		return st.Append(op.Batch)
	case core.SegmentRoll:
		if op.At < st.End() {
			return nil
		}
		return st.Roll(op.At)
	case core.SegmentDrop:
		return st.Drop(op.Before)
	case core.SegmentReset:
		if op.Remove {
			st.removed = true
			return st.Remove()
		}
		return st.Reset(op.At)
	}
	panic("not an operation of a store")
}

// ranStore goes on with what came meanwhile. Out of space, what is left waits
// for the next operation or checkpoint to try again; any other error stops the node.
func (h *Host) ranStore(st *store, left []core.Effect, answers []core.Event, err error) {
	st.running, st.dirty = false, true
	st.ops = append(left[:len(left):len(left)], st.ops...)
	for _, ev := range answers {
		h.Step(ev)
	}
	if st.removed && err != nil {
		// Its folder's sync failed: nothing made in it from now on can be relied on.
		h.fatal(fmt.Errorf("remove the segments of group %d: %w", st.group, err))
		return
	}
	if st.removed {
		// A new replica of the group may have come to this node already: what is
		// queued behind the removal is for its store.
		delete(h.stores, st.group)
		for _, f := range st.syncs {
			f(nil) // what a checkpoint waited for is gone: there is nothing left to lose
		}
		if next := st.ops; len(next) > 0 {
			if st := h.store(st.group); st != nil {
				st.ops = next
				h.runStore(st)
			}
		}
		return
	}
	if err != nil && !errors.Is(err, disk.ErrNoSpace) {
		h.fatal(fmt.Errorf("write the segments of group %d: %w", st.group, err))
		return
	}
	if err == nil {
		h.runStore(st)
	} else {
		h.noSpace()
	}
	if !st.running {
		h.settleSyncs(st, err)
	}
}

// settleSyncs answers a checkpoint that waits for this store.
func (h *Host) settleSyncs(st *store, err error) {
	waiting := st.syncs
	st.syncs = nil
	if len(waiting) == 0 {
		return
	}
	if err != nil || !st.dirty {
		for _, f := range waiting {
			f(err)
		}
		return
	}
	st.dirty, st.running = false, true
	h.env.Run(Lane{LaneSegment, st.group}, func() func() {
		err := st.Sync()
		return func() {
			st.running = false
			for _, f := range waiting {
				f(err)
			}
			if err != nil {
				h.fatal(fmt.Errorf("sync the segments of group %d: %w", st.group, err))
				return
			}
			h.runStore(st)
		}
	})
}

// syncStore runs then once everything queued for the store so far is durable.
func (h *Host) syncStore(st *store, then func(error)) {
	st.syncs = append(st.syncs, then)
	h.runStore(st)
	if !st.running {
		h.settleSyncs(st, nil)
	}
}

func (h *Host) sortedStores() []*store {
	out := make([]*store, 0, len(h.stores))
	for _, g := range slices.Sorted(maps.Keys(h.stores)) {
		out = append(out, h.stores[g])
	}
	return out
}

func (h *Host) read(id uint64, g model.GroupID, read func(reader) ([]byte, error)) {
	st := h.stores[g]
	h.env.Run(Lane{Kind: LaneRead}, func() func() {
		ev := core.ReadDone{ID: id}
		if st != nil {
			data, err := read(st)
			ev.Data, ev.Err, ev.Damage = data, diskError(err), damage(err)
		}
		return func() {
			if st != nil {
				h.noticeRebuilt(st)
			}
			h.Step(ev)
		}
	})
}

// damage says which batch an error is about, if it is about one.
func damage(err error) *core.SegmentDamage {
	var d *segment.Damaged
	if !errors.As(err, &d) {
		return nil
	}
	return &core.SegmentDamage{Offset: d.Offset, File: d.File, Position: d.Position, Cause: d.Cause}
}

// noticeRebuilt tells of indexes that were found broken. They were made anew
// from the batches, and a sync writes them: now, for a checkpoint that brings one
// may be long in coming to a node where nothing happens.
func (h *Host) noticeRebuilt(st *store) {
	n := st.Rebuilt()
	if n == st.rebuilt || h.stores[st.group] != st {
		return
	}
	st.rebuilt, st.dirty = n, true
	h.syncStore(st, func(error) {})
	h.notice("group %d: an index of its segments was damaged; it was made anew from the batches", st.group)
}

// diskError puts an error of the disk into a client's terms.
func diskError(err error) *model.Error {
	var damaged *segment.Damaged
	switch {
	case err == nil:
		return nil
	case errors.As(err, &damaged):
		return model.Errorf(model.DataLoss, "%v", err)
	case errors.Is(err, disk.ErrNoSpace):
		return model.Reasoned(model.ResourceExhausted, model.ReasonDiskFull, 0, "%v", err)
	}
	return model.Errorf(model.Unavailable, "%v", err)
}
