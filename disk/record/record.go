// Package record frames journal records and holds the recovery rule that every
// journal engine shares: what may be cut at open, and what must be refused.
//
// It owns the bytes of a frame, the scan of a journal before it is opened, the
// verdict on damage, and the poisoning of a journal after its first error. It
// does not know how an engine keeps frames in files.
//
// # Frame, little-endian
//
//	 0 crc32c     u32  of [4, 60+len)
//	 4 len        u32  bytes of the payload
//	 8 seq        u64  the record's sequence, from 1, without gaps over generations
//	16 synced     u64  the highest sequence known durable when this was framed
//	24 generation u64  random id of the generation
//	32 type       u8   0: start of a generation; others are the caller's
//	33 flags      u8   the caller's
//	34 version    u16  1
//	36 group      u64
//	44 index      u64
//	52 term       u64
//	60 payload
//
// The first frame of every generation is its start: type 0, no payload, seq and
// synced the last sequence before it, group and index the generation's number
// and part. It is durable before the generation takes its first record, and all
// earlier generations are durable in full before it is written.
//
// # The rule
//
// A torn write loses only what was never acknowledged and may be cut. A damaged
// durable record may be committed and must never be cut. Before the journal is
// opened every byte of it is read:
//
//  1. There are no stray files; a file's name says which frame it begins with,
//     and that is the one after the last of the file before.
//  2. At the first bad frame the bytes behind it are searched for intact frames
//     of the same generation. Their greatest synced bound and the manifest's
//     mark are the witnesses of what was durable.
//  3. If the bad frame is at or below a witness, or is not in the last file, the
//     journal is refused, with file, position and what to do.
//  4. Otherwise the tail is cut, file and folder are made durable, and a second
//     read must find what the first one kept.
//  5. A journal that ends below the manifest's mark is refused.
//
// New records never go behind a cut: opening starts a fresh part.
//
// What no rule can see: a cut exactly between two records below the durable
// bound with no later witness, damage in the records after the last witness (a
// sync mark makes that window small), a disk that lied about its last sync.
package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/tapedeck/tapedeck/disk"
)

// Sizes and numbers of the frame.
const (
	HeaderSize = 60
	// MaxPayload bounds a record; the core's entries are far below it.
	MaxPayload = 64 << 20
	// TypeStart is the first frame of a generation; never returned by Open.
	TypeStart uint8 = 0
	// TypeMark is a sync mark: no payload, nothing but a witness of durability.
	TypeMark uint8 = 6

	version      = 1
	generationAt = 24
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// Record is one framed journal record.
type Record struct {
	Type               uint8
	Flags              uint8
	Group, Index, Term uint64
	Payload            []byte
	Sequence           uint64 // assigned by Append; continues over generations
	Generation         uint64 // its number; filled in by Open
}

// Mark is what the manifest knows: Sequence was durable when it was written.
// The host takes it from Log.Durable.
type Mark struct{ Sequence uint64 }

// Refused says why a journal, or the data folder it is in, must not be used: its
// damage may hide durable records.
type Refused struct {
	File     string // as the engine names it; "" if none can be named
	Position int64  // byte in File at which the damage begins
	Cause    string
	Advice   string
}

func (r *Refused) Error() string {
	return fmt.Sprintf("data folder refused: %s at byte %d: %s; %s", r.File, r.Position, r.Cause, r.Advice)
}

const advice = "records that were acknowledged may be damaged or lost here, so nothing was changed: " +
	"move this data folder away and let the node rejoin empty; its peers hold the data"

func refuse(file string, position int, cause string, args ...any) *Refused {
	return &Refused{File: file, Position: int64(position), Cause: fmt.Sprintf(cause, args...), Advice: advice}
}

// frame is a decoded frame; its payload aliases the bytes it was decoded from.
type frame struct {
	Record
	synced, id uint64
}

// appendFrame adds a record's frame to dst.
func appendFrame(dst []byte, r *Record, synced, id uint64) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = append(dst, r.Payload...)
	f := dst[at:]
	le.PutUint32(f[4:], uint32(len(r.Payload)))
	le.PutUint64(f[8:], r.Sequence)
	le.PutUint64(f[16:], synced)
	le.PutUint64(f[generationAt:], id)
	f[32], f[33] = r.Type, r.Flags
	le.PutUint16(f[34:], version)
	le.PutUint64(f[36:], r.Group)
	le.PutUint64(f[44:], r.Index)
	le.PutUint64(f[52:], r.Term)
	le.PutUint32(f, crc32.Checksum(f[4:], castagnoli))
	return dst
}

// decode reads the frame that buf begins with and returns its size. A frame
// that is not intact gives a cause.
func decode(buf []byte) (f frame, size int, cause string) {
	if len(buf) < HeaderSize {
		return f, 0, fmt.Sprintf("a frame takes %d bytes, %d are there", HeaderSize, len(buf))
	}
	n := le.Uint32(buf[4:])
	if n > MaxPayload || int(n) > len(buf)-HeaderSize {
		return f, 0, fmt.Sprintf("a frame says it has %d bytes of payload, %d are there", n, len(buf)-HeaderSize)
	}
	size = HeaderSize + int(n)
	if got := crc32.Checksum(buf[4:size], castagnoli); got != le.Uint32(buf) {
		return f, 0, fmt.Sprintf("a frame's checksum is %08x, its bytes give %08x", le.Uint32(buf), got)
	}
	if v := le.Uint16(buf[34:]); v != version {
		return f, 0, fmt.Sprintf("a frame has version %d, this build reads %d", v, version)
	}
	f = frame{
		Record: Record{
			Type: buf[32], Flags: buf[33], Sequence: le.Uint64(buf[8:]),
			Group: le.Uint64(buf[36:]), Index: le.Uint64(buf[44:]), Term: le.Uint64(buf[52:]),
			Payload: buf[HeaderSize:size:size],
		},
		synced: le.Uint64(buf[16:]), id: le.Uint64(buf[generationAt:]),
	}
	return f, size, ""
}

// GenerationName is the file or folder name of a generation, in every engine.
func GenerationName(g disk.Generation) string {
	return fmt.Sprintf("%016d.%08d-%016x", g.Number, g.Part, g.ID)
}

// ParseGenerationName is GenerationName's inverse; false: not such a name.
func ParseGenerationName(name string) (g disk.Generation, ok bool) {
	if _, err := fmt.Sscanf(strings.Replace(name, ".", " ", 1), "%d %d-%x", &g.Number, &g.Part, &g.ID); err != nil {
		return g, false
	}
	return g, g.Number > 0 && g.ID != 0 && GenerationName(g) == name
}
