package node

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/wire"
	"github.com/tapedeck/tapedeck/disk"
)

// checkpoint is one under way. It waits for the journal's new generation and for
// the segments it accounts for; then the state is written, then the manifest
// that names it, then what the old manifest named goes.
type checkpoint struct {
	core.Checkpoint
	waiting int // stores not yet durable, plus one for the journal
	durable uint64
	err     error
}

func (h *Host) startCheckpoint(e core.Checkpoint) {
	cp := &checkpoint{Checkpoint: e, waiting: 1}
	h.cp = cp
	h.journal(journalOp{barrier: cp})
	cp.waiting += len(e.Segments)
	for _, m := range e.Segments {
		st := h.store(m.Group)
		if st == nil {
			return // the node is stopping
		}
		h.syncStore(st, func(err error) { h.reached(cp, err) })
	}
}

func (h *Host) journalReached(cp *checkpoint, durable uint64) {
	cp.durable = durable
	h.reached(cp, nil)
}

func (h *Host) reached(cp *checkpoint, err error) {
	if err != nil && cp.err == nil {
		cp.err = err
	}
	if cp.waiting--; cp.waiting > 0 || h.cp != cp {
		return
	}
	if cp.err != nil {
		h.finishCheckpoint(cp, manifest{}, cp.err)
		return
	}
	next := manifest{self: h.manifest.self, checkpoint: h.manifest.checkpoint + 1,
		generation: cp.Generation, durable: cp.durable}
	old := h.manifest
	h.env.Run(Lane{Kind: LaneCheckpoint}, func() func() {
		err := writeCheckpoint(h.cfg.FS, next, old, cp.State)
		return func() { h.finishCheckpoint(cp, next, err) }
	})
}

func writeCheckpoint(f disk.FS, next, old manifest, state []byte) error {
	if err := writeFile(f, checkpointFile(next.checkpoint), state); err != nil {
		return err
	}
	if err := writeFile(f, manifestFile, wire.Encode(&next)); err != nil {
		return err
	}
	if old.checkpoint == 0 {
		return nil
	}
	if err := f.Remove(checkpointFile(old.checkpoint)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the checkpoint before the last: %w", err)
	}
	return nil
}

// finishCheckpoint tells the core. Without space it is tried again later; the
// old manifest still stands, and the journal keeps what it needs.
func (h *Host) finishCheckpoint(cp *checkpoint, next manifest, err error) {
	h.cp = nil
	switch {
	case err == nil:
		h.manifest = next
		h.journal(journalOp{drop: next.generation})
		h.dropSegments(cp.Segments)
	case !errors.Is(err, disk.ErrNoSpace):
		h.fatal(fmt.Errorf("write a checkpoint: %w", err))
		return
	}
	if err != nil {
		h.noSpace()
	}
	h.Step(core.CheckpointDone{ID: cp.ID, Err: diskError(err)})
}
