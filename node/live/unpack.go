package live

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/tapedeck/tapedeck/core/batch"
)

// maxRawBytes bounds what one batch may unpack to, so that a small request
// cannot take much memory.
const maxRawBytes = 64 << 20

var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxRawBytes), zstd.WithDecoderConcurrency(0))
})

// unpack is for clients that do not speak the batch format.
func unpack(c batch.Compression, packed []byte, rawSize int) ([]byte, error) {
	if rawSize > maxRawBytes {
		return nil, fmt.Errorf("%d bytes are more than %d", rawSize, maxRawBytes)
	}
	var raw []byte
	switch c {
	case batch.Zstd:
		d, err := zstdDecoder()
		if err != nil {
			return nil, err
		}
		if raw, err = d.DecodeAll(packed, make([]byte, 0, rawSize)); err != nil {
			return nil, err
		}
	case batch.S2:
		size, err := s2.DecodedLen(packed)
		if err != nil {
			return nil, err
		}
		if size != rawSize {
			return nil, fmt.Errorf("%d bytes come out, not %d", size, rawSize)
		}
		if raw, err = s2.Decode(make([]byte, rawSize), packed); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("compression %d is not known", c)
	}
	if len(raw) != rawSize {
		return nil, fmt.Errorf("%d bytes come out, not %d", len(raw), rawSize)
	}
	return raw, nil
}
