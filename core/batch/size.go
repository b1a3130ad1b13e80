package batch

import "fmt"

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
