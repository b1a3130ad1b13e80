package client

import (
	"maps"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/session"
)

// Message is a message to publish, or one that was received.
type Message struct {
	Key        []byte // messages of one key keep their order
	Payload    []byte
	Attributes map[string]string
	EventTime  time.Time // the publisher's own moment; zero: none

	// What follows is set on received messages.
	Topic      string
	Partition  uint32
	Offset     uint64
	Attempt    uint32 // deliveries so far, from 1, as far as the broker counts them
	AppendTime time.Time
	// Generation is the subscription's when this was delivered, from 1: it rises
	// with every change of owners and every seek. 0: fetched, not delivered.
	Generation uint64

	ack    func()
	nack   func(delay time.Duration)
	extend func(by time.Duration)
}

// Ack says that a message received from a subscription was processed, without
// waiting for the callback's or loop body's end. Again, it does nothing.
func (m *Message) Ack() {
	if m.ack != nil {
		m.ack()
	}
}

// Nack gives a message received from a subscription back: it comes again, to
// this or another member, after a delay (0: the subscription's backoff), and an
// attempt is counted. In mode ordered, what follows it in its partition comes
// again with it. After Ack or Nack it does nothing.
func (m *Message) Nack(delay time.Duration) {
	if m.nack != nil {
		m.nack(delay)
	}
}

// Extend asks for more time before the message comes again: until so long from
// now (0: the subscription's ack deadline; 1 s to 10 min). A subscriber that
// runs extends by itself what it holds, as often as its session needs to be
// renewed, so this is for work that outlasts the ack deadline in between.
func (m *Message) Extend(by time.Duration) {
	if m.extend != nil {
		m.extend(by)
	}
}

func (m *Message) encode() batch.Message {
	out := batch.Message{Key: m.Key, Payload: m.Payload}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		out.Attributes = append(out.Attributes, batch.Attribute{Name: name, Value: m.Attributes[name]})
	}
	if !m.EventTime.IsZero() {
		out.EventTime = model.Wall(m.EventTime.UnixNano())
	}
	return out
}

func decode(topic string, m *batch.Message) *Message {
	out := &Message{Topic: topic, Key: m.Key, Payload: m.Payload}
	if len(m.Attributes) > 0 {
		out.Attributes = make(map[string]string, len(m.Attributes))
		for _, a := range m.Attributes {
			out.Attributes[a.Name] = a.Value
		}
	}
	if m.EventTime != 0 {
		out.EventTime = time.Unix(0, int64(m.EventTime))
	}
	return out
}

func delivered(topic string, d *session.Delivery) *Message {
	m := decode(topic, &d.Message)
	m.Partition, m.Offset, m.Attempt = uint32(d.Partition), uint64(d.Offset), d.Attempt
	m.AppendTime, m.Generation = time.Unix(0, int64(d.AppendTime)), uint64(d.Generation)
	return m
}

// PartitionFor names the partition of a key: xxh64 of the key modulo the
// topic's partition count.
func PartitionFor(key []byte, partitions uint32) uint32 {
	return uint32(batch.PartitionFor(key, partitions))
}
