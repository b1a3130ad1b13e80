package call

import (
	"time"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Append asks a partition's leader to append one batch. The batch's stamp area
// is overwritten in place by the leader: the caller hands the bytes over.
type Append struct {
	Batch []byte // unstamped, checked by the gateway (batch.Parse)
	Start bool   // the producer accepts to start anew after SEQUENCE_UNKNOWN
}

// Appended answers Append.
type Appended struct {
	Base       model.Offset
	AppendTime model.Wall
	Duplicate  bool
}

// Read asks for stored batches from Offset on. Any replica serves what is below
// its applied high watermark; only a leader past its own-term gate answers
// OFFSET_TOO_OLD or OFFSET_TOO_NEW, waits, or says HighWatermark and LogStart.
type Read struct {
	Offset   model.Offset
	MaxBytes uint32
	Wait     time.Duration // long-poll when Offset is the high watermark
	Leader   bool          // only a leader may answer: HighWatermark and LogStart are wanted
	Filter   string        // which messages are wanted, in the language of core/filter; empty: all
}

// ReadResult answers Read. Run is stamped batches laid end to end; the first may
// begin below the offset asked for. With a filter Run lacks the batches that hold
// nothing wanted, and Filtered says what of [Offset, Next) is not wanted.
type ReadResult struct {
	Run           []byte
	Filtered      []Range      // ascending; their partition is left 0
	Next          model.Offset // after the last batch read; the offset asked for when there is none
	HighWatermark model.Offset
	LogStart      model.Offset
}

// Locate asks, linearizably, where earliest, latest or a moment is: for a moment
// the first offset whose append time is at least it, the end when there is none.
// Kind StartOffsets asks for nothing but the bounds and the age of the message
// at Offset, which is first moved into [log start, high watermark].
type Locate struct {
	Where  model.Start
	Offset model.Offset // with StartOffsets
}

// Located answers Locate.
type Located struct {
	Offset        model.Offset
	HighWatermark model.Offset
	LogStart      model.Offset
	Bytes         uint64
	// OldestTime is the append time of the batch at Offset; 0 when there is none.
	OldestTime model.Wall
}

// Fence bars epochs of a producer older than Epoch from this partition.
type Fence struct {
	Producer model.ProducerID
	Epoch    model.Epoch
}

// Kinds of partition calls.
func (*Append) Kind() Kind     { return 1 }
func (*Appended) Kind() Kind   { return 2 }
func (*Read) Kind() Kind       { return 3 }
func (*ReadResult) Kind() Kind { return 4 }
func (*Locate) Kind() Kind     { return 5 }
func (*Located) Kind() Kind    { return 6 }
func (*Fence) Kind() Kind      { return 7 }

// Code implements wire.Coder.
func (m *Append) Code(c *wire.Codec) {
	c.Bytes(&m.Batch)
	c.Bool(&m.Start)
}

// Code implements wire.Coder.
func (m *Appended) Code(c *wire.Codec) {
	wire.Uint(c, &m.Base)
	wire.Int(c, &m.AppendTime)
	c.Bool(&m.Duplicate)
}

// Code implements wire.Coder.
func (m *Read) Code(c *wire.Codec) {
	wire.Uint(c, &m.Offset)
	wire.Uint(c, &m.MaxBytes)
	c.Duration(&m.Wait)
	c.Bool(&m.Leader)
	wire.String(c, &m.Filter)
}

// Code implements wire.Coder.
func (m *ReadResult) Code(c *wire.Codec) {
	c.Bytes(&m.Run)
	wire.Slice(c, &m.Filtered, codeRange)
	wire.Uint(c, &m.Next)
	wire.Uint(c, &m.HighWatermark)
	wire.Uint(c, &m.LogStart)
}

// Code implements wire.Coder.
func (m *Locate) Code(c *wire.Codec) {
	codeStart(c, &m.Where)
	wire.Uint(c, &m.Offset)
}

func codeStart(c *wire.Codec, v *model.Start) {
	wire.Uint(c, &v.Kind)
	wire.Int(c, &v.Time)
}

// Code implements wire.Coder.
func (m *Located) Code(c *wire.Codec) {
	wire.Uint(c, &m.Offset)
	wire.Uint(c, &m.HighWatermark)
	wire.Uint(c, &m.LogStart)
	wire.Uint(c, &m.Bytes)
	wire.Int(c, &m.OldestTime)
}

// Code implements wire.Coder.
func (m *Fence) Code(c *wire.Codec) {
	wire.Uint(c, &m.Producer)
	wire.Uint(c, &m.Epoch)
}
