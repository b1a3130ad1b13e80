package gateway

import (
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// checked is an ack or a nack, of which the coordinator may want to know of some
// partitions where their logs end. It is asked again for those alone: what it said
// of the others stands, whatever becomes of these.
type checked struct {
	g       *Gateway
	rq      *request
	s       *model.Subscription
	t       *model.Topic
	req     func(parts []model.Partition, ends []call.PartitionOffset) call.Request // nil: all parts
	ends    []call.PartitionOffset
	results []call.AckResult // so far, in the order of the first answer
	then    func([]call.AckResult)
}

// askChecked asks the coordinator, fetches the ends that it wants, and runs then
// with what came of each partition. An error before anything was decided answers
// the request.
func (g *Gateway) askChecked(rq *request, s *model.Subscription, t *model.Topic,
	req func([]model.Partition, []call.PartitionOffset) call.Request, then func([]call.AckResult)) {
	c := &checked{g: g, rq: rq, s: s, t: t, req: req, then: then}
	c.ask(nil, false)
}

// ask asks for some partitions, nil: all. It is open when a try before may have
// taken effect: then a refusal says nothing.
func (c *checked) ask(parts []model.Partition, open bool) {
	a := c.g.newAsk(c.rq, c.s.Coordinator, c.req(parts, c.ends), 0)
	a.open = open
	a.then = func(resp call.Response, err *model.Error) {
		switch {
		case err == nil:
			c.take(resp.(*call.Acked).Results)
			c.check(a)
		case c.results == nil:
			c.g.reply(c.rq, nil, err)
		default:
			for _, p := range parts {
				c.take([]call.AckResult{{Partition: p, Err: err}})
			}
			c.then(c.results)
		}
	}
	c.g.try(a)
}

// take puts what came of partitions in its place.
func (c *checked) take(results []call.AckResult) {
	if c.results == nil {
		c.results = slices.Clone(results)
		return
	}
	for _, r := range results {
		if i := slices.IndexFunc(c.results, func(x call.AckResult) bool { return x.Partition == r.Partition }); i >= 0 {
			c.results[i] = r
		}
	}
}

// check fetches the ends that an ask's answer wants, each once, and asks again.
func (c *checked) check(a *ask) {
	var want []model.Partition
	for _, r := range c.results {
		told := slices.ContainsFunc(c.ends, func(e call.PartitionOffset) bool { return e.Partition == r.Partition })
		if r.Err != nil && r.Err.Reason == call.ReasonCheckEnd && !told {
			want = append(want, r.Partition)
		}
	}
	left, again := len(want), []model.Partition(nil)
	if left == 0 {
		c.then(c.results)
	}
	for _, p := range want {
		done := func(resp call.Response, err *model.Error) {
			if err == nil {
				again = append(again, p)
				c.ends = append(c.ends, call.PartitionOffset{Partition: p, Offset: resp.(*call.Located).HighWatermark})
			} else {
				c.take([]call.AckResult{{Partition: p, Err: a.judged(err, c.g.cfg.Probe)}})
			}
			switch left--; {
			case left > 0:
			case again == nil:
				c.then(c.results)
			default:
				c.ask(again, a.open)
			}
		}
		if err := (named{"partitions", p}).within(c.t); err != nil { // an answer named it, not the client
			done(nil, err)
			continue
		}
		c.g.ask(c.rq, c.t.Partitions[p], bounds(p), 0, done)
	}
}

// within are the entries of a list that are of some partitions, nil: all, and what
// belongs to them of a second list that goes along, if it does.
func within(parts []model.Partition, list []call.PartitionOffset, along []uint64) (
	out []call.PartitionOffset, outAlong []uint64) {
	if parts == nil {
		return list, along
	}
	for i, o := range list {
		if !slices.Contains(parts, o.Partition) {
			continue
		}
		out = append(out, o)
		if len(along) == len(list) {
			outAlong = append(outAlong, along[i])
		}
	}
	return out, outAlong
}
