package gateway

import (
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// change asks meta for a change and waits until this node has applied it, so
// that a client's next call here knows it.
func (g *Gateway) change(rq *request, req call.Request, then func()) {
	g.ask(rq, model.MetaGroup, req, 0, func(resp call.Response, err *model.Error) {
		if err != nil {
			g.reply(rq, nil, err)
			return
		}
		version := resp.(*call.Done).MapVersion
		g.waitCatalog(rq, version, func(err *model.Error) {
			if _, known := req.(*call.CreateSubscription); err != nil && known {
				g.reply(rq, nil, model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, retryPause,
					"the subscription was made, but this node has not caught up with it; ask for the same again"))
				return
			} else if err != nil {
				g.reply(rq, &call.Done{MapVersion: version}, nil) // made it is, whatever this node knows
				return
			}
			then()
		})
	})
}

func (g *Gateway) admin(rq *request, c *call.Admin) {
	switch c.Request.(type) {
	case *call.CreateTopic, *call.UpdateTopic, *call.DeleteTopic, *call.UpdateSubscription, *call.DeleteSubscription,
		*call.JoinNode, *call.DrainNode, *call.RemoveNode, *call.RebuildNode, *call.MovePartition, *call.ReportChange:
		g.change(rq, c.Request, func() {
			g.reply(rq, &call.Done{MapVersion: g.h.Catalog().Version()}, nil)
		})
	default:
		g.reply(rq, nil, model.Errorf(model.Unimplemented, "%T is not an administrative change", c.Request))
	}
}

func (g *Gateway) transfer(rq *request, c *call.TransferPartition) {
	g.topic(rq, c.Topic, named{"partition", c.Partition}, func(t *model.Topic) {
		g.pass(rq, t.Partitions[c.Partition], &call.TransferLeader{To: c.To})
	})
}

// getTopic joins a topic's definition with what its partitions' leaders say.
func (g *Gateway) getTopic(rq *request, c *call.GetTopic) {
	if err := model.ValidateName("topic", c.Name); err != nil {
		g.reply(rq, nil, err)
		return
	}
	fresh(g, rq, lookTopic(c.Name, named{}), func(t *model.Topic) {
		out := &call.GetTopicResult{Topic: *t, Partitions: make([]call.PartitionStatus, len(t.Partitions))}
		left := len(t.Partitions)
		for i, id := range t.Partitions {
			st := &out.Partitions[i]
			g.describePartition(st, model.Partition(i), id)
			g.ask(rq, id, bounds(st.Partition), 0, func(resp call.Response, err *model.Error) {
				if st.Err = err; err == nil {
					l := resp.(*call.Located)
					st.LogStart, st.HighWatermark, st.Bytes = l.LogStart, l.HighWatermark, l.Bytes
				}
				st.Leader = g.leaders[id]
				if left--; left == 0 {
					g.reply(rq, out, nil)
				}
			})
		}
	})
}

func (g *Gateway) describePartition(st *call.PartitionStatus, p model.Partition, id model.GroupID) {
	st.Partition = p
	gr, ok := g.h.Catalog().Group(id)
	if !ok {
		return
	}
	st.AtRisk = gr.Change.ID != 0 && gr.Change.Remove != 0 || gr.Lost(g.h.Catalog().Nodes())
	for _, r := range gr.Replicas {
		st.Replicas = append(st.Replicas, r.Node)
		st.AtRisk = st.AtRisk || !g.h.Reachable(r.Node)
	}
}

func (g *Gateway) listTopics(rq *request) {
	g.refresh(rq, func(err *model.Error) {
		out := &call.ListTopicsResult{}
		for _, t := range g.h.Catalog().Topics() {
			out.Topics = append(out.Topics, *t)
		}
		g.reply(rq, out, err)
	})
}

func (g *Gateway) listSubscriptions(rq *request, c *call.ListSubscriptions) {
	g.refresh(rq, func(err *model.Error) {
		if err != nil {
			g.reply(rq, nil, err)
			return
		}
		if _, ok := g.h.Catalog().Topic(c.Topic); c.Topic != "" && !ok {
			g.reply(rq, nil, model.TopicNotFound(g.h.Catalog(), c.Topic))
			return
		}
		out := &call.ListSubscriptionsResult{}
		for _, s := range g.h.Catalog().Subscriptions() {
			if c.Topic == "" || s.TopicName == c.Topic {
				out.Subscriptions = append(out.Subscriptions, *s)
			}
		}
		g.reply(rq, out, nil)
	})
}

// getSubscription joins definition, the coordinator's state, and each
// partition's bounds. The cursors are read first: the bounds read after them
// are never behind, so lag is never negative.
func (g *Gateway) getSubscription(rq *request, c *call.GetSubscription) {
	if _, _, err := model.SplitRef("subscription", c.Subscription); err != nil {
		g.reply(rq, nil, err)
		return
	}
	fresh(g, rq, lookSubscription(c.Subscription, named{}), func(f subscribed) {
		s := f.s
		g.ask(rq, s.Coordinator, &call.Describe{Target: g.targetOf(s)}, 0, func(resp call.Response, err *model.Error) {
			if err != nil {
				g.reply(rq, nil, err)
				return
			}
			g.joinSubscription(rq, s, resp.(*call.Description))
		})
	})
}

func (g *Gateway) joinSubscription(rq *request, s *model.Subscription, d *call.Description) {
	out := &call.GetSubscriptionResult{Subscription: *s, Description: *d,
		Partitions: make([]call.SubscriptionPartition, len(d.Cursors))}
	t, ok := g.h.Catalog().TopicByID(s.Topic)
	if !ok || len(d.Cursors) == 0 {
		g.reply(rq, out, nil)
		return
	}
	left := len(d.Cursors)
	for i, cur := range d.Cursors {
		p := &out.Partitions[i]
		p.CursorState = cur
		done := func(resp call.Response, err *model.Error) {
			if p.Err = err; err == nil {
				l := resp.(*call.Located)
				p.HighWatermark, p.LogStart = l.HighWatermark, l.LogStart
				if from := max(cur.Cursor, l.LogStart); from < l.HighWatermark {
					p.Lag, p.OldestTime = uint64(l.HighWatermark-from), l.OldestTime
				}
			}
			if left--; left == 0 {
				g.reply(rq, out, nil)
			}
		}
		if int(cur.Partition) >= len(t.Partitions) {
			done(nil, model.Reasoned(model.Unavailable, model.ReasonStaleMap, retryPause,
				"partition %d is not known here yet", cur.Partition))
			continue
		}
		req := &call.Locate{Where: model.Start{Kind: model.StartOffsets}, Offset: cur.Cursor}
		g.ask(rq, t.Partitions[cur.Partition], req, 0, done)
	}
}

// getCluster says what this node knows by itself; it needs nobody's answer. Before
// there is a cluster, that is who of the configured nodes can be reached.
func (g *Gateway) getCluster(rq *request) {
	out := &call.GetClusterResult{Self: g.h.Self()}
	cat := g.h.Catalog()
	if cat == nil {
		for _, n := range g.h.Peers() {
			out.Nodes = append(out.Nodes, call.NodeStatus{Node: n, Reachable: g.h.Reachable(n.ID)})
		}
		g.reply(rq, out, nil)
		return
	}
	out.MapVersion = cat.Version()
	for _, n := range cat.Nodes() {
		out.Nodes = append(out.Nodes, call.NodeStatus{Node: *n, Reachable: g.h.Reachable(n.ID)})
	}
	local := map[model.GroupID]call.GroupStatus{}
	for _, st := range g.h.Status() {
		local[st.ID] = st
	}
	for _, gr := range cat.Groups() {
		st := call.GroupStatus{Group: *gr, Leader: g.leaders[gr.ID]}
		if l, ok := local[gr.ID]; ok {
			st.Leader, st.Term = l.Leader, l.Term
		}
		out.Groups = append(out.Groups, st)
	}
	g.reply(rq, out, nil)
}
