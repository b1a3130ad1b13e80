package partition

import (
	"errors"
	"fmt"
	"math"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

const snapshotVersion = 1

// Code implements wire.Coder. Equal states give equal bytes: producers are in
// the order of their last activity, which is the log's.
func (s *state) Code(c *wire.Codec) {
	c.Version(snapshotVersion)
	wire.Uint(c, &s.next)
	wire.Int(c, &s.lastAppend)
	wire.Int(c, &s.clock.time)
	wire.Int(c, &s.clock.aged)
	c.Bool(&s.clock.untrusted)
	codeSettings(c, &s.settings)
	wire.Slice(c, &s.segments, codeSegment)
	var list []*producer
	if !c.Decoding {
		list = make([]*producer, 0, s.producers.len())
		for p := s.producers.oldest; p != nil; p = p.newer {
			list = append(list, p)
		}
	}
	wire.Slice(c, &list, codeProducer)
	if c.Decoding && c.Err == nil {
		if err := s.adopt(list); err != nil {
			c.Fail(err)
		}
	}
}

func codeSegment(c *wire.Codec, g *Segment) {
	wire.Uint(c, &g.Base)
	wire.Int(c, &g.FirstTime)
	wire.Int(c, &g.LastTime)
	wire.Int(c, &g.LastAged)
	wire.Uint(c, &g.Bytes)
	wire.Int(c, &g.Created)
}

// codeProducer leaves the batches' sequences out: they are contiguous up to next.
func codeProducer(c *wire.Codec, pp **producer) {
	if c.Decoding {
		*pp = &producer{}
	}
	p := *pp
	wire.Uint(c, &p.id)
	wire.Uint(c, &p.epoch)
	wire.Uint(c, &p.next)
	wire.Int(c, &p.last)
	if !c.Decoding {
		n := uint64(len(p.ring))
		wire.Uint(c, &n)
		for i := range p.ring {
			codeRemembered(c, p.at(i))
		}
		return
	}
	wire.Slice(c, &p.ring, codeRemembered)
	if len(p.ring) > model.ProducerMemory {
		c.Fail(fmt.Errorf("producer %d has %d batches; at most %d are remembered",
			p.id, len(p.ring), model.ProducerMemory))
		return
	}
	at := p.next
	for i := len(p.ring) - 1; i >= 0; i-- {
		b := &p.ring[i]
		if b.count == 0 || model.Sequence(b.count) > at {
			c.Fail(fmt.Errorf("producer %d's batches have more messages than sequences", p.id))
			return
		}
		at -= model.Sequence(b.count)
		b.sequence = at
	}
}

func codeRemembered(c *wire.Codec, b *remembered) {
	wire.Uint(c, &b.count)
	wire.Uint(c, &b.base)
	wire.Int(c, &b.time)
}

// adopt checks a decoded state and links its producers.
func (s *state) adopt(list []*producer) error {
	if len(s.segments) == 0 {
		return errors.New("snapshot has no segment")
	}
	s.bytes = 0
	for i, g := range s.segments {
		last := i == len(s.segments)-1
		switch {
		case !last && (g.Bytes == 0 || g.Base >= s.segments[i+1].Base):
			return fmt.Errorf("segment %d at offset %d holds nothing, or overlaps the next", i, g.Base)
		case last && (g.Base > s.next || g.Bytes == 0 != (g.Base == s.next)):
			return fmt.Errorf("the last segment, at offset %d, does not end at %d", g.Base, s.next)
		case g.Bytes > math.MaxUint64-s.bytes:
			return errors.New("segments' sizes overflow")
		}
		s.bytes += g.Bytes
	}
	s.producers = producers{}
	last := model.Wall(math.MinInt64)
	for _, d := range list {
		if d.id == 0 || d.epoch == 0 || d.last < last || s.producers.get(d.id) != nil {
			return fmt.Errorf("producer %d, epoch %d, is out of place", d.id, d.epoch)
		}
		last = d.last
		p := s.producers.touch(d.id, d.last)
		p.epoch, p.next, p.ring = d.epoch, d.next, d.ring
	}
	return nil
}
