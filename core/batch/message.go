package batch

import (
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/tapedeck/tapedeck/core/model"
)

// Attribute is one name and value of a message.
type Attribute struct{ Name, Value string }

// Message is what a publisher sends.
type Message struct {
	Key, Payload []byte
	Attributes   []Attribute // encoded sorted by name
	EventTime    model.Wall  // 0: none
}

// Size is the message's encoded length in bytes, before compression.
func (m *Message) Size() int {
	n := 8 + 4 + len(m.Key) + 4 + len(m.Payload) + 2
	for i := range m.Attributes {
		n += 4 + len(m.Attributes[i].Name) + len(m.Attributes[i].Value)
	}
	return n
}

// Options are a new batch's header fields.
type Options struct {
	Producer    model.ProducerID
	Epoch       model.Epoch
	Sequence    model.Sequence
	MapVersion  uint32
	Compression Compression
	Pack        func(dst, raw []byte) []byte // appends the packed body; needed with Compression
}

// Encode builds an unstamped batch of at least one message. The messages must be
// within the limits (Check).
func Encode(msgs []Message, o Options) View {
	raw := 0
	for i := range msgs {
		raw += msgs[i].Size()
	}
	head := HeaderSize + tableEntry*len(msgs)
	v := make(View, head, head+raw)
	le.PutUint32(v, Magic)
	le.PutUint16(v[40:], version)
	le.PutUint16(v[42:], uint16(o.Compression))
	le.PutUint32(v[44:], uint32(len(msgs)))
	le.PutUint64(v[48:], uint64(o.Producer))
	le.PutUint64(v[56:], uint64(o.Epoch))
	le.PutUint64(v[64:], uint64(o.Sequence))
	le.PutUint32(v[72:], o.MapVersion)
	le.PutUint32(v[76:], uint32(raw))
	for i := range msgs {
		at := v[HeaderSize+tableEntry*i:]
		le.PutUint32(at, uint32(KeyHash(msgs[i].Key)>>32))
		le.PutUint32(at[4:], uint32(msgs[i].Size()))
	}
	if o.Compression == None {
		for i := range msgs {
			v = appendMessage(v, &msgs[i])
		}
	} else {
		body := make([]byte, 0, raw)
		for i := range msgs {
			body = appendMessage(body, &msgs[i])
		}
		v = o.Pack(v, body)
	}
	le.PutUint32(v[36:], uint32(len(v)))
	le.PutUint32(v[32:], crc32.Checksum(v[36:], castagnoli))
	v.Stamp(0, 0)
	return v
}

func appendMessage(b []byte, m *Message) []byte {
	b = le.AppendUint64(b, uint64(m.EventTime))
	b = le.AppendUint32(b, uint32(len(m.Key)))
	b = append(b, m.Key...)
	b = le.AppendUint32(b, uint32(len(m.Payload)))
	b = append(b, m.Payload...)
	attrs := m.Attributes
	if !slices.IsSortedFunc(attrs, byName) {
		attrs = slices.Clone(attrs)
		slices.SortFunc(attrs, byName)
	}
	b = le.AppendUint16(b, uint16(len(attrs)))
	for _, a := range attrs {
		b = le.AppendUint16(b, uint16(len(a.Name)))
		b = append(b, a.Name...)
		b = le.AppendUint16(b, uint16(len(a.Value)))
		b = append(b, a.Value...)
	}
	return b
}

func byName(a, b Attribute) int {
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}

// Unpack returns the raw body of a packed one of the given raw size.
type Unpack func(c Compression, packed []byte, rawSize int) ([]byte, error)

// Messages decodes all messages; they alias the batch, or what unpack returned.
// unpack may be nil if the batch is not packed.
func (v View) Messages(unpack Unpack) ([]Message, error) {
	if err := v.checkTable(); err != nil {
		return nil, err
	}
	body := v.Body()
	if c := v.Compression(); c != None {
		if unpack == nil {
			return nil, fmt.Errorf("batch is packed with %d and no unpacker is here", c)
		}
		var err error
		if body, err = unpack(c, body, int(v.RawSize())); err != nil {
			return nil, fmt.Errorf("unpack batch at offset %d: %w", v.Base(), err)
		}
	}
	out := make([]Message, v.Count())
	for i := range out {
		_, n := v.Entry(i)
		if uint64(n) > uint64(len(body)) {
			return nil, fmt.Errorf("message %d of %d ends outside its batch", i, len(out))
		}
		if err := decodeMessage(body[:n:n], &out[i]); err != nil {
			return nil, fmt.Errorf("message %d of %d: %w", i, len(out), err)
		}
		body = body[n:]
	}
	if len(body) != 0 {
		return nil, fmt.Errorf("%d bytes after the last message", len(body))
	}
	return out, nil
}

// cutter takes fields off the front of a message; ok turns false at a short one.
type cutter struct {
	b  []byte
	ok bool
}

func (c *cutter) take(n uint64) []byte {
	if !c.ok || n > uint64(len(c.b)) {
		c.ok = false
		return nil
	}
	f := c.b[:n:n]
	c.b = c.b[n:]
	return f
}

func (c *cutter) u16() uint64 {
	if f := c.take(2); c.ok {
		return uint64(le.Uint16(f))
	}
	return 0
}

func (c *cutter) u32() uint64 {
	if f := c.take(4); c.ok {
		return uint64(le.Uint32(f))
	}
	return 0
}

func decodeMessage(b []byte, m *Message) error {
	c := cutter{b, true}
	if f := c.take(8); c.ok {
		m.EventTime = model.Wall(le.Uint64(f))
	}
	m.Key = c.take(c.u32())
	m.Payload = c.take(c.u32())
	n := c.u16()
	if n > 0 && c.ok && n <= uint64(len(c.b))/4 {
		m.Attributes = make([]Attribute, n)
		for i := range m.Attributes {
			m.Attributes[i] = Attribute{string(c.take(c.u16())), string(c.take(c.u16()))}
		}
	} else if n > 0 {
		c.ok = false
	}
	if !c.ok || len(c.b) != 0 {
		return fmt.Errorf("its %d bytes are not a message", len(b))
	}
	return nil
}

// Check holds a message to the limits; field is the prefix of the field named
// in the error, such as "messages[3]".
func (m *Message) Check(field string, maxBytes int) *model.Error {
	switch {
	case len(m.Key) > model.MaxKeyBytes:
		return model.Invalid(field+".key", "has %d bytes; at most %d are allowed", len(m.Key), model.MaxKeyBytes)
	case len(m.Attributes) > model.MaxAttributes:
		return model.Invalid(field+".attributes", "has %d; at most %d are allowed", len(m.Attributes), model.MaxAttributes)
	case m.Size() > maxBytes:
		return model.Invalid(field, "has %d bytes; this topic takes at most %d", m.Size(), maxBytes)
	}
	for _, a := range m.Attributes {
		if len(a.Name) == 0 || len(a.Name) > 256 || len(a.Value) > 1<<15 {
			return model.Invalid(field+".attributes", "%.40q: a name takes 1 to 256 bytes, a value at most %d", a.Name, 1<<15)
		}
	}
	return nil
}
