package batch

import (
	"bytes"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/model"
)

func some() []Message {
	return []Message{
		{Key: []byte("k1"), Payload: []byte("first"), EventTime: -5},
		{},
		{Payload: bytes.Repeat([]byte{7}, 300), Attributes: []Attribute{{"b", "2"}, {"a", ""}, {"c", "3"}}},
	}
}

var options = Options{Producer: 3, Epoch: 4, Sequence: 5, MapVersion: 6}

func TestRoundTrip(t *testing.T) {
	v := Encode(some(), options)
	v.StampWith(100, 77, Stamped|StampStart)
	got, err := Parse(append(v.Clone(), "tail"...))
	if err != nil || !bytes.Equal(got, v) {
		t.Fatalf("parsed %d of %d bytes: %v", len(got), len(v), err)
	}
	if got.Base() != 100 || got.Next() != 103 || got.AppendTime() != 77 || got.StampFlags() != Stamped|StampStart ||
		got.Count() != 3 || got.Producer() != 3 || got.Epoch() != 4 || got.Sequence() != 5 || got.MapVersion() != 6 ||
		got.Compression() != None || int(got.RawSize()) != len(got.Body()) {
		t.Fatalf("header reads differently: %x", []byte(got[:HeaderSize]))
	}
	msgs, err := got.Messages(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := some()
	want[1].Attributes = nil
	want[2].Attributes = []Attribute{{"a", ""}, {"b", "2"}, {"c", "3"}}
	for i := range want {
		hash, n := got.Entry(i)
		if hash != uint32(KeyHash(want[i].Key)>>32) || int(n) != want[i].Size() {
			t.Errorf("table entry %d is %x, %d", i, hash, n)
		}
		if !bytes.Equal(msgs[i].Key, want[i].Key) || !bytes.Equal(msgs[i].Payload, want[i].Payload) ||
			msgs[i].EventTime != want[i].EventTime || !reflect.DeepEqual(msgs[i].Attributes, want[i].Attributes) {
			t.Errorf("message %d became %+v", i, msgs[i])
		}
	}
}

// The layout is what clients in other languages and old segments rely on.
func TestLayoutIsFixed(t *testing.T) {
	v := Encode([]Message{{Key: []byte("k"), Payload: []byte("pp"), EventTime: 1,
		Attributes: []Attribute{{"n", "v"}}}}, options)
	v.StampWith(2, 3, Stamped)
	const want = "54444231d7024caf02000000000000000300000000000000010000000000000021c3a6bf" + // stamp, crc
		"730000000100000001000000030000000000000004000000000000000500000000000000060000001b000000" + // header
		"2219d3c31b000000" + "0100000000000000010000006b020000007070010001006e010076" // table, body
	if got := hex.EncodeToString(v); got != want {
		t.Errorf("layout is\n%s, want\n%s", got, want)
	}
}

func TestKeysGoWhereDocumented(t *testing.T) {
	if got := KeyHash([]byte("a")); got != 0xd24ec4f1a98c6e5b { // xxh64("a"), seed 0
		t.Errorf("hash of a is %x", got)
	}
	if got := PartitionFor([]byte("a"), 10); got != model.Partition(uint64(0xd24ec4f1a98c6e5b)%10) {
		t.Errorf("a goes to partition %d", got)
	}
}

// The producer's part never changes by stamping.
func TestStampTouchesOnlyTheStamp(t *testing.T) {
	v := Encode(some(), options)
	before := v.Clone()
	v.StampWith(1<<40, -9, Stamped|StampUntrusted)
	if !bytes.Equal(v[StampSize:], before[StampSize:]) {
		t.Fatal("bytes after the stamp changed")
	}
	if _, err := Parse(v); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFlippedBitIsSeen(t *testing.T) {
	v := Encode(some(), options)
	for i := range len(v) * 8 {
		w := v.Clone()
		w[i/8] ^= 1 << (i % 8)
		if got, err := Parse(w); err == nil {
			t.Fatalf("bit %d of byte %d: taken, %d bytes", i%8, i/8, len(got))
		}
	}
	for n := range v {
		if _, err := Parse(v[:n:n]); err == nil {
			t.Fatalf("cut at %d of %d: taken", n, len(v))
		}
	}
}

// A producer may write anything under a right checksum.
func TestTableIsHeldAgainstTheBody(t *testing.T) {
	for name, spoil := range map[string]func(v View){
		"body size":          func(v View) { le.PutUint32(v[76:], v.RawSize()+1) },
		"message too small":  func(v View) { le.PutUint32(v[HeaderSize+4:], minMessage-1) },
		"sum":                func(v View) { le.PutUint32(v[HeaderSize+4:], 1000) },
		"unknown packing":    func(v View) { le.PutUint16(v[42:], 3) },
		"unknown flag":       func(v View) { le.PutUint16(v[42:], 16) },
		"too much to unpack": func(v View) { le.PutUint16(v[42:], 1); le.PutUint32(v[76:], MaxRawSize+1) },
		"no message":         func(v View) { le.PutUint32(v[44:], 0) },
		"table past the end": func(v View) { le.PutUint32(v[44:], 1<<31) },
		"version":            func(v View) { le.PutUint16(v[40:], 2) },
	} {
		v := Encode(some(), options)
		spoil(v)
		seal(v)
		if _, err := Parse(v); err == nil {
			t.Errorf("%s: taken", name)
		}
		if w, err := ParseHeader(v); err == nil {
			if _, err := w.Messages(nil); err == nil {
				t.Errorf("%s: decoded", name)
			}
		}
	}
}

func seal(v View) { le.PutUint32(v[32:], crc32.Checksum(v[36:], castagnoli)) }

func TestPackedBody(t *testing.T) {
	flip := func(b []byte) []byte { // stands for a compression: any reversible change
		out := bytes.Clone(b)
		for i := range out {
			out[i] ^= 0x55
		}
		return out
	}
	o := options
	o.Compression, o.Pack = Zstd, func(dst, raw []byte) []byte { return append(dst, flip(raw)...) }
	v, err := Parse(Encode(some(), o))
	if err != nil || v.Compression() != Zstd {
		t.Fatal(err)
	}
	if _, err := v.Messages(nil); err == nil {
		t.Error("decoded without an unpacker")
	}
	plain, err := Encode(some(), options).Messages(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.Messages(func(c Compression, packed []byte, raw int) ([]byte, error) {
		if c != Zstd || raw != int(v.RawSize()) {
			t.Errorf("unpack is asked for %d, %d", c, raw)
		}
		return flip(packed), nil
	})
	if err != nil || !reflect.DeepEqual(got, plain) {
		t.Errorf("unpacked to %+v, %v", got, err)
	}
	cause := errors.New("damaged")
	for _, bad := range []Unpack{
		func(Compression, []byte, int) ([]byte, error) { return nil, cause },
		func(_ Compression, p []byte, _ int) ([]byte, error) { return p, nil },
		func(_ Compression, p []byte, _ int) ([]byte, error) { return append(flip(p), 0), nil },
		func(_ Compression, p []byte, _ int) ([]byte, error) { return flip(p)[:len(p)-1], nil },
	} {
		if _, err := v.Messages(bad); err == nil {
			t.Error("a wrong body was decoded")
		}
	}
}

func TestSplit(t *testing.T) {
	a, b := Encode(some(), options), Encode(some()[:1], options)
	got, err := Split(append(a.Clone(), b...))
	if err != nil || len(got) != 2 || !bytes.Equal(got[0], a) || !bytes.Equal(got[1], b) {
		t.Fatalf("split into %d: %v", len(got), err)
	}
	if _, err := Split(append(a.Clone(), b[:len(b)-1]...)); err == nil {
		t.Error("a cut run was split")
	}
	if got, err := Split(nil); err != nil || got != nil {
		t.Errorf("nothing was split into %d: %v", len(got), err)
	}
}

func TestLimits(t *testing.T) {
	long := func(n int) []byte { return make([]byte, n) }
	for _, row := range []struct {
		name  string
		m     Message
		field string // empty: within the limits
	}{
		{"largest", Message{Payload: long(model.MaxMessageBytes - minMessage)}, ""},
		{"too large", Message{Payload: long(model.MaxMessageBytes)}, "m"},
		{"largest key", Message{Key: long(model.MaxKeyBytes)}, ""},
		{"key too large", Message{Key: long(model.MaxKeyBytes + 1)}, "m.key"},
		{"most attributes", Message{Attributes: make([]Attribute, model.MaxAttributes+1)}, "m.attributes"},
		{"attribute without name", Message{Attributes: []Attribute{{"", "v"}}}, "m.attributes"},
		{"attribute's name", Message{Attributes: []Attribute{{strings.Repeat("n", 257), "v"}}}, "m.attributes"},
		{"attribute's value", Message{Attributes: []Attribute{{"n", strings.Repeat("v", 1<<15+1)}}}, "m.attributes"},
		{"largest attribute", Message{Attributes: []Attribute{{strings.Repeat("n", 256), strings.Repeat("v", 1<<15)}}}, ""},
	} {
		err := row.m.Check("m", model.MaxMessageBytes)
		if (err == nil) != (row.field == "") || err != nil && (err.Field != row.field || err.Code != model.InvalidArgument) {
			t.Errorf("%s: got %+v", row.name, err)
		}
		if err == nil {
			v, err := Parse(Encode([]Message{row.m}, Options{}))
			if err != nil {
				t.Errorf("%s: %v", row.name, err)
			} else if got, err := v.Messages(nil); err != nil || got[0].Size() != row.m.Size() {
				t.Errorf("%s: %v", row.name, err)
			}
		}
	}
}

func TestRandomMessages(t *testing.T) {
	msg := rapid.Custom(func(rt *rapid.T) Message {
		return Message{Key: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(rt, "key"),
			Payload:    rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(rt, "payload"),
			EventTime:  model.Wall(rapid.Int64().Draw(rt, "time")),
			Attributes: rapid.SliceOfN(rapid.Make[Attribute](), 0, 5).Draw(rt, "attributes")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		in := rapid.SliceOfN(msg, 1, 10).Draw(rt, "messages")
		v, err := Parse(Encode(in, options))
		if err != nil {
			rt.Fatal(err)
		}
		out, err := v.Messages(nil)
		if err != nil {
			rt.Fatal(err)
		}
		if again := Encode(out, options); !bytes.Equal(again, v) {
			rt.Fatalf("%+v became %+v", in, out)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Encode(some(), options)))
	f.Add([]byte(Encode([]Message{{}}, Options{})))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseHeader(data)
		if err != nil {
			return
		}
		// Whatever a header lets through can be sealed, and read without a panic.
		v = v.Clone()
		seal(v)
		v.Stamp(1, 2)
		if _, err := Parse(v); err != nil {
			return
		}
		msgs, err := v.Messages(func(_ Compression, packed []byte, _ int) ([]byte, error) { return packed, nil })
		if err == nil && len(msgs) != int(v.Count()) {
			t.Fatalf("%d messages of %d", len(msgs), v.Count())
		}
	})
}

func FuzzSplit(f *testing.F) {
	a := Encode([]Message{{}}, Options{})
	f.Add(append([]byte(a), a...))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Split(data)
		if err != nil {
			return
		}
		n := 0
		for _, v := range list {
			n += len(v)
		}
		if n != len(data) {
			t.Fatalf("%d of %d bytes are in batches", n, len(data))
		}
	})
}

func BenchmarkParse(b *testing.B) {
	msgs := make([]Message, 64)
	for i := range msgs {
		msgs[i].Payload = make([]byte, 1000)
	}
	v := Encode(msgs, options)
	b.SetBytes(int64(len(v)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(v); err != nil {
			b.Fatal(err)
		}
	}
}
