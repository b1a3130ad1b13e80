// Package node is the host of a shard: it takes the core's effects to journal,
// segments, network and clock, in order per lane, and brings the results back
// as events. It has no goroutine: whoever embeds it (node/live with goroutines,
// sim with virtual time) gives it an Env that runs its work.
package node

import (
	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
)

// LaneKind says how work of a lane is ordered.
type LaneKind uint8

// Kinds of lanes.
const (
	LaneSegment    LaneKind = 1 // FIFO per group
	LaneRead       LaneKind = 2 // unordered, concurrent
	LaneCheckpoint LaneKind = 3 // FIFO
)

// Lane names a queue of work. Only LaneSegment uses Group.
type Lane struct {
	Kind  LaneKind
	Group model.GroupID
}

// Work is done on its lane, beside the shard; the continuation it returns (may
// be nil) is run back on the shard's own thread.
type Work func() (then func())

// Env is what a Host needs of the outside. Every method is called on the
// shard's thread and returns at once.
type Env interface {
	Now() model.Instant
	// Run queues work on a lane.
	Run(lane Lane, work Work)
	// RunJournal queues a step's journal operations on the journal's lane. The
	// lane calls Host.DoJournal with everything queued, in order, so that one
	// sync serves many steps.
	RunJournal(w *JournalWork)
	// Wake asks for Host.Tick at the given moment; the last call counts.
	Wake(at model.Mono)
	Send(to model.NodeID, packet []byte)
	Reply(id uint64, result call.ClientResult, err *model.Error)
	// Fatal says that this node must stop at once and why: its journal failed.
	Fatal(err error)
}

// Config is what opening a data folder takes.
type Config struct {
	Core core.Config
	// FS is the node's data folder. It is locked by whoever made it.
	FS disk.FS
	// Journal opens the journal in the folder "journal" of the data folder.
	Journal record.Engine
	// NewDisk is used as the disk id if the folder is empty; random, not 0.
	NewDisk model.DiskID
}

// JournalWork is what one step asked of the journal.
type JournalWork struct{ ops []any }

// Host hosts one shard.
type Host struct{}

// Open recovers the data folder: identity (the boot counter is raised and
// fsynced), manifest, journal, segments. A damaged folder is refused with
// *record.Refused, which says where and what to do.
func Open(cfg Config) (*Host, error) { panic("being written") }

// Start hands the shard its Start event. Env is called from now on.
func (h *Host) Start(env Env) { panic("being written") }

// Step hands the shard an event.
func (h *Host) Step(ev core.Event) { panic("being written") }

// Tick is Step(core.Tick{}).
func (h *Host) Tick() { h.Step(core.Tick{}) }

// DoJournal carries out queued journal work; called on the journal's lane only.
func (h *Host) DoJournal(ws []*JournalWork) (then func()) { panic("being written") }

// Shard is the core, for invariants and metrics to look at between steps.
func (h *Host) Shard() *core.Shard { panic("being written") }

// Close closes files. Nothing may run on any lane.
func (h *Host) Close() error { panic("being written") }
