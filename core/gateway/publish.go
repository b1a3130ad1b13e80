package gateway

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

func maxMessage(t *model.Topic) int {
	if m := int(t.Settings.MaxMessageBytes); m > 0 {
		return m
	}
	return model.MaxMessageBytes
}

// publish splits messages by partition and appends one batch to each.
func (g *Gateway) publish(rq *request, c *call.Publish) {
	if len(c.Messages) == 0 {
		g.reply(rq, nil, model.Invalid("messages", "is empty; send at least one"))
		return
	}
	names := named{}
	if c.HasPartition {
		names = named{"partition", c.Partition}
	}
	g.topic(rq, c.Topic, names, func(t *model.Topic) {
		total := 0
		for i := range c.Messages {
			m := &c.Messages[i]
			if err := m.Check(fmt.Sprintf("messages[%d]", i), maxMessage(t)); err != nil {
				g.reply(rq, nil, err)
				return
			}
			total += m.Size()
		}
		if total > model.MaxRequestBytes {
			g.reply(rq, nil, model.Invalid("messages", "have %d bytes together; at most %d are allowed: send fewer at once",
				total, model.MaxRequestBytes))
			return
		}
		g.publishTo(rq, c, t, 0)
	})
}

// publishTo sends one batch per partition; round counts re-splits after the
// number of partitions has changed meanwhile.
func (g *Gateway) publishTo(rq *request, c *call.Publish, t *model.Topic, round int) {
	parts, err := g.split(c, t)
	if err != nil {
		g.reply(rq, nil, err)
		return
	}
	p := &publishing{g: g, rq: rq, c: c, results: make([]call.MessageResult, len(c.Messages)), round: round}
	order := slices.Sorted(maps.Keys(parts))
	p.left = len(order)
	for _, part := range order {
		p.send(t, part, parts[part])
	}
}

// split gives each partition the places of its messages.
func (g *Gateway) split(c *call.Publish, t *model.Topic) (map[model.Partition][]int, *model.Error) {
	n := uint32(len(t.Partitions))
	if c.HasPartition {
		if err := (named{"partition", c.Partition}).within(t); err != nil {
			return nil, err
		}
	}
	g.sticky++
	parts := map[model.Partition][]int{}
	for i := range c.Messages {
		to := model.Partition(g.sticky % uint64(n))
		switch {
		case c.HasPartition:
			to = c.Partition
		case len(c.Messages[i].Key) > 0:
			to = batch.PartitionFor(c.Messages[i].Key, n)
		}
		parts[to] = append(parts[to], i)
	}
	if c.Producer != 0 && len(parts) > 1 {
		return nil, model.Invalid("messages", "fall into %d partitions; with a producer name one partition, or one key",
			len(parts))
	}
	return parts, nil
}

type publishing struct {
	g       *Gateway
	rq      *request
	c       *call.Publish
	results []call.MessageResult
	left    int
	round   int
	stale   []int
}

func (p *publishing) send(t *model.Topic, part model.Partition, places []int) {
	msgs := make([]batch.Message, len(places))
	keyed := false
	for i, at := range places {
		msgs[i] = p.c.Messages[at]
		keyed = keyed || len(msgs[i].Key) > 0
	}
	o := batch.Options{Producer: p.c.Producer, Epoch: p.c.Epoch, Sequence: p.c.Sequence}
	if keyed && !p.c.HasPartition {
		o.MapVersion = t.MapVersion
	}
	req := &call.Append{Batch: batch.Encode(msgs, o), Start: p.c.Start}
	p.g.ask(p.rq, t.Partitions[part], req, 0, func(resp call.Response, err *model.Error) {
		for i, at := range places {
			r := call.MessageResult{Partition: part, Err: err}
			if err == nil {
				a := resp.(*call.Appended)
				r.Offset, r.Duplicate = a.Base+model.Offset(i), a.Duplicate
			} else if err.Reason == model.ReasonStaleMap {
				p.stale = append(p.stale, at)
			}
			p.results[at] = r
		}
		if p.left--; p.left == 0 {
			p.finish()
		}
	})
}

// finish answers, or splits anew what was split by an older number of partitions.
func (p *publishing) finish() {
	if len(p.stale) > 0 && p.round < 5 {
		p.again()
		return
	}
	first := p.results[0].Err
	for _, r := range p.results {
		if r.Err == nil || first == nil || r.Err.Code != first.Code || r.Err.Reason != first.Reason {
			p.g.reply(p.rq, &call.PublishResult{Results: p.results}, nil)
			return
		}
	}
	p.g.reply(p.rq, nil, first)
}

func (p *publishing) again() {
	p.g.cfg.Probe.Hit(probe.SplitAnew)
	g, rq, places := p.g, p.rq, slices.Sorted(slices.Values(p.stale))
	c := *p.c
	c.Messages = make([]batch.Message, len(places))
	for i, at := range places {
		c.Messages[i] = p.c.Messages[at]
	}
	g.refresh(rq, func(err *model.Error) {
		t, ok := g.h.Catalog().Topic(c.Topic)
		if err != nil || !ok {
			p.stale = nil
			p.finish()
			return
		}
		if len(places) == len(p.results) {
			g.publishTo(rq, p.c, t, p.round+1)
			return
		}
		parts, err := g.split(&c, t)
		if err != nil {
			p.stale = nil
			p.finish()
			return
		}
		p.stale, p.round = nil, p.round+1
		order := slices.Sorted(maps.Keys(parts))
		p.left = len(order)
		for _, part := range order {
			mapped := make([]int, len(parts[part]))
			for i, at := range parts[part] {
				mapped[i] = places[at]
			}
			p.send(t, part, mapped)
		}
	})
}

// publishBatch appends a batch that a client has encoded.
func (g *Gateway) publishBatch(rq *request, c *call.PublishBatch) {
	v, perr := batch.Parse(c.Batch)
	if perr != nil || len(v) != len(c.Batch) {
		g.reply(rq, nil, model.Invalid("batch", "is not one whole batch: %v", perr))
		return
	}
	if len(v) > model.MaxRequestBytes {
		g.reply(rq, nil, model.Invalid("batch", "has %d bytes; at most %d are allowed", len(v), model.MaxRequestBytes))
		return
	}
	g.topic(rq, c.Topic, named{"partition", c.Partition}, func(t *model.Topic) {
		for i := range int(v.Count()) {
			if _, n := v.Entry(i); int(n) > maxMessage(t) {
				g.reply(rq, nil, model.Invalid(fmt.Sprintf("batch.messages[%d]", i),
					"has %d bytes; this topic takes at most %d", n, maxMessage(t)))
				return
			}
		}
		v.Stamp(0, 0) // whatever a client wrote there is not a leader's stamp
		g.ask(rq, t.Partitions[c.Partition], &call.Append{Batch: v, Start: c.Start}, 0,
			func(resp call.Response, err *model.Error) {
				if err != nil {
					g.reply(rq, nil, err)
					return
				}
				a := resp.(*call.Appended)
				g.reply(rq, &call.PublishBatchResult{Base: a.Base, AppendTime: a.AppendTime, Duplicate: a.Duplicate}, nil)
			})
	})
}

const (
	defaultBytes    = 1 << 20
	defaultMessages = 1000
	maxWait         = 60 * time.Second
)

// readWait bounds a client's wait by its deadline, leaving time for the answer.
func (g *Gateway) readWait(rq *request, wait time.Duration) time.Duration {
	left := rq.deadline.Sub(g.h.Now())
	return max(0, min(wait, maxWait, left-left/10-10*time.Millisecond))
}

func bytesOr(n uint32) uint32 {
	if n == 0 {
		return defaultBytes
	}
	return min(n, model.MaxRequestBytes)
}

// fetch reads without a subscription, at the leader.
func (g *Gateway) fetch(rq *request, c *call.Fetch) {
	g.topic(rq, c.Topic, named{"partition", c.Partition}, func(t *model.Topic) {
		wait := g.readWait(rq, c.Wait)
		req := &call.Read{Offset: c.Offset, MaxBytes: bytesOr(c.MaxBytes), Wait: wait, Leader: true}
		g.ask(rq, t.Partitions[c.Partition], req, wait, func(resp call.Response, err *model.Error) {
			if err != nil {
				g.reply(rq, nil, err)
				return
			}
			r := resp.(*call.ReadResult)
			views, perr := batch.Split(r.Run)
			if perr != nil {
				g.reply(rq, nil, model.Errorf(model.DataLoss, "read partition %d at offset %d: %v", c.Partition, c.Offset, perr))
				return
			}
			out := &call.FetchResult{Offset: c.Offset, Next: c.Offset, HighWatermark: r.HighWatermark, LogStart: r.LogStart}
			out.Batches, out.Next = clip(views, c.Offset, c.MaxMessages)
			// A replica that does not lead (any more) tells no bounds; but what it
			// served is committed, so the end is there at least.
			out.HighWatermark = max(out.HighWatermark, out.Next)
			g.reply(rq, out, nil)
		})
	})
}

// clip keeps the batches that hold [from, from+limit) and says where that ends.
func clip(views []batch.View, from model.Offset, limit uint32) ([]batch.View, model.Offset) {
	next := from
	for i, v := range views {
		if limit > 0 && v.Base() >= from+model.Offset(limit) {
			return views[:i], min(next, from+model.Offset(limit))
		}
		next = max(next, v.Next())
	}
	if limit > 0 {
		next = min(next, from+model.Offset(limit))
	}
	return views, next
}

// openProducer gets id and epoch from meta and, when asked, writes fences. What
// cannot be fenced is refused before the epoch rises.
func (g *Gateway) openProducer(rq *request, c *call.OpenProducerCall) {
	if !c.Fence {
		g.openThen(rq, c, func(_ *call.ProducerOpened, r *call.OpenProducerCallResult) { g.reply(rq, r, nil) })
		return
	}
	g.topic(rq, c.Topic, highestOf("partitions", c.Partitions), func(t *model.Topic) {
		g.openThen(rq, c, func(o *call.ProducerOpened, r *call.OpenProducerCallResult) {
			fence := func(t *model.Topic, parts []model.Partition) {
				g.onEach(rq, t, parts, func(model.Partition) call.Request {
					return &call.Fence{Producer: o.ID, Epoch: o.Epoch}
				}, func([]call.Response) { g.reply(rq, r, nil) })
			}
			if len(c.Partitions) > 0 {
				fence(t, c.Partitions)
				return
			}
			// All of them, those too that this node has not heard of yet.
			fresh(g, rq, lookTopic(c.Topic, named{}), func(t *model.Topic) { fence(t, allPartitions(t)) })
		})
	})
}

func (g *Gateway) openThen(rq *request, c *call.OpenProducerCall,
	then func(*call.ProducerOpened, *call.OpenProducerCallResult)) {
	g.ask(rq, model.MetaGroup, &call.OpenProducer{Name: c.Name}, 0, func(resp call.Response, err *model.Error) {
		if err != nil {
			g.reply(rq, nil, err)
			return
		}
		o := resp.(*call.ProducerOpened)
		then(o, &call.OpenProducerCallResult{ID: o.ID, Epoch: o.Epoch})
	})
}

func allPartitions(t *model.Topic) []model.Partition {
	out := make([]model.Partition, len(t.Partitions))
	for i := range out {
		out[i] = model.Partition(i)
	}
	return out
}

// onEach asks every named partition and runs then when all have answered; the
// first error answers the request.
func (g *Gateway) onEach(rq *request, t *model.Topic, parts []model.Partition,
	req func(model.Partition) call.Request, then func([]call.Response)) {
	out := make([]call.Response, len(parts))
	left := len(parts)
	if left == 0 {
		then(out)
		return
	}
	for i, p := range parts {
		if err := (named{"partitions", p}).within(t); err != nil {
			g.reply(rq, nil, err) // an answer named it, not the client
			return
		}
		g.ask(rq, t.Partitions[p], req(p), 0, func(resp call.Response, err *model.Error) {
			if err != nil {
				g.reply(rq, nil, err)
				return
			}
			out[i] = resp
			if left--; left == 0 && !rq.done {
				then(out)
			}
		})
		if rq.done {
			return
		}
	}
}
