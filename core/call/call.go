// Package call holds the requests and responses of the broker in typed form:
// what a client asks of a gateway (client.go) and what a gateway or a node asks
// of a group (partition.go, coordinator.go, meta.go). Those of the second kind
// travel between nodes and have a codec.
package call

import (
	"fmt"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Kind tells types apart on the wire. Numbers are never reused.
type Kind uint8

// Request is what a group is asked.
type Request interface {
	wire.Coder
	Kind() Kind
}

// Response is what a group answers.
type Response interface {
	wire.Coder
	Kind() Kind
}

// Empty is the answer of what has nothing to say.
type Empty struct{}

// Code implements wire.Coder.
func (*Empty) Code(*wire.Codec) {}

// Kind implements Response.
func (*Empty) Kind() Kind { return 0 }

type message interface {
	wire.Coder
	Kind() Kind
}

var makers = func() (m [256]func() message) {
	for _, f := range []func() message{
		func() message { return &Empty{} },
		func() message { return &Append{} }, func() message { return &Appended{} },
		func() message { return &Read{} }, func() message { return &ReadResult{} },
		func() message { return &Locate{} }, func() message { return &Located{} },
		func() message { return &Fence{} },
		func() message { return &Grant{} }, func() message { return &Granted{} },
		func() message { return &Deliver{} }, func() message { return &Delivered{} },
		func() message { return &AckCursors{} }, func() message { return &Acked{} },
		func() message { return &MoveCursors{} }, func() message { return &Moved{} },
		func() message { return &Leave{} }, func() message { return &Heartbeat{} },
		func() message { return &Describe{} }, func() message { return &Description{} },
		func() message { return &KeepCursors{} }, func() message { return &ListCursors{} },
		func() message { return &KeptCursors{} },
		func() message { return &NackCursors{} }, func() message { return &ExtendLeases{} },
		func() message { return &CreateTopic{} }, func() message { return &UpdateTopic{} },
		func() message { return &DeleteTopic{} }, func() message { return &CreateSubscription{} },
		func() message { return &UpdateSubscription{} }, func() message { return &DeleteSubscription{} },
		func() message { return &OpenProducer{} }, func() message { return &ProducerOpened{} },
		func() message { return &Barrier{} }, func() message { return &Done{} },
		func() message { return &JoinNode{} }, func() message { return &DrainNode{} },
		func() message { return &RemoveNode{} }, func() message { return &RebuildNode{} },
		func() message { return &MovePartition{} }, func() message { return &ReportChange{} },
		func() message { return &TransferLeader{} },
	} {
		k := f().Kind()
		if m[k] != nil {
			panic(fmt.Sprintf("call kind %d is taken twice", k))
		}
		m[k] = f
	}
	return m
}()

// Encode appends kind and fields.
func Encode(buf []byte, m interface {
	wire.Coder
	Kind() Kind
}) []byte {
	return wire.Append(append(buf, byte(m.Kind())), m)
}

// Decode reads what Encode wrote. Bytes fields alias buf.
func Decode(buf []byte) (Request, error) {
	if len(buf) == 0 {
		return nil, wire.ErrShort
	}
	f := makers[buf[0]]
	if f == nil {
		return nil, fmt.Errorf("call kind %d is unknown to this build", buf[0])
	}
	m := f()
	if err := wire.Decode(buf[1:], m); err != nil {
		return nil, err
	}
	return m, nil
}

// CodeError codes an error that may be nil.
func CodeError(c *wire.Codec, e **model.Error) {
	there := *e != nil
	c.Bool(&there)
	if !there {
		if c.Decoding {
			*e = nil
		}
		return
	}
	if c.Decoding {
		*e = &model.Error{}
	}
	v := *e
	wire.Uint(c, &v.Code)
	wire.String(c, &v.Reason)
	wire.String(c, &v.Message)
	c.Duration(&v.RetryAfter)
	wire.String(c, &v.Leader)
	wire.Uint(c, &v.Expected)
	wire.Uint(c, &v.Start)
	wire.Uint(c, &v.End)
	wire.String(c, &v.Field)
}

// PartitionOffset is an offset of one partition.
type PartitionOffset struct {
	Partition model.Partition
	Offset    model.Offset
}

func codePartitionOffset(c *wire.Codec, v *PartitionOffset) {
	wire.Uint(c, &v.Partition)
	wire.Uint(c, &v.Offset)
}

// Range is [From, To) of one partition; To is 0 when its end is open.
type Range struct {
	Partition model.Partition
	From, To  model.Offset
	Attempt   uint32 // of the range's first message, from 1
}

func codeRange(c *wire.Codec, v *Range) {
	wire.Uint(c, &v.Partition)
	wire.Uint(c, &v.From)
	wire.Uint(c, &v.To)
	wire.Uint(c, &v.Attempt)
}
