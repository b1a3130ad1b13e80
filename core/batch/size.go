package batch

import (
	"fmt"
	"hash/crc32"

	"github.com/tapedeck/tapedeck/core/model"
)

// SizeOf is the size in bytes of the batch that buf begins with. Only the
// header has to be there; nothing else is checked.
func SizeOf(buf []byte) (int, error) {
	if len(buf) < HeaderSize {
		return 0, fmt.Errorf("batch has %d bytes; a header takes %d", len(buf), HeaderSize)
	}
	if m := le.Uint32(buf); m != Magic {
		return 0, fmt.Errorf("batch starts with %08x, not %08x", m, uint32(Magic))
	}
	size := le.Uint32(buf[36:])
	if size < HeaderSize {
		return 0, fmt.Errorf("batch says it has %d bytes; a header takes %d", size, HeaderSize)
	}
	return int(size), nil
}

// HeadOf is the size in bytes and the checksum of the batch that buf begins with,
// as its head says. Only the header has to be there, and to agree with itself.
func HeadOf(buf []byte) (size int, checksum uint32, err error) {
	if size, err = SizeOf(buf); err != nil {
		return 0, 0, err
	}
	count := uint64(le.Uint32(buf[44:]))
	if le.Uint16(buf[40:]) != version || count == 0 || HeaderSize+count*tableEntry > uint64(size) {
		return 0, 0, fmt.Errorf("no batch of version %d with %d messages has %d bytes", le.Uint16(buf[40:]), count, size)
	}
	return size, le.Uint32(buf[32:]), nil
}

// StampOf is the offset in the stamp that buf begins with; false unless the
// stamp is intact. It says nothing of the batch behind it.
func StampOf(buf []byte) (base model.Offset, ok bool) {
	if len(buf) < StampSize || le.Uint32(buf) != Magic ||
		crc32.Checksum(buf[8:StampSize], castagnoli) != le.Uint32(buf[4:]) {
		return 0, false
	}
	return View(buf).Base(), true
}
