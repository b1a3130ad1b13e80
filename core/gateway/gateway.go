package gateway

import (
	"maps"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// request is a client's request under way.
type request struct {
	id       uint64
	deadline model.Mono
	asks     map[uint64]*ask
	done     bool
}

// waiter is a request that waits for the catalog.
type waiter struct {
	rq      *request
	version uint64 // 0: any catalog at all
	until   model.Mono
	then    func(*model.Error)
}

// Gateway is one node's.
type Gateway struct {
	cfg      Config
	h        Host
	requests map[uint64]*request
	asks     map[uint64]*ask
	lastAsk  uint64
	dues     dues
	waiters  []waiter
	leaders  map[model.GroupID]model.NodeID
	sticky   uint64 // turns keyless messages around the partitions
}

// New makes a gateway.
func New(cfg Config, h Host) *Gateway {
	return &Gateway{cfg: cfg, h: h, requests: map[uint64]*request{}, asks: map[uint64]*ask{},
		leaders: map[model.GroupID]model.NodeID{}}
}

// Request takes a client's request up.
func (g *Gateway) Request(id uint64, c call.Client, deadline model.Mono) {
	if len(g.requests) >= g.cfg.MaxRequests {
		g.h.Reply(id, nil, model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, 50*time.Millisecond,
			"%d requests are under way on this node; try again or ask another node", len(g.requests)))
		return
	}
	rq := &request{id: id, deadline: deadline, asks: map[uint64]*ask{}}
	g.requests[id] = rq
	if _, ok := c.(*call.GetCluster); !ok && g.h.Catalog() == nil {
		g.waitCatalog(rq, 0, func(err *model.Error) {
			if err != nil {
				g.reply(rq, nil, err)
				return
			}
			g.dispatch(rq, c)
		})
		return
	}
	g.dispatch(rq, c)
}

// RequestGroup asks a group on behalf of another one; its answer, a call.Response,
// is replied as it is.
func (g *Gateway) RequestGroup(id uint64, to model.GroupID, req call.Request, deadline model.Mono) {
	rq := &request{id: id, deadline: deadline, asks: map[uint64]*ask{}}
	g.requests[id] = rq
	g.ask(rq, to, req, 0, func(resp call.Response, err *model.Error) { g.reply(rq, resp, err) })
}

func (g *Gateway) dispatch(rq *request, c call.Client) {
	switch c := c.(type) {
	case *call.Publish:
		g.publish(rq, c)
	case *call.PublishBatch:
		g.publishBatch(rq, c)
	case *call.Fetch:
		g.fetch(rq, c)
	case *call.OpenProducerCall:
		g.openProducer(rq, c)
	case *call.Pull:
		g.pull(rq, c)
	case *call.Ack:
		g.ack(rq, c)
	case *call.ExtendLease:
		g.extendLease(rq, c)
	case *call.Seek:
		g.seek(rq, c)
	case *call.LeaveSubscription:
		g.leave(rq, c)
	case *call.CreateSubscriptionCall:
		g.createSubscription(rq, c)
	case *call.Admin:
		g.admin(rq, c)
	case *call.TransferPartition:
		g.transfer(rq, c)
	case *call.GetTopic:
		g.getTopic(rq, c)
	case *call.ListTopics:
		g.listTopics(rq)
	case *call.GetSubscription:
		g.getSubscription(rq, c)
	case *call.ListSubscriptions:
		g.listSubscriptions(rq, c)
	case *call.Snapshot:
		g.snapshot(rq, c)
	case *call.ListSnapshots:
		g.listSnapshots(rq, c)
	case *call.GetCluster:
		g.getCluster(rq)
	case *call.Nack:
		g.nack(rq, c)
	default:
		g.reply(rq, nil, model.Errorf(model.Unimplemented, "%T is not served by this version", c))
	}
}

// Cancel forgets a request: its client is gone.
func (g *Gateway) Cancel(id uint64) {
	if rq := g.requests[id]; rq != nil {
		g.end(rq)
	}
}

func (g *Gateway) reply(rq *request, result call.ClientResult, err *model.Error) {
	if rq.done {
		return
	}
	g.end(rq)
	g.h.Reply(rq.id, result, err)
}

// end withdraws whatever a request still waits for.
func (g *Gateway) end(rq *request) {
	rq.done = true
	delete(g.requests, rq.id)
	for _, id := range slices.Sorted(maps.Keys(rq.asks)) {
		g.withdraw(rq.asks[id])
	}
	g.waiters = slices.DeleteFunc(g.waiters, func(w waiter) bool { return w.rq == rq })
}

func (g *Gateway) sortedAsks() []*ask {
	return slices.SortedFunc(maps.Values(g.asks), func(a, b *ask) int { return int(int64(a.id - b.id)) })
}

// Next is when Tick has something to do.
func (g *Gateway) Next() model.Mono {
	next := model.Never
	if len(g.dues) > 0 {
		next = g.dues[0].due
	}
	for _, w := range g.waiters {
		next = min(next, w.until)
	}
	return next
}

// Tick carries out what is due.
func (g *Gateway) Tick() {
	now := g.h.Now()
	for len(g.dues) > 0 && g.dues[0].due <= now {
		a := g.dues[0]
		a.due = model.Never // expire plans anew or ends it
		g.schedule(a)
		g.expire(a)
	}
	g.wakeWaiters()
}

// CatalogChanged says that meta applied something.
func (g *Gateway) CatalogChanged() {
	if cat := g.h.Catalog(); cat != nil && len(g.leaders) > 2*len(cat.Groups())+64 {
		maps.DeleteFunc(g.leaders, func(id model.GroupID, _ model.NodeID) bool {
			_, there := cat.Group(id)
			return !there
		})
	}
	g.wakeWaiters()
}

func (g *Gateway) wakeWaiters() {
	if len(g.waiters) == 0 {
		return
	}
	now, cat := g.h.Now(), g.h.Catalog()
	var ready []waiter
	g.waiters = slices.DeleteFunc(g.waiters, func(w waiter) bool {
		if cat != nil && cat.Version() >= w.version || now >= w.until {
			ready = append(ready, w)
			return true
		}
		return false
	})
	for _, w := range ready {
		if w.rq.done {
			continue
		}
		if cat != nil && cat.Version() >= w.version {
			w.then(nil)
			continue
		}
		w.then(model.Reasoned(model.Unavailable, model.ReasonNoLeader, 200*time.Millisecond,
			"this node has not caught up with the cluster's metadata; it may be starting, or cut off"))
	}
}

// waitCatalog runs then once this node has applied the version of meta, or with
// an error when patience ends.
func (g *Gateway) waitCatalog(rq *request, version uint64, then func(*model.Error)) {
	if cat := g.h.Catalog(); cat != nil && cat.Version() >= version {
		then(nil)
		return
	}
	g.waiters = append(g.waiters, waiter{rq, version, min(rq.deadline, g.h.Now().Add(g.cfg.LeaderWait)), then})
}

func (g *Gateway) targetOf(s *model.Subscription) call.Target {
	return call.Target{Subscription: s.Ref(), MapVersion: g.h.Catalog().Version()}
}
