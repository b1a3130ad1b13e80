// Package node is the host of a shard: it takes the core's effects to journal,
// segments, network and clock, in order per lane, and brings the results back
// as events. It has no goroutine: whoever embeds it (node/live with goroutines,
// sim with virtual time) gives it an Env that runs its work.
//
// A data folder holds IDENTITY (disk id and boot counter), MANIFEST (which
// checkpoint and from which journal generation on), checkpoint-N (the shard's
// state), journal/ and segments/GROUP/.
package node

import (
	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
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
	// ReserveBytes are kept back on the disk for when it is full; 0: none.
	ReserveBytes int64
	// Random is drawn anew for every start; see model.Incarnation.
	Random uint64
	// Peer takes a node that is not among the configured peers, or moved; may be nil.
	Peer func(n model.Node)
	// Notice takes what an operator should know; may be nil.
	Notice func(text string)
}

// Host hosts one shard.
type Host struct {
	cfg      Config
	env      Env
	shard    *core.Shard
	recover  core.Recovered
	log      *record.Log // the journal lane's
	ids      uint64      // state of the source of generation ids
	stores   map[model.GroupID]*store
	touched  []*store // with operations queued in this step
	queued   int64    // bytes of batches that wait to be written to segments
	behind   bool     // the shard was told that it is too much
	work     *JournalWork
	cp       *checkpoint
	manifest manifest
	reserve  reserve
	identity identity // the journal lane's
}

// Start hands the shard its Start event. Env is called from now on.
func (h *Host) Start(env Env) {
	h.env = env
	rec := h.recover
	h.recover = core.Recovered{}
	h.Step(core.Start{Recovered: rec})
}

// Tick is Step(core.Tick{}).
func (h *Host) Tick() { h.Step(core.Tick{}) }

// Shard is the core, for invariants and metrics to look at between steps.
func (h *Host) Shard() *core.Shard { return h.shard }

// Loaded is what Open put together, until Start hands it to the core.
func (h *Host) Loaded() *core.Loaded { return h.recover.Loaded }

// Disk is the data folder's id.
func (h *Host) Disk() model.DiskID { return h.manifest.self.Disk }

// Step hands the shard an event and carries its effects out.
func (h *Host) Step(ev core.Event) {
	if d, ok := ev.(core.DiskSpace); ok {
		h.diskSpace(d.Free)
	}
	for _, e := range h.shard.Step(h.env.Now(), ev) {
		h.effect(e)
	}
	for _, st := range h.touched {
		h.runStore(st)
	}
	h.touched = h.touched[:0]
	if w := h.work; w != nil {
		h.work = nil
		h.env.RunJournal(w)
	}
	h.checkBehind()
}

// checkBehind tells the shard when too much waits for segments, and when no longer.
func (h *Host) checkBehind() {
	limit := h.cfg.Core.Limits.SegmentQueueBytes
	behind := h.queued > limit || h.behind && h.queued > limit/2
	if behind != h.behind {
		h.behind = behind
		h.Step(core.SegmentsBehind{Behind: behind})
	}
}

// Queued is the number of bytes that wait to be written to segments.
func (h *Host) Queued() int64 { return h.queued }

func (h *Host) effect(e core.Effect) {
	switch e := e.(type) {
	case core.Wake:
		h.env.Wake(e.At)
	case core.Send:
		h.env.Send(e.To, e.Data)
	case core.Reply:
		h.env.Reply(e.ID, e.Result, e.Err)
	case core.JournalAppend:
		h.journal(journalOp{record: record.Record{Type: uint8(e.Record.Type), Group: uint64(e.Record.Group),
			Index: e.Record.Index, Term: e.Record.Term, Payload: e.Record.Payload}, sequence: e.Sequence, sync: e.Sync})
	case core.JournalRoll:
		h.journal(journalOp{roll: e.Generation})
	case core.Refuse:
		h.journal(journalOp{refuse: e.Cause})
	case core.SegmentAppend, core.SegmentRoll, core.SegmentDrop, core.SegmentReset, core.SegmentSync, core.SegmentRepair:
		h.segment(e)
	case core.Checkpoint:
		h.startCheckpoint(e)
	case core.Read:
		h.read(e.ID, e.Group, func(s reader) ([]byte, error) { return s.Read(e.Offset, e.MaxBytes) })
	case core.ReadAt:
		h.read(e.ID, e.Group, func(s reader) ([]byte, error) { return s.ReadAt(e.At) })
	case core.Peer:
		if h.cfg.Peer != nil {
			h.cfg.Peer(e.Node)
		}
	case core.Note:
		if h.cfg.Notice != nil {
			h.cfg.Notice(e.Text)
		}
	default:
		panic("an effect of the core has no host")
	}
}

// JournalWork is what one step asked of the journal.
type JournalWork struct{ ops []journalOp }

// Bytes is the size of the records in it.
func (w *JournalWork) Bytes() int {
	n := 0
	for i := range w.ops {
		n += len(w.ops[i].record.Payload) + record.HeaderSize
	}
	return n
}

// journalOp is one operation: an append, or with roll, drop or refuse set that.
type journalOp struct {
	record     record.Record
	sequence   uint64
	sync       bool
	roll, drop uint64
	refuse     string      // why the folder must not be used any more
	barrier    *checkpoint // told once everything before it is durable
}

func (h *Host) journal(op journalOp) {
	if h.work == nil {
		h.work = &JournalWork{}
	}
	h.work.ops = append(h.work.ops, op)
}

// DoJournal carries out queued journal work; called on the journal's lane only.
// One sync serves all of it.
func (h *Host) DoJournal(ws []*JournalWork) (then func()) {
	var upto uint64
	var barrier *checkpoint
	sync, founding := false, false
	err := func() error {
		for _, w := range ws {
			for i := range w.ops {
				op := &w.ops[i]
				switch {
				case op.roll != 0:
					if err := h.log.Roll(op.roll, h.nextID()); err != nil {
						return err
					}
				case op.drop != 0:
					if err := h.log.Drop(op.drop); err != nil {
						return err
					}
				case op.refuse != "":
					return h.refuse(op.refuse)
				case op.barrier != nil:
					barrier, sync = op.barrier, true
				default:
					if _, err := h.log.Append(op.record); err != nil {
						return err
					}
					upto = op.sequence
					sync = sync || op.sync
					founding = founding || op.record.Type == uint8(core.RecordBootstrap)
				}
			}
		}
		if !sync {
			return nil
		}
		if err := h.log.Sync(); err != nil || !founding {
			return err
		}
		return h.setFounded()
	}()
	if err != nil {
		return func() { h.fatal(err) }
	}
	if !sync {
		return nil
	}
	durable := h.log.Durable()
	return func() {
		if barrier != nil {
			h.journalReached(barrier, durable)
		}
		if upto != 0 {
			h.Step(core.JournalDone{Upto: upto})
		}
	}
}

// refuse makes sure that this folder is never opened again, and ends this run.
func (h *Host) refuse(cause string) error {
	h.identity.refused = cause
	if err := writeFile(h.cfg.FS, IdentityFile, wire.Encode(&h.identity)); err != nil {
		return err
	}
	return &record.Refused{File: IdentityFile, Cause: cause, Advice: wipeAdvice}
}

// nextID draws a generation id: from the folder and its boot, so that no two
// generations on this disk share one.
func (h *Host) nextID() uint64 {
	h.ids += 0x9e3779b97f4a7c15
	z := h.ids
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	if z ^= z >> 31; z == 0 {
		return 1
	}
	return z
}

// Close closes files. Nothing may run on any lane.
func (h *Host) Close() error {
	err := h.log.Close()
	for _, st := range h.sortedStores() {
		if cerr := st.Close(); err == nil {
			err = cerr
		}
	}
	return err
}
