package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sort"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// Sizes of the format.
const (
	spacing      = 64 << 10 // bytes between indexed batches, at least
	entrySize    = 16
	blockHead    = 8
	blockEntries = 255
	footerSize   = 64
	footerMagic  = 0x46534454
	version      = 1

	kindOffsets = 1
	kindTimes   = 2
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// entry says that what key describes is at or behind position.
type entry struct {
	key      uint64
	position int64
}

// index is a segment's sparse index. Entries are only ever added, so a copy of
// the struct is a consistent snapshot.
type index struct {
	offsets []entry
	times   []entry // key is a model.Wall
	maxTime model.Wall
}

func newIndex() index { return index{maxTime: math.MinInt64} }

// add takes up the batch at position.
func (x *index) add(v batch.View, position, spacing int64) {
	if n := len(x.offsets); n == 0 || position-x.offsets[n-1].position >= spacing {
		x.offsets = append(x.offsets, entry{uint64(v.Base()), position})
		x.times = append(x.times, entry{uint64(x.maxTime), position})
	}
	x.maxTime = max(x.maxTime, v.AppendTime())
}

// begin makes the entry of a file's first batch, which is not intact.
func (x *index) begin(base model.Offset) {
	x.offsets = append(x.offsets, entry{key: uint64(base)})
	x.times = append(x.times, entry{key: uint64(x.maxTime)})
}

// byOffset is the last entry at or below offset.
func (x *index) byOffset(offset model.Offset) entry {
	i := sort.Search(len(x.offsets), func(i int) bool { return x.offsets[i].key > uint64(offset) })
	return x.offsets[max(i-1, 0)]
}

// byTime is the last entry before which every append time is below t.
func (x *index) byTime(t model.Wall) entry {
	i := sort.Search(len(x.times), func(i int) bool { return model.Wall(x.times[i].key) >= t })
	return x.offsets[max(i-1, 0)]
}

// indexSize is the encoded size of both indexes of so many entries each.
func indexSize(entries int64) int64 {
	blocks := (entries + blockEntries - 1) / blockEntries
	return 2 * (blocks*blockHead + entries*entrySize)
}

func appendBlocks(dst []byte, kind uint16, entries []entry) []byte {
	for len(entries) > 0 {
		n := min(len(entries), blockEntries)
		at := len(dst)
		dst = le.AppendUint32(dst, 0)
		dst = le.AppendUint16(dst, kind)
		dst = le.AppendUint16(dst, uint16(n))
		for _, e := range entries[:n] {
			dst = le.AppendUint64(dst, e.key)
			dst = le.AppendUint64(dst, uint64(e.position))
		}
		le.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], castagnoli))
		entries = entries[n:]
	}
	return dst
}

// parseBlocks reads the blocks of one kind and returns what follows them.
func parseBlocks(buf []byte, kind uint16, entries int, limit int64) ([]entry, []byte, error) {
	out := make([]entry, 0, entries)
	for len(out) < entries {
		n := min(entries-len(out), blockEntries)
		size := blockHead + n*entrySize
		if len(buf) < size {
			return nil, nil, fmt.Errorf("index block takes %d bytes, %d are there", size, len(buf))
		}
		b := buf[:size]
		if got := crc32.Checksum(b[4:], castagnoli); got != le.Uint32(b) {
			return nil, nil, fmt.Errorf("index block's checksum is %08x, its bytes give %08x", le.Uint32(b), got)
		}
		if le.Uint16(b[4:]) != kind || int(le.Uint16(b[6:])) != n {
			return nil, nil, fmt.Errorf("index block has kind %d and %d entries, not kind %d and %d",
				le.Uint16(b[4:]), le.Uint16(b[6:]), kind, n)
		}
		for i := range n {
			at := b[blockHead+i*entrySize:]
			e := entry{le.Uint64(at), int64(le.Uint64(at[8:]))}
			if e.position < 0 || e.position >= limit || len(out) == 0 && e.position != 0 {
				return nil, nil, fmt.Errorf("index entry points to byte %d of %d", e.position, limit)
			}
			out = append(out, e)
		}
		buf = buf[size:]
	}
	return out, buf, nil
}

// footer says what a rolled file holds.
type footer struct {
	base, end model.Offset
	bytes     int64
	maxTime   model.Wall
	entries   int64
}

func (f *footer) size() int64 { return f.bytes + indexSize(f.entries) + footerSize }

func (f *footer) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, footerSize)...)
	b := dst[at:]
	le.PutUint32(b, footerMagic)
	le.PutUint64(b[8:], uint64(f.base))
	le.PutUint64(b[16:], uint64(f.end))
	le.PutUint64(b[24:], uint64(f.bytes))
	le.PutUint64(b[32:], uint64(f.maxTime))
	le.PutUint32(b[40:], uint32(f.entries))
	le.PutUint32(b[44:], version)
	le.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return dst
}

// parseFooter checks a footer against its file's base and size.
func parseFooter(b []byte, base model.Offset, size int64) (footer, error) {
	var f footer
	if len(b) != footerSize || le.Uint32(b) != footerMagic {
		return f, fmt.Errorf("the file does not end with a footer")
	}
	if got := crc32.Checksum(b[8:], castagnoli); got != le.Uint32(b[4:]) {
		return f, fmt.Errorf("footer's checksum is %08x, its bytes give %08x", le.Uint32(b[4:]), got)
	}
	if v := le.Uint32(b[44:]); v != version {
		return f, fmt.Errorf("segment has version %d, this build reads %d", v, version)
	}
	f = footer{
		base: model.Offset(le.Uint64(b[8:])), end: model.Offset(le.Uint64(b[16:])), bytes: int64(le.Uint64(b[24:])),
		maxTime: model.Wall(le.Uint64(b[32:])), entries: int64(le.Uint32(b[40:])),
	}
	if f.base != base || f.end <= f.base || f.bytes <= 0 || f.bytes > size || f.entries < 1 || f.size() != size {
		return f, fmt.Errorf("footer of [%d, %d) with %d bytes and %d index entries does not fit a file of %d bytes from %d",
			f.base, f.end, f.bytes, f.entries, size, base)
	}
	return f, nil
}

// appendTail adds both indexes and the footer: everything behind the batches.
func appendTail(dst []byte, x *index, base, end model.Offset, bytes int64) []byte {
	dst = appendBlocks(dst, kindOffsets, x.offsets)
	dst = appendBlocks(dst, kindTimes, x.times)
	f := footer{base: base, end: end, bytes: bytes, maxTime: x.maxTime, entries: int64(len(x.offsets))}
	return f.append(dst)
}

// parseIndex reads both indexes.
func parseIndex(buf []byte, entries int, limit int64, maxTime model.Wall) (index, error) {
	offsets, buf, err := parseBlocks(buf, kindOffsets, entries, limit)
	if err != nil {
		return index{}, err
	}
	times, _, err := parseBlocks(buf, kindTimes, entries, limit)
	if err != nil {
		return index{}, err
	}
	return index{offsets, times, maxTime}, nil
}
