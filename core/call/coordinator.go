package call

import (
	"time"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Target names a subscription to its coordinator. A coordinator whose catalog is
// older than MapVersion and does not know it answers STALE_MAP, not NOT_FOUND.
type Target struct {
	Subscription string // topic/name
	MapVersion   uint64
}

func (m *Target) code(c *wire.Codec) {
	wire.String(c, &m.Subscription)
	wire.Uint(c, &m.MapVersion)
}

// Grant asks what a member may read now. It joins an unknown member and renews
// a known one's session. It is the first third of a pull: grant, read, deliver.
type Grant struct {
	Target
	Member       model.MemberID // empty: give me one
	Static       bool
	PullSequence uint64 // 0: each pull starts at the cursor
	MaxMessages  uint32
}

// Granted answers Grant. With a PullSequence seen before, Ranges are those of
// the first answer, one per partition, to be read up to their ends; else the
// gateway reads on from From, up to To if that is not 0. Either way it leaves out
// what is Acked. Ranges rotate from grant to grant so that no partition starves.
type Granted struct {
	Member     model.MemberID
	Generation model.Generation
	Replay     bool
	Room       uint32 // shared: messages that the member may be given
	Ranges     []Range
	Acked      []Range // within Ranges, by partition, ascending
	Skipped    []Range // told until confirmed by the next pull
}

// Deliver tells the coordinator what a pull is about to hand out; only after its
// answer may the gateway do so. Ranges of one partition ascend. Skips are ranges found to lie below the log's start.
type Deliver struct {
	Target
	Member       model.MemberID
	Generation   model.Generation
	PullSequence uint64
	Ranges       []Range
	Skips        []Range
	Token        uint64   // the same when it is asked again, and of no other pull
	Keys         []uint32 // key_ordered: upper half of the key's hash, by message of Ranges
	Filtered     []Range  // of what was read, what the subscription's filter does not want
}

// Delivered answers Deliver: the ranges that may go out, each a part of one of
// Deliver's (without what is acked, and without those of partitions no longer
// owned, or moved by a seek meanwhile), and what was skipped.
type Delivered struct {
	Generation model.Generation
	Delivery   uint64 // shared: names what this pull was given; 0: nothing
	Ranges     []Range
	Skipped    []Range
}

// AckCursors acknowledges up to, exclusively, an offset per partition, or single
// offsets ahead of the cursor. Ends carries fresh high watermarks when the
// coordinator asked for them by CHECK_END.
type AckCursors struct {
	Target
	Member     model.MemberID
	Generation model.Generation
	UpTo       []PartitionOffset
	Offsets    []PartitionOffset
	Ends       []PartitionOffset
}

// ReasonCheckEnd is internal to gateway and coordinator: the ack lies above what
// is known to be delivered; ask again with a fresh high watermark in Ends.
const ReasonCheckEnd model.Reason = "CHECK_END"

// AckResult is one partition's outcome.
type AckResult struct {
	Partition model.Partition
	Cursor    model.Offset
	Err       *model.Error
}

// Acked answers AckCursors, one result per partition named, in the order named.
type Acked struct{ Results []AckResult }

// NackCursors gives messages back: each counts an attempt, and what was given
// from the lowest of a partition on is void. Answered by Acked, one result per
// partition named. Ends is as in AckCursors.
type NackCursors struct {
	Target
	Member     model.MemberID
	Generation model.Generation
	Offsets    []PartitionOffset
	Deliveries []uint64      // shared: by offset
	Delay      time.Duration // until they come again; 0: the subscription's backoff
	Ends       []PartitionOffset
}

// ExtendLeases sets the time left for the leases up to those that hold the
// offsets named, and renews the member's session. Answered as NackCursors.
type ExtendLeases struct {
	Target
	Member     model.MemberID
	Generation model.Generation
	Offsets    []PartitionOffset
	Deliveries []uint64      // shared: by offset
	Extension  time.Duration // from now; 0: the ack deadline
}

// MoveCursors is a seek whose places are resolved. Offsets must lie in
// [log start, high watermark] as read freshly by the gateway. With a snapshot's
// name the cursors go where they were then, those of the partitions in Only or,
// if it is empty, of all.
type MoveCursors struct {
	Target
	To       []PartitionOffset
	Snapshot string
	Only     []model.Partition
}

// Moved answers MoveCursors; To is where the cursors are now.
type Moved struct {
	Generation model.Generation
	To         []PartitionOffset
}

// Leave ends a member's session at once.
type Leave struct {
	Target
	Member model.MemberID
}

// Heartbeat renews a member's session.
type Heartbeat struct {
	Target
	Member     model.MemberID
	Generation model.Generation
}

// Describe asks for the state, linearizably.
type Describe struct{ Target }

// MemberState is one member's.
type MemberState struct {
	ID         model.MemberID
	Static     bool
	IdleFor    int64 // nanoseconds since it was last heard of
	Partitions []model.Partition
}

// CursorState is one partition's.
type CursorState struct {
	Partition model.Partition
	Cursor    model.Offset
	Owner     model.MemberID // empty: none
	Fence     model.Generation
	Leased    uint64 // messages delivered and not acked
	Waits     string // why a dead letter is kept from its topic; empty: none is, or not for long
}

// Description answers Describe.
type Description struct {
	Generation model.Generation
	Members    []MemberState
	Cursors    []CursorState
}

// Kinds of coordinator calls.
func (*Grant) Kind() Kind        { return 32 }
func (*Granted) Kind() Kind      { return 33 }
func (*Deliver) Kind() Kind      { return 34 }
func (*Delivered) Kind() Kind    { return 35 }
func (*AckCursors) Kind() Kind   { return 36 }
func (*Acked) Kind() Kind        { return 37 }
func (*MoveCursors) Kind() Kind  { return 38 }
func (*Moved) Kind() Kind        { return 39 }
func (*Leave) Kind() Kind        { return 40 }
func (*Heartbeat) Kind() Kind    { return 41 }
func (*Describe) Kind() Kind     { return 42 }
func (*Description) Kind() Kind  { return 43 }
func (*NackCursors) Kind() Kind  { return 44 }
func (*ExtendLeases) Kind() Kind { return 45 }

// Code implements wire.Coder.
func (m *Grant) Code(c *wire.Codec) {
	m.code(c)
	wire.String(c, &m.Member)
	c.Bool(&m.Static)
	wire.Uint(c, &m.PullSequence)
	wire.Uint(c, &m.MaxMessages)
}

// Code implements wire.Coder.
func (m *Granted) Code(c *wire.Codec) {
	wire.String(c, &m.Member)
	wire.Uint(c, &m.Generation)
	c.Bool(&m.Replay)
	wire.Uint(c, &m.Room)
	wire.Slice(c, &m.Ranges, codeRange)
	wire.Slice(c, &m.Acked, codeRange)
	wire.Slice(c, &m.Skipped, codeRange)
}

// Code implements wire.Coder.
func (m *Deliver) Code(c *wire.Codec) {
	m.code(c)
	wire.String(c, &m.Member)
	wire.Uint(c, &m.Generation)
	wire.Uint(c, &m.PullSequence)
	wire.Slice(c, &m.Ranges, codeRange)
	wire.Slice(c, &m.Skips, codeRange)
	wire.Uint(c, &m.Token)
	wire.Slice(c, &m.Keys, func(c *wire.Codec, k *uint32) { wire.Uint(c, k) })
	wire.Slice(c, &m.Filtered, codeRange)
}

// Code implements wire.Coder.
func (m *Delivered) Code(c *wire.Codec) {
	wire.Uint(c, &m.Generation)
	wire.Uint(c, &m.Delivery)
	wire.Slice(c, &m.Ranges, codeRange)
	wire.Slice(c, &m.Skipped, codeRange)
}

// Code implements wire.Coder.
func (m *AckCursors) Code(c *wire.Codec) {
	m.code(c)
	wire.String(c, &m.Member)
	wire.Uint(c, &m.Generation)
	wire.Slice(c, &m.UpTo, codePartitionOffset)
	wire.Slice(c, &m.Offsets, codePartitionOffset)
	wire.Slice(c, &m.Ends, codePartitionOffset)
}

// Code implements wire.Coder.
func (m *Acked) Code(c *wire.Codec) {
	wire.Slice(c, &m.Results, func(c *wire.Codec, v *AckResult) {
		wire.Uint(c, &v.Partition)
		wire.Uint(c, &v.Cursor)
		CodeError(c, &v.Err)
	})
}

// Code implements wire.Coder.
func (m *NackCursors) Code(c *wire.Codec) {
	m.code(c)
	wire.String(c, &m.Member)
	wire.Uint(c, &m.Generation)
	wire.Slice(c, &m.Offsets, codePartitionOffset)
	wire.Slice(c, &m.Deliveries, codeDelivery)
	c.Duration(&m.Delay)
	wire.Slice(c, &m.Ends, codePartitionOffset)
}

// Code implements wire.Coder.
func (m *ExtendLeases) Code(c *wire.Codec) {
	m.code(c)
	wire.String(c, &m.Member)
	wire.Uint(c, &m.Generation)
	wire.Slice(c, &m.Offsets, codePartitionOffset)
	wire.Slice(c, &m.Deliveries, codeDelivery)
	c.Duration(&m.Extension)
}

func codeDelivery(c *wire.Codec, d *uint64) { wire.Uint(c, d) }

// Code implements wire.Coder.
func (m *MoveCursors) Code(c *wire.Codec) {
	m.code(c)
	wire.Slice(c, &m.To, codePartitionOffset)
	wire.String(c, &m.Snapshot)
	wire.Slice(c, &m.Only, func(c *wire.Codec, p *model.Partition) { wire.Uint(c, p) })
}

// Code implements wire.Coder.
func (m *Moved) Code(c *wire.Codec) {
	wire.Uint(c, &m.Generation)
	wire.Slice(c, &m.To, codePartitionOffset)
}

// Code implements wire.Coder.
func (m *Leave) Code(c *wire.Codec) {
	m.code(c)
	wire.String(c, &m.Member)
}

// Code implements wire.Coder.
func (m *Heartbeat) Code(c *wire.Codec) {
	m.code(c)
	wire.String(c, &m.Member)
	wire.Uint(c, &m.Generation)
}

// Code implements wire.Coder.
func (m *Describe) Code(c *wire.Codec) { m.code(c) }

// Code implements wire.Coder.
func (m *Description) Code(c *wire.Codec) {
	wire.Uint(c, &m.Generation)
	wire.Slice(c, &m.Members, func(c *wire.Codec, v *MemberState) {
		wire.String(c, &v.ID)
		c.Bool(&v.Static)
		wire.Int(c, &v.IdleFor)
		wire.Slice(c, &v.Partitions, func(c *wire.Codec, p *model.Partition) { wire.Uint(c, p) })
	})
	wire.Slice(c, &m.Cursors, func(c *wire.Codec, v *CursorState) {
		wire.Uint(c, &v.Partition)
		wire.Uint(c, &v.Cursor)
		wire.String(c, &v.Owner)
		wire.Uint(c, &v.Fence)
		wire.Uint(c, &v.Leased)
		wire.String(c, &v.Waits)
	})
}
