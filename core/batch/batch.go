// Package batch is the codec of batches: the unit a producer sends, a raft
// entry carries, a segment stores and a consumer receives, the same bytes all
// the way. The broker reads headers only; it never parses messages on the way
// of a publish.
//
// Layout, little-endian. The stamp is written by the leader, in place; the rest
// is the producer's and never changes.
//
//	 0 magic      u32  "TDB1"
//	 4 stampCRC   u32  crc32c of [8,32)
//	 8 base       u64  offset of the first message
//	16 appendTime i64  nanoseconds since the Unix epoch
//	24 stampFlags u64  bit 0 stamped by a leader, bit 1 start, bit 2 untrusted time
//	32 crc        u32  crc32c of [36,size)
//	36 size       u32  bytes of the whole batch, stamp included
//	40 version    u16  1
//	42 flags      u16  bits 0-3 compression: 0 none, 1 zstd, 2 s2
//	44 count      u32  messages, at least 1
//	48 producer   u64  0: none
//	56 epoch      u64
//	64 sequence   u64  of the first message
//	72 mapVersion u32  partition-count version the key was split by; 0: partition named
//	76 rawSize    u32  bytes of the body before compression
//	80 table      count × (keyHash u32, rawLength u32)
//	.. body       the messages, one after the other, compressed as a whole
//
// A message in the body: event time i64 (nanoseconds, 0 = none), key, payload
// (each u32 length + bytes), attribute count u16, then per attribute two u16
// length + bytes strings, sorted by name.
package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/model"
)

// Sizes and marks of the layout.
const (
	Magic      = 0x31424454
	HeaderSize = 80
	StampSize  = 32
	tableEntry = 8
	version    = 1
	// MaxRawSize bounds what a packed body may unpack to: a few bytes must not
	// fill a consumer's memory.
	MaxRawSize = 64 << 20
	// minMessage is an encoded message without key, payload and attributes.
	minMessage = 18
)

// Compression says how a batch's body is packed. Only clients pack and unpack.
type Compression uint16

// Known compressions.
const (
	None Compression = 0
	Zstd Compression = 1
	S2   Compression = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// KeyHash is the hash by which keys are spread: partition = KeyHash(key) mod
// partition count, xxh64 with seed 0. The batch table carries its upper 32 bits.
func KeyHash(key []byte) uint64 { return xxhash.Sum64(key) }

// PartitionFor names the partition of a key.
func PartitionFor(key []byte, partitions uint32) model.Partition {
	return model.Partition(KeyHash(key) % uint64(partitions))
}

// View reads a batch in place. It stays valid as long as its bytes do.
type View []byte

// Parse checks the layout, the table and both checksums and returns a view of
// exactly the first batch of buf.
func Parse(buf []byte) (View, error) {
	v, err := ParseHeader(buf)
	if err != nil {
		return nil, err
	}
	if got := crc32.Checksum(v[36:], castagnoli); got != le.Uint32(v[32:]) {
		return nil, fmt.Errorf("batch checksum is %08x, its bytes give %08x", le.Uint32(v[32:]), got)
	}
	if got := crc32.Checksum(v[8:StampSize], castagnoli); got != le.Uint32(v[4:]) {
		return nil, fmt.Errorf("batch stamp checksum is %08x, its bytes give %08x", le.Uint32(v[4:]), got)
	}
	if err := v.checkTable(); err != nil {
		return nil, err
	}
	return v, nil
}

// checkTable holds what the producer said of the body against itself, so that
// whoever unpacks it knows how much to expect.
func (v View) checkTable() error {
	if flags := le.Uint16(v[42:]); flags > uint16(S2) {
		return fmt.Errorf("batch has flags %#x; this build knows compressions up to %d and nothing else", flags, S2)
	}
	raw := v.RawSize()
	if raw > MaxRawSize {
		return fmt.Errorf("batch unpacks to %d bytes; at most %d are allowed", raw, MaxRawSize)
	}
	if v.Compression() == None && int(raw) != len(v.Body()) {
		return fmt.Errorf("batch says its body has %d bytes; %d are there", raw, len(v.Body()))
	}
	sum := uint64(0)
	for i := range int(v.Count()) {
		_, n := v.Entry(i)
		if n < minMessage {
			return fmt.Errorf("message %d says it has %d bytes; the smallest has %d", i, n, minMessage)
		}
		sum += uint64(n)
	}
	if sum != uint64(raw) {
		return fmt.Errorf("messages add up to %d bytes; the batch says %d", sum, raw)
	}
	return nil
}

// ParseHeader checks sizes only: for bytes whose checksum was checked before.
func ParseHeader(buf []byte) (View, error) {
	if len(buf) < HeaderSize {
		return nil, fmt.Errorf("batch has %d bytes; a header takes %d", len(buf), HeaderSize)
	}
	if m := le.Uint32(buf); m != Magic {
		return nil, fmt.Errorf("batch starts with %08x, not %08x", m, uint32(Magic))
	}
	size, count := uint64(le.Uint32(buf[36:])), uint64(le.Uint32(buf[44:]))
	if got := le.Uint16(buf[40:]); got != version {
		return nil, fmt.Errorf("batch version is %d; this build reads %d", got, version)
	}
	if count == 0 || size > uint64(len(buf)) || HeaderSize+count*tableEntry > size {
		return nil, fmt.Errorf("batch of %d messages says it has %d bytes; %d are there", count, size, len(buf))
	}
	return View(buf[:size:size]), nil
}

// Base is the first message's offset; meaningful once stamped.
func (v View) Base() model.Offset { return model.Offset(le.Uint64(v[8:])) }

// Next is the offset after the last message.
func (v View) Next() model.Offset { return v.Base() + model.Offset(v.Count()) }

// AppendTime is the leader's stamp.
func (v View) AppendTime() model.Wall { return model.Wall(le.Uint64(v[16:])) }

// Count is the number of messages.
func (v View) Count() uint32 { return le.Uint32(v[44:]) }

// Compression says how the body is packed.
func (v View) Compression() Compression { return Compression(le.Uint16(v[42:]) & 15) }

// Producer is 0 for a batch without one.
func (v View) Producer() model.ProducerID { return model.ProducerID(le.Uint64(v[48:])) }

// Epoch is the producer's.
func (v View) Epoch() model.Epoch { return model.Epoch(le.Uint64(v[56:])) }

// Sequence is the first message's.
func (v View) Sequence() model.Sequence { return model.Sequence(le.Uint64(v[64:])) }

// MapVersion is the partition-count version keys were split by, 0 if none was.
func (v View) MapVersion() uint32 { return le.Uint32(v[72:]) }

// RawSize is the body's size before compression.
func (v View) RawSize() uint32 { return le.Uint32(v[76:]) }

// Body is the packed body.
func (v View) Body() []byte { return v[HeaderSize+tableEntry*int(v.Count()):] }

// Entry is message i's upper 32 hash bits and raw length.
func (v View) Entry(i int) (keyHash, rawLength uint32) {
	at := v[HeaderSize+tableEntry*i:]
	return le.Uint32(at), le.Uint32(at[4:])
}

// StampFlags are the stamp's word of flags.
type StampFlags uint64

// Stamp flags.
const (
	// Stamped says that a leader wrote the stamp: the bytes may be in a raft log
	// and must not change any more. Whoever stamps again stamps a Clone.
	Stamped StampFlags = 1 << 0
	// StampStart says that the producer accepts to start anew at this sequence.
	StampStart StampFlags = 1 << 1
	// StampUntrusted says that the leader's wall clock could not be trusted: the
	// append time is an earlier one plus its monotonic time.
	StampUntrusted StampFlags = 1 << 2
)

// StampFlags are zero until a leader stamped the batch.
func (v View) StampFlags() StampFlags { return StampFlags(le.Uint64(v[24:])) }

// Stamp writes offset and append time in place, without flags.
func (v View) Stamp(base model.Offset, at model.Wall) { v.StampWith(base, at, 0) }

// StampWith writes the whole stamp in place.
func (v View) StampWith(base model.Offset, at model.Wall, flags StampFlags) {
	le.PutUint64(v[8:], uint64(base))
	le.PutUint64(v[16:], uint64(at))
	le.PutUint64(v[24:], uint64(flags))
	le.PutUint32(v[4:], crc32.Checksum(v[8:StampSize], castagnoli))
}

// Clone copies the bytes: a leader stamps a copy of what it does not own.
func (v View) Clone() View { return append(View(nil), v...) }

// Split cuts a run of batches laid end to end, checking headers only.
func Split(run []byte) ([]View, error) {
	var out []View
	for len(run) > 0 {
		v, err := ParseHeader(run)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		run = run[len(v):]
	}
	return out, nil
}
