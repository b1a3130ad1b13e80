package node

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/disk"
)

// A part of the disk is held back in a file, so that there is room for the
// journal's next file and the next manifest when others fill the disk: with them
// acks, deletes and retention go on, and make room. The file goes when free space
// falls below half of Limits.FreeLow, at the start, too, or a write finds no space, and
// is made again when there is as much above FreeHigh.

const (
	reserveFile = "RESERVE"
	reservePart = 1 << 20 // written at a time
)

// reserve is the host's view of that file; the shard thread's.
type reserve struct {
	there bool // the file exists, perhaps in part
	busy  bool // it is being made or removed
}

func (h *Host) findReserve() error {
	files, err := h.cfg.FS.ReadDir(".")
	if err != nil {
		return fmt.Errorf("look for the disk's reserve: %w", err)
	}
	for _, f := range files {
		h.reserve.there = h.reserve.there || f.Name() == reserveFile
	}
	return nil
}

// letGoAtStart removes a reserve before the start writes anything, when others
// filled the disk while the node was down: what the start writes has that room.
func (h *Host) letGoAtStart() error {
	if err := h.findReserve(); err != nil || !h.reserve.there {
		return err
	}
	if free, err := h.cfg.FS.Free(); err != nil || free >= h.cfg.Core.Limits.FreeLow/2 {
		return nil // who cannot be asked is taken to have room: the writes will tell
	}
	if err := h.cfg.FS.Remove(reserveFile); err != nil {
		return fmt.Errorf("let the disk's reserve go: %w", err)
	}
	h.reserve.there = false
	h.notice("the disk is nearly full: %d bytes held in reserve were let go", h.cfg.ReserveBytes)
	return nil
}

// diskSpace looks after the reserve and lets writes that found no space try again.
func (h *Host) diskSpace(free uint64) {
	low, high := h.cfg.Core.Limits.FreeLow, h.cfg.Core.Limits.FreeHigh
	switch {
	case free < low/2:
		h.releaseReserve()
	case free >= high && free-high >= uint64(h.cfg.ReserveBytes):
		h.makeReserve()
	}
	if free == 0 {
		return
	}
	for _, st := range h.sortedStores() {
		h.runStore(st)
	}
}

// noSpace is what a write met: the shard hears of it before the next look at the
// disk would tell.
func (h *Host) noSpace() {
	h.releaseReserve()
	h.Step(core.DiskSpace{})
}

func (h *Host) releaseReserve() {
	if !h.reserve.there || h.reserve.busy {
		return
	}
	h.reserve.busy = true
	h.env.Run(Lane{Kind: LaneCheckpoint}, func() func() {
		err := h.cfg.FS.Remove(reserveFile)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return func() {
			h.reserve.busy, h.reserve.there = false, err != nil
			if err == nil {
				h.notice("the disk is nearly full: %d bytes held in reserve were let go", h.cfg.ReserveBytes)
			}
		}
	})
}

// makeReserve fills the file with zeros. What does not fit is given back.
func (h *Host) makeReserve() {
	if h.cfg.ReserveBytes == 0 || h.reserve.there || h.reserve.busy {
		return
	}
	h.reserve.busy = true
	h.env.Run(Lane{Kind: LaneCheckpoint}, func() func() {
		err := fill(h.cfg.FS, reserveFile, h.cfg.ReserveBytes)
		if err != nil {
			_ = h.cfg.FS.Remove(reserveFile) // it is tried again with more space
		}
		return func() {
			h.reserve.busy, h.reserve.there = false, err == nil
			if err != nil {
				h.notice("the disk's reserve could not be made: %v", err)
			}
		}
	})
}

func fill(f disk.FS, name string, size int64) error {
	file, err := f.Create(name)
	if err != nil {
		return err
	}
	zeros := make([]byte, min(reservePart, size))
	for at := int64(0); at < size && err == nil; at += int64(len(zeros)) {
		_, err = file.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at)
	}
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return err
}

// fullAdvice is what to do when a node stops, or does not start, for want of space.
const fullAdvice = "free space on the disk or enlarge it, then start this node again; nothing that was acknowledged " +
	"is lost by this: a majority of the replicas has it, and this folder stays as it is"

// advised adds to an error of a full disk what to do.
func advised(err error) error {
	if errors.Is(err, disk.ErrNoSpace) {
		return fmt.Errorf("%w; %s", err, fullAdvice)
	}
	return err
}

// fatal ends the node.
func (h *Host) fatal(err error) { h.env.Fatal(advised(err)) }

func (h *Host) notice(format string, args ...any) {
	if h.cfg.Notice != nil {
		h.cfg.Notice(fmt.Sprintf(format, args...))
	}
}
