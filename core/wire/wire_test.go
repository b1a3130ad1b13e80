package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type name string

// every has a field of each kind the codec knows.
type every struct {
	A uint64
	B uint32
	C uint16
	D uint8
	E int64
	F int32
	G int
	H time.Duration
	I bool
	J []byte
	K name
	L []every
}

func (m *every) Code(c *Codec) {
	c.Version(3)
	Uint(c, &m.A)
	Uint(c, &m.B)
	Uint(c, &m.C)
	Uint(c, &m.D)
	Int(c, &m.E)
	Int(c, &m.F)
	Int(c, &m.G)
	c.Duration(&m.H)
	c.Bool(&m.I)
	c.Bytes(&m.J)
	String(c, &m.K)
	Slice(c, &m.L, func(c *Codec, e *every) { e.Code(c) })
}

func full() *every {
	edge := every{A: math.MaxUint64, B: math.MaxUint32, C: math.MaxUint16, D: 255, E: math.MinInt64,
		F: math.MinInt32, G: math.MaxInt, H: -1, I: true, J: []byte{0}, K: "\xff"}
	return &every{E: 1, J: []byte("bytes"), K: "name", L: []every{edge, {}, edge}}
}

func TestRoundTrip(t *testing.T) {
	for _, v := range []*every{{}, full()} {
		buf := Encode(v)
		var got every
		if err := Decode(buf, &got); err != nil || !reflect.DeepEqual(&got, v) {
			t.Errorf("%+v became %+v: %v", v, got, err)
		}
		if tail := Append([]byte("head"), v); !bytes.Equal(tail, append([]byte("head"), buf...)) {
			t.Errorf("Append gave %x", tail)
		}
	}
}

func TestRoundTripOfRandomValues(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := every{
			A: rapid.Uint64().Draw(rt, "a"), E: rapid.Int64().Draw(rt, "e"), F: rapid.Int32().Draw(rt, "f"),
			H: time.Duration(rapid.Int64().Draw(rt, "h")), I: rapid.Bool().Draw(rt, "i"),
			K: name(rapid.String().Draw(rt, "k")),
		}
		var got every
		if err := Decode(Encode(&v), &got); err != nil || !reflect.DeepEqual(got, v) {
			rt.Fatalf("%+v became %+v: %v", v, got, err)
		}
	})
}

func TestEveryCutIsShort(t *testing.T) {
	buf := Encode(full())
	for n := range buf {
		var got every
		if err := Decode(buf[:n:n], &got); !errors.Is(err, ErrShort) {
			t.Fatalf("cut at %d of %d: %v", n, len(buf), err)
		}
	}
	var got every
	if err := Decode(append(buf, 0), &got); err == nil {
		t.Fatal("a byte too many was passed over")
	}
}

// fields codes with a function: for one field at a time.
type fields func(c *Codec)

func (f fields) Code(c *Codec) { f(c) }

func TestBadInput(t *testing.T) {
	for _, row := range []struct {
		name string
		buf  []byte
		f    fields
		want string
	}{
		{"version", []byte{4}, func(c *Codec) { c.Version(3) }, "this build reads version 3"},
		{"bool", []byte{2}, func(c *Codec) { var v bool; c.Bool(&v) }, "bool is 2"},
		{"narrow unsigned", []byte{0x80, 2}, func(c *Codec) { var v uint8; Uint(c, &v) }, "256 does not fit"},
		{"narrow signed", []byte{0xff, 0xff, 0xff, 0xff, 0x1f}, func(c *Codec) { var v int32; Int(c, &v) }, "does not fit"},
		{"varint without end", bytes.Repeat([]byte{0xff}, 11), func(c *Codec) { var v uint64; Uint(c, &v) }, "ends inside"},
		{"bytes past the end", []byte{5, 1}, func(c *Codec) { var v []byte; c.Bytes(&v) }, "ends inside"},
		{"huge slice", []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1}, func(c *Codec) {
			var v []uint64
			Slice(c, &v, func(c *Codec, e *uint64) { Uint(c, e) })
		}, "ends inside"},
	} {
		err := Decode(row.buf, row.f)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q", row.name, err, row.want)
		}
	}
}

// After the first error nothing is decoded any more, and the first is kept.
func TestFirstErrorStays(t *testing.T) {
	first := errors.New("first")
	c := Codec{Buf: []byte{1, 2, 3}, Decoding: true}
	c.Fail(first)
	c.Fail(errors.New("second"))
	v, b, s, l := uint64(7), []byte("x"), "x", []uint64{1}
	Uint(&c, &v)
	c.Bytes(&b)
	String(&c, &s)
	Slice(&c, &l, func(c *Codec, e *uint64) { Uint(c, e) })
	if c.Err != first || v != 0 || s != "" || l != nil {
		t.Fatalf("err %v, %d, %q, %v", c.Err, v, s, l)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(full()))
	f.Add(Encode(&every{}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v, again every
		if Decode(data, &v) != nil {
			return
		}
		if err := Decode(Encode(&v), &again); err != nil || !reflect.DeepEqual(v, again) {
			t.Fatalf("%+v became %+v: %v", v, again, err)
		}
	})
}
