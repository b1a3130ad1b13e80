package core

import (
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// Event is what goes into a Shard. The host hands events over one at a time,
// each with the instant at which it was taken up.
type Event interface{ event() }

type (
	// Start is the first event, once: what the host found on disk.
	Start struct{ Recovered Recovered }
	// Tick says only that time has passed; asked for by Wake.
	Tick struct{}
	// Packet came from a peer; Data is the shard's from then on.
	Packet struct {
		From model.NodeID
		Data []byte
	}
	// PeerDown says that a peer's stream was lost: packets may be.
	PeerDown struct{ Peer model.NodeID }
	// JournalDone says that every record up to and with Upto is durable.
	JournalDone struct{ Upto uint64 }
	// SegmentDone answers SegmentSync: all appended before it is durable.
	SegmentDone struct {
		ID  uint64
		Err *model.Error
	}
	// CheckpointDone says that the checkpoint is durable, or why not.
	CheckpointDone struct {
		ID  uint64
		Err *model.Error
	}
	// DiskSpace reports free bytes.
	DiskSpace struct{ Free uint64 }
	// SegmentsBehind says that more than Limits.SegmentQueueBytes wait to be written
	// to segments, or that it is less than half of that again.
	SegmentsBehind struct{ Behind bool }
	// ReadDone answers Read and ReadAt with a run of checked batches.
	ReadDone struct {
		ID   uint64
		Data []byte
		Err  *model.Error
		// Damage says what is damaged, if that is what Err is about.
		Damage *SegmentDamage
	}
	// RepairDone answers SegmentRepair.
	RepairDone struct {
		Group model.GroupID
		Err   *model.Error
	}
	// Request is a client's; answered by one Reply with the same ID, unless
	// cancelled. Deadline is on this node's clock.
	Request struct {
		ID        uint64
		Principal string
		Call      call.Client
		Deadline  model.Mono
	}
	// Cancel says that nobody waits for the request's reply any more.
	Cancel struct{ ID uint64 }
)

func (Start) event()          {}
func (Tick) event()           {}
func (Packet) event()         {}
func (PeerDown) event()       {}
func (JournalDone) event()    {}
func (SegmentDone) event()    {}
func (CheckpointDone) event() {}
func (DiskSpace) event()      {}
func (SegmentsBehind) event() {}
func (ReadDone) event()       {}
func (RepairDone) event()     {}
func (Request) event()        {}
func (Cancel) event()         {}

// SegmentDamage is a stored batch that is not intact.
type SegmentDamage struct {
	Offset   model.Offset // the batch's first
	File     string
	Position int64 // byte in File at which the batch begins
	Cause    string
}

// Recovered is a data folder's content after recovery.
type Recovered struct {
	// Incarnation is this run's; its boot counter is already durable.
	Incarnation model.Incarnation
	// Checkpoint is the state last named by the manifest; nil: none yet.
	Checkpoint []byte
	// Generation is the journal's newest.
	Generation uint64
	// Sequence is that of the journal's last record, over all starts.
	Sequence uint64
	// Records are the journal's, in order, from the checkpoint's generation on.
	Records []JournalRecord
	// Loaded is what Load made of the above; Start loads by itself without it.
	Loaded *Loaded
}

// RecordType says what a journal record is about.
type RecordType uint8

// Record types. Numbers are part of the journal's format.
const (
	RecordReady     RecordType = 1 // one Ready of one group: hard state, snapshot, entries
	RecordGroup     RecordType = 2 // a group's replica was created here
	RecordDrop      RecordType = 3 // a group's replica was removed here
	RecordBootstrap RecordType = 4 // the cluster's founding, as this node took part in it
	RecordBase      RecordType = 5 // first record of a group in a generation: its state at the checkpoint's barrier
	RecordMark      RecordType = 6 // sync mark: nothing but a witness of durability
	RecordReset     RecordType = 7 // the partition's store is being emptied; it begins anew at offset Index
	RecordLives     RecordType = 8 // what is known of the other nodes' data folders
)

// JournalRecord is one atomic write of one group.
type JournalRecord struct {
	Type        RecordType
	Group       model.GroupID
	Index, Term uint64 // of the last entry in it, for people and checks
	Payload     []byte
}

// Effect is what a Shard asks of its host. The host may carry each out as soon
// as it sees it; lanes order them: one FIFO for the journal, one per partition
// for segment writes, one per peer for sends; everything else is unordered.
type Effect interface{ effect() }

type (
	// Wake asks for an event, Tick if nothing else, at the given moment. The
	// last one counts.
	Wake struct{ At model.Mono }
	// Send hands a packet to the transport.
	Send struct {
		To   model.NodeID
		Data []byte
	}
	// JournalAppend adds a record. Sequences count from 1 per boot, without
	// gaps. Sync asks for JournalDone up to it; without it the record may wait
	// for the next one that does.
	JournalAppend struct {
		Sequence uint64
		Record   JournalRecord
		Sync     bool
	}
	// JournalRoll starts a generation; in the journal's FIFO.
	JournalRoll struct{ Generation uint64 }
	// SegmentAppend adds a stamped batch to a partition's active segment.
	SegmentAppend struct {
		Group model.GroupID
		Batch []byte
	}
	// SegmentRoll closes the active segment; the next begins at At.
	SegmentRoll struct {
		Group model.GroupID
		At    model.Offset
	}
	// SegmentDrop removes whole segments below Before.
	SegmentDrop struct {
		Group  model.GroupID
		Before model.Offset
	}
	// SegmentSync makes all earlier writes of one partition durable: SegmentDone.
	SegmentSync struct {
		ID    uint64
		Group model.GroupID
	}
	// SegmentRepair puts a batch from another replica in the place of the damaged
	// one that it is a copy of: RepairDone.
	SegmentRepair struct {
		Group model.GroupID
		Batch []byte
	}
	// SegmentReset empties a partition's store; the next append begins at At.
	// Remove deletes it altogether.
	SegmentReset struct {
		Group  model.GroupID
		At     model.Offset
		Remove bool
	}
	// Checkpoint: once the journal's generation Generation is durable, and every
	// segment write emitted before this effect is, too, write the manifest with
	// State; then older generations go.
	Checkpoint struct {
		ID         uint64
		Generation uint64
		State      []byte
		Segments   []SegmentMark
	}
	// Read asks for stored batches from Offset on; ReadDone.
	Read struct {
		ID       uint64
		Group    model.GroupID
		Offset   model.Offset
		MaxBytes int
	}
	// ReadAt asks for the first stored batch with an append time of at least At.
	ReadAt struct {
		ID    uint64
		Group model.GroupID
		At    model.Wall
	}
	// Peer says where a node is: one that joined, or whose address changed.
	Peer struct{ Node model.Node }
	// Refuse says that this folder must never be used again, and why: the host
	// makes that durable and stops the node.
	Refuse struct{ Cause string }
	// Note is something an operator should know; for the log.
	Note struct{ Text string }
	// Reply answers a Request; Err != nil wins.
	Reply struct {
		ID     uint64
		Result call.ClientResult
		Err    *model.Error
	}
)

// SegmentMark is what a checkpoint says of a partition's files: recovery cuts
// them back to End and the journal brings the rest again.
type SegmentMark struct {
	Group      model.GroupID
	Start, End model.Offset
}

func (Wake) effect()          {}
func (Send) effect()          {}
func (JournalAppend) effect() {}
func (JournalRoll) effect()   {}
func (SegmentAppend) effect() {}
func (SegmentRoll) effect()   {}
func (SegmentDrop) effect()   {}
func (SegmentSync) effect()   {}
func (SegmentReset) effect()  {}
func (SegmentRepair) effect() {}
func (Checkpoint) effect()    {}
func (Read) effect()          {}
func (ReadAt) effect()        {}
func (Reply) effect()         {}
func (Note) effect()          {}
func (Refuse) effect()        {}
func (Peer) effect()          {}
