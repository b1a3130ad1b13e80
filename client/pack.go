package client

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/tapedeck/tapedeck/core/batch"
)

// Compression is how a producer packs its batches, once: the broker stores them
// as they are, subscribers unpack.
type Compression uint8

// Compressions.
const (
	NoCompression Compression = iota
	Zstd                      // small
	S2                        // fast
)

// maxRawBytes bounds what a batch may say it unpacks to.
const maxRawBytes = 64 << 20

var (
	encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	})
	decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxRawBytes))
	})
)

// packer gives the batch format's number and function of a compression.
func packer(c Compression) (batch.Compression, func(dst, raw []byte) []byte, error) {
	switch c {
	case NoCompression:
		return batch.None, nil, nil
	case S2:
		return batch.S2, func(dst, raw []byte) []byte { return append(dst, s2.Encode(nil, raw)...) }, nil
	case Zstd:
		e, err := encoder()
		if err != nil {
			return 0, nil, fmt.Errorf("set up zstd: %w", err)
		}
		return batch.Zstd, func(dst, raw []byte) []byte { return e.EncodeAll(raw, dst) }, nil
	}
	return 0, nil, fmt.Errorf("compression %d is unknown", c)
}

// unpack implements batch.Unpack.
func unpack(c batch.Compression, packed []byte, rawSize int) ([]byte, error) {
	if rawSize > maxRawBytes {
		return nil, fmt.Errorf("it says it unpacks to %d bytes; at most %d are taken", rawSize, maxRawBytes)
	}
	var raw []byte
	switch c {
	case batch.S2:
		n, err := s2.DecodedLen(packed)
		if err != nil || n != rawSize {
			return nil, fmt.Errorf("s2 says %d bytes, the batch %d (%v)", n, rawSize, err)
		}
		if raw, err = s2.Decode(make([]byte, 0, rawSize), packed); err != nil {
			return nil, err
		}
	case batch.Zstd:
		d, err := decoder()
		if err != nil {
			return nil, fmt.Errorf("set up zstd: %w", err)
		}
		if raw, err = d.DecodeAll(packed, make([]byte, 0, rawSize)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("compression %d is unknown to this client", c)
	}
	if len(raw) != rawSize {
		return nil, fmt.Errorf("unpacked to %d bytes, the batch says %d", len(raw), rawSize)
	}
	return raw, nil
}
