package gateway

import (
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// ack passes an ack on. Where the coordinator does not know whether the place
// was ever delivered, it wants a fresh high watermark, which is fetched here.
func (g *Gateway) ack(rq *request, c *call.Ack) {
	if len(c.UpTo) == 0 && len(c.Offsets) == 0 {
		g.reply(rq, nil, model.Invalid("up_to", "is empty, and so is offsets; name at least one partition"))
		return
	}
	if err := model.ValidateName("member", string(c.Member)); err != nil {
		g.reply(rq, nil, err)
		return
	}
	names := partitionsOf("up_to.partition", c.UpTo, c.Offsets)
	g.subscription(rq, c.Subscription, names, func(s *model.Subscription, t *model.Topic) {
		req := func(parts []model.Partition, ends []call.PartitionOffset) call.Request {
			upTo, _ := within(parts, c.UpTo, nil)
			offsets, _ := within(parts, c.Offsets, nil)
			return &call.AckCursors{Target: g.targetOf(s), Member: c.Member, Generation: c.Generation,
				UpTo: upTo, Offsets: offsets, Ends: ends}
		}
		g.askChecked(rq, s, t, req, func(results []call.AckResult) {
			g.reply(rq, &call.AckCallResult{Results: results}, allFailed(results))
		})
	})
}

// nack gives messages back. The first partition's error is the call's.
func (g *Gateway) nack(rq *request, c *call.Nack) {
	names := partitionsOf("offsets.partition", c.Offsets)
	g.subscription(rq, c.Subscription, names, func(s *model.Subscription, t *model.Topic) {
		req := func(parts []model.Partition, ends []call.PartitionOffset) call.Request {
			offsets, deliveries := within(parts, c.Offsets, c.Deliveries)
			return &call.NackCursors{Target: g.targetOf(s), Member: c.Member, Generation: c.Generation,
				Offsets: offsets, Deliveries: deliveries, Delay: c.Delay, Ends: ends}
		}
		g.askChecked(rq, s, t, req, func(results []call.AckResult) {
			g.reply(rq, &call.Empty{}, firstFailed(results))
		})
	})
}

func firstFailed(rs []call.AckResult) *model.Error {
	for _, r := range rs {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// bounds asks a partition for nothing but its bounds.
func bounds(model.Partition) call.Request {
	return &call.Locate{Where: model.Start{Kind: model.StartOffsets}}
}

// allFailed is the error that every partition has in common, if there is one.
func allFailed(rs []call.AckResult) *model.Error {
	for _, r := range rs {
		if r.Err == nil || r.Err.Code != rs[0].Err.Code || r.Err.Reason != rs[0].Err.Reason {
			return nil
		}
	}
	if len(rs) == 0 {
		return nil
	}
	return rs[0].Err
}

// extendLease gives more time for messages; without any it is the heartbeat.
// What of it went to another member meanwhile is that one's: the call fails only
// if all of it did.
func (g *Gateway) extendLease(rq *request, c *call.ExtendLease) {
	if err := model.ValidateName("member", string(c.Member)); err != nil {
		g.reply(rq, nil, err)
		return
	}
	names := partitionsOf("offsets.partition", c.Offsets)
	g.subscription(rq, c.Subscription, names, func(s *model.Subscription, _ *model.Topic) {
		if len(c.Offsets) == 0 {
			g.pass(rq, s.Coordinator, &call.Heartbeat{Target: g.targetOf(s), Member: c.Member, Generation: c.Generation})
			return
		}
		req := &call.ExtendLeases{Target: g.targetOf(s), Member: c.Member, Generation: c.Generation,
			Offsets: c.Offsets, Deliveries: c.Deliveries, Extension: c.Extension}
		g.ask(rq, s.Coordinator, req, 0, func(resp call.Response, err *model.Error) {
			if err == nil {
				err = allFailed(resp.(*call.Acked).Results)
			}
			g.reply(rq, &call.Empty{}, err)
		})
	})
}

func (g *Gateway) leave(rq *request, c *call.LeaveSubscription) {
	if err := model.ValidateName("member", string(c.Member)); err != nil {
		g.reply(rq, nil, err)
		return
	}
	g.subscription(rq, c.Subscription, named{}, func(s *model.Subscription, _ *model.Topic) {
		g.pass(rq, s.Coordinator, &call.Leave{Target: g.targetOf(s), Member: c.Member})
	})
}

// pass asks a group and answers with nothing to say.
func (g *Gateway) pass(rq *request, group model.GroupID, req call.Request) {
	g.ask(rq, group, req, 0, func(_ call.Response, err *model.Error) { g.reply(rq, &call.Empty{}, err) })
}

// seek resolves the target freshly, then moves the cursors in one entry. Without
// partitions it means all, those too that this node has not heard of yet.
func (g *Gateway) seek(rq *request, c *call.Seek) {
	field, parts := "partitions", c.Partitions
	if c.To.Kind == model.StartOffsets {
		field, parts = "offsets.partition", nil
		for _, o := range c.Offsets {
			parts = append(parts, o.Partition)
		}
	}
	_, _, err := model.SplitRef("subscription", c.Subscription)
	switch sorted := slices.Sorted(slices.Values(parts)); {
	case err != nil:
	case c.To.Kind == model.StartOffsets && len(parts) == 0:
		err = model.Invalid("offsets", "names no partition")
	case len(slices.Compact(sorted)) != len(parts):
		err = model.Invalid(field, "names a partition twice")
	}
	if err != nil {
		g.reply(rq, nil, err)
		return
	}
	if c.To.Kind == model.StartSnapshot {
		g.restore(rq, c)
		return
	}
	if len(parts) == 0 {
		fresh(g, rq, lookSubscription(c.Subscription, named{}), func(f subscribed) {
			g.seekIn(rq, c, f, allPartitions(f.t))
		})
		return
	}
	find(g, rq, lookSubscription(c.Subscription, highestOf(field, parts)), func(f subscribed) {
		g.seekIn(rq, c, f, parts)
	})
}

func (g *Gateway) seekIn(rq *request, c *call.Seek, f subscribed, parts []model.Partition) {
	where := func(model.Partition) call.Request { return &call.Locate{Where: c.To} }
	if c.To.Kind == model.StartOffsets {
		where = bounds
	}
	g.onEach(rq, f.t, parts, where, func(rs []call.Response) { g.moveCursors(rq, c, f.s, parts, rs) })
}

func (g *Gateway) moveCursors(rq *request, c *call.Seek, s *model.Subscription, parts []model.Partition,
	rs []call.Response) {
	req := &call.MoveCursors{Target: g.targetOf(s)}
	for i, p := range parts {
		l := rs[i].(*call.Located)
		to := l.Offset
		if c.To.Kind == model.StartOffsets {
			to = c.Offsets[i].Offset
			if err := outside(to, l, p); err != nil {
				g.reply(rq, nil, err)
				return
			}
		}
		req.To = append(req.To, call.PartitionOffset{Partition: p, Offset: to})
	}
	g.ask(rq, s.Coordinator, req, 0, func(resp call.Response, err *model.Error) {
		if err != nil {
			g.reply(rq, nil, err)
			return
		}
		g.reply(rq, &call.SeekResult{Generation: resp.(*call.Moved).Generation, Cursors: req.To}, nil)
	})
}

func outside(to model.Offset, l *call.Located, p model.Partition) *model.Error {
	reason := model.ReasonOffsetTooOld
	if to > l.HighWatermark {
		reason = model.ReasonOffsetTooNew
	} else if to >= l.LogStart {
		return nil
	}
	err := model.Reasoned(model.OutOfRange, reason, 0, "offset %d of partition %d is outside [%d, %d]",
		to, p, l.LogStart, l.HighWatermark)
	err.Start, err.End = l.LogStart, l.HighWatermark
	return err
}

// createSubscription resolves the start in every partition, then defines it.
func (g *Gateway) createSubscription(rq *request, c *call.CreateSubscriptionCall) {
	if err := model.ValidateName("name", c.Name); err != nil {
		g.reply(rq, nil, err)
		return
	}
	if c.Start.Kind > model.StartTime {
		g.reply(rq, nil, model.Invalid("start", "must be earliest, latest or a moment"))
		return
	}
	if err := model.ValidateName("topic", c.Topic); err != nil {
		g.reply(rq, nil, err)
		return
	}
	// Freshly: a partition that is not known here would start at 0.
	fresh(g, rq, lookTopic(c.Topic, named{}), func(t *model.Topic) {
		where := func(model.Partition) call.Request { return &call.Locate{Where: c.Start} }
		g.onEach(rq, t, allPartitions(t), where, func(rs []call.Response) {
			req := &call.CreateSubscription{Topic: c.Topic, TopicID: t.ID, Name: c.Name, Start: c.Start, Settings: c.Settings}
			for _, r := range rs {
				req.StartsAt = append(req.StartsAt, r.(*call.Located).Offset)
			}
			g.change(rq, req, func() {
				s, ok := g.h.Catalog().Subscription(c.Topic + "/" + c.Name)
				if !ok {
					g.reply(rq, nil, model.Errorf(model.Aborted, "subscription %s/%s was deleted meanwhile", c.Topic, c.Name))
					return
				}
				g.reply(rq, &call.CreateSubscriptionCallResult{Subscription: *s}, nil)
			})
		})
	})
}
