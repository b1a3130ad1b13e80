// Package wire is the codec of everything the core writes itself: commands in
// raft logs, snapshots, packets between shards.
//
// One method per type describes its fields in order and serves both
// directions: a Codec either appends to Buf or consumes it. Integers are
// unsigned varints (signed ones zig-zag), strings and bytes are
// length-prefixed, all in a fixed order, so equal values give equal bytes.
// A decoder never panics and never allocates more than its input's length.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrShort is the cause when input ends inside a field.
var ErrShort = errors.New("input ends inside a field")

// Codec encodes into Buf, or decodes from it when Decoding.
type Codec struct {
	Buf      []byte
	Decoding bool
	Err      error
}

// Coder is a type that describes its own fields.
type Coder interface{ Code(c *Codec) }

// Encode returns v's bytes.
func Encode(v Coder) []byte {
	c := Codec{}
	v.Code(&c)
	return c.Buf
}

// Append appends v's bytes to buf.
func Append(buf []byte, v Coder) []byte {
	c := Codec{Buf: buf}
	v.Code(&c)
	return c.Buf
}

// Decode fills v from buf. Bytes fields alias buf. Left-over input is an error.
func Decode(buf []byte, v Coder) error {
	c := Codec{Buf: buf, Decoding: true}
	v.Code(&c)
	if c.Err == nil && len(c.Buf) != 0 {
		c.Err = fmt.Errorf("%d bytes too many", len(c.Buf))
	}
	if c.Err != nil {
		return fmt.Errorf("decode %T: %w", v, c.Err)
	}
	return nil
}

// Reserve makes room for n bytes more, so that encoding large fields one after
// the other does not copy the ones before again and again.
func (c *Codec) Reserve(n int) {
	if !c.Decoding {
		c.Buf = slices.Grow(c.Buf, n)
	}
}

// Fail records the first error; later fields decode as zero.
func (c *Codec) Fail(err error) {
	if c.Err == nil {
		c.Err = err
		c.Buf = nil
	}
}

func (c *Codec) uvarint() uint64 {
	if c.Err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.Buf)
	if n <= 0 {
		c.Fail(ErrShort)
		return 0
	}
	c.Buf = c.Buf[n:]
	return v
}

// Uint codes any unsigned integer type as a varint.
func Uint[T ~uint64 | ~uint32 | ~uint16 | ~uint8](c *Codec, v *T) {
	if c.Decoding {
		u := c.uvarint()
		if *v = T(u); uint64(*v) != u {
			c.Fail(fmt.Errorf("integer %d does not fit its field", u))
		}
		return
	}
	c.Buf = binary.AppendUvarint(c.Buf, uint64(*v))
}

// Int codes any signed integer type as a zig-zag varint.
func Int[T ~int64 | ~int32 | ~int](c *Codec, v *T) {
	if c.Decoding {
		u := c.uvarint()
		i := int64(u>>1) ^ -int64(u&1)
		if *v = T(i); int64(*v) != i {
			c.Fail(fmt.Errorf("integer %d does not fit its field", i))
		}
		return
	}
	s := int64(*v)
	c.Buf = binary.AppendUvarint(c.Buf, uint64(s<<1)^uint64(s>>63))
}

// Duration codes a time.Duration.
func (c *Codec) Duration(v *time.Duration) { Int(c, v) }

// Bool codes a bool as one byte, 0 or 1.
func (c *Codec) Bool(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	Uint(c, &b)
	if c.Decoding {
		if b > 1 {
			c.Fail(fmt.Errorf("bool is %d", b))
		}
		*v = b == 1
	}
}

// Bytes codes a byte slice. Decoding, it aliases the input; empty decodes as nil.
func (c *Codec) Bytes(v *[]byte) {
	if !c.Decoding {
		c.Buf = binary.AppendUvarint(c.Buf, uint64(len(*v)))
		c.Buf = append(c.Buf, *v...)
		return
	}
	n := c.uvarint()
	if n > uint64(len(c.Buf)) {
		c.Fail(ErrShort)
		return
	}
	*v = nil
	if n > 0 {
		*v = c.Buf[:n:n]
		c.Buf = c.Buf[n:]
	}
}

// String codes any string type.
func String[T ~string](c *Codec, v *T) {
	if !c.Decoding {
		c.Buf = binary.AppendUvarint(c.Buf, uint64(len(*v)))
		c.Buf = append(c.Buf, *v...)
		return
	}
	var b []byte
	c.Bytes(&b)
	*v = T(b)
}

// Slice codes a slice by a function of each element. Every element must take
// at least one byte, which bounds what a decoder allocates.
func Slice[T any](c *Codec, v *[]T, each func(*Codec, *T)) {
	n := uint64(len(*v))
	Uint(c, &n)
	if c.Decoding {
		*v = nil
		if n > uint64(len(c.Buf)) {
			c.Fail(ErrShort)
		}
		if n == 0 || c.Err != nil {
			return
		}
		*v = make([]T, 0, min(n, 4096))
		for range n {
			var e T
			each(c, &e)
			if c.Err != nil {
				*v = nil
				return
			}
			*v = append(*v, e)
		}
		return
	}
	for i := range *v {
		each(c, &(*v)[i])
	}
}

// Version codes a leading version byte and refuses any other than want.
func (c *Codec) Version(want uint8) {
	v := want
	Uint(c, &v)
	if c.Decoding && c.Err == nil && v != want {
		c.Fail(fmt.Errorf("version %d; this build reads version %d", v, want))
	}
}
