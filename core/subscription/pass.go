package subscription

import (
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// passCommand takes what a filter does not want as acked: nobody will be given
// it, so nobody will ack it. It carries the skips of the same delivery.
type passCommand struct {
	skip   skipCommand
	passes []pass
	limit  uint32 // ranges ahead of a partition's cursor at most
}

// pass is a range that was read under a fence; under another one a seek may have
// come between, after which it is read again.
type pass struct {
	partition model.Partition
	fence     model.Generation
	interval
}

func (*passCommand) kind() kind { return kindPass }

// Code implements wire.Coder.
func (v *passCommand) Code(c *wire.Codec) {
	v.skip.Code(c)
	wire.Slice(c, &v.passes, codePass)
	wire.Uint(c, &v.limit)
}

func codePass(c *wire.Codec, p *pass) {
	wire.Uint(c, &p.partition)
	wire.Uint(c, &p.fence)
	wire.Uint(c, &p.from)
	wire.Uint(c, &p.to)
}

// passes is what a delivery says of messages that are filtered, as far as it is news.
func (s *subscription) passes(req *call.Deliver) (out []pass) {
	for _, r := range req.Filtered {
		part := &s.partitions[r.Partition]
		x := interval{max(r.From, part.cursor), r.To}
		if x.from < x.to && s.accepts(req.Member, req.Generation, r.Partition) {
			out = append(out, pass{r.Partition, part.fence, x})
		}
	}
	return out
}

func (v *passCommand) apply(s *state) outcome {
	out := v.skip.apply(s)
	if sub := s.subscriptions[v.skip.id]; sub != nil {
		sub.pass(v.passes, int(v.limit))
	}
	return out
}

// pass takes ranges as acked that were read under the fences there are.
func (s *subscription) pass(passes []pass, limit int) {
	for _, p := range passes {
		if int(p.partition) < len(s.partitions) && s.partitions[p.partition].fence == p.fence {
			s.partitions[p.partition].pass(p.interval, limit)
		}
	}
}

// pass takes a range as acked. Beyond the limit of ranges it stays open: it will
// be read, and left out, again.
func (p *partition) pass(x interval, limit int) {
	x.from = max(x.from, p.cursor)
	if x.from == p.cursor || len(p.acked) < limit {
		p.acked.add(x)
		p.settle()
	}
}
