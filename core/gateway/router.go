package gateway

import (
	"container/heap"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// ask is one call of a group, over as many tries as it takes.
type ask struct {
	id       uint64 // of the try under way, or of the last one; each try has its own
	owner    *request
	group    model.GroupID
	req      call.Request
	wait     time.Duration // how long the callee may take on purpose
	started  model.Mono
	deadline model.Mono
	due      model.Mono // end of the try under way, or moment of the next
	inFlight bool
	open     bool // an earlier try's outcome is not known
	node     model.NodeID
	tries    int
	last     *model.Error
	then     func(call.Response, *model.Error)
	pos      int // in the heap of dues
}

const (
	retryPause = 20 * time.Millisecond
	hopPause   = 2 * time.Millisecond // before following a hint
)

// repeatable says whether a call may be made again when its outcome is unknown.
// A seek may not: made twice it could undo acks that came in between. Nor may an
// OpenProducer: a caller that counts its attempts tells by the epoch whether
// somebody else opened the name. Nor a nack: made twice it counts two attempts;
// its lease ends anyway. A batch may if its producer's sequence tells
// the copy.
func repeatable(req call.Request) bool {
	switch r := req.(type) {
	case *call.Append:
		return batch.View(r.Batch).Producer() != 0
	case *call.MoveCursors, *call.NackCursors, *call.OpenProducer, *call.DeleteTopic, *call.DeleteSubscription:
		return false
	}
	return true
}

// ask calls a group; then runs exactly once unless the owner ends first.
func (g *Gateway) ask(rq *request, group model.GroupID, req call.Request, wait time.Duration,
	then func(call.Response, *model.Error)) *ask {
	a := g.newAsk(rq, group, req, wait)
	a.then = then
	g.try(a)
	return a
}

// newAsk makes an ask that has nobody tried yet, and does nothing at its end.
func (g *Gateway) newAsk(rq *request, group model.GroupID, req call.Request, wait time.Duration) *ask {
	g.lastAsk++
	a := &ask{id: g.lastAsk, owner: rq, group: group, req: req, wait: wait, started: g.h.Now(),
		deadline: rq.deadline, pos: -1}
	g.asks[a.id] = a
	rq.asks[a.id] = a
	return a
}

func (g *Gateway) try(a *ask) {
	node, ok := g.target(a)
	if !ok {
		g.retry(a, retryPause)
		return
	}
	if a.tries++; a.tries > 1 {
		// A new id for each try: a callee takes an id once, so that a repeated
		// packet does not make a call twice, and late answers to older tries are
		// told from this one's.
		g.rename(a)
	}
	a.node, a.inFlight = node, true
	a.due = min(g.h.Now().Add(a.wait+g.cfg.TryTimeout), a.deadline)
	g.schedule(a)
	g.h.Ask(node, a.id, a.group, a.req)
}

func (g *Gateway) rename(a *ask) {
	delete(g.asks, a.id)
	delete(a.owner.asks, a.id)
	g.lastAsk++
	a.id = g.lastAsk
	g.asks[a.id], a.owner.asks[a.id] = a, a
}

// target picks the node to try: who is known to lead, else each replica in
// turn. Nodes whose stream is down are passed over as long as there are others.
func (g *Gateway) target(a *ask) (model.NodeID, bool) {
	if !g.cfg.Choice.Rare(choice.LeaderUnknown) {
		if n, ok := g.leaders[a.group]; ok && g.h.Up(n) {
			return n, true
		}
		if n, ok := g.h.Leader(a.group); ok && g.h.Up(n) {
			return n, true
		}
	}
	cat := g.h.Catalog()
	if cat == nil {
		return "", false
	}
	gr, ok := cat.Group(a.group)
	if !ok || len(gr.Replicas) == 0 {
		return "", false
	}
	for i := range gr.Replicas {
		if n := gr.Replicas[(a.tries+i)%len(gr.Replicas)].Node; g.h.Up(n) {
			a.tries += i
			return n, true
		}
	}
	return "", false
}

// Answer takes the answer to a try.
func (g *Gateway) Answer(id uint64, from model.NodeID, resp call.Response, err *model.Error) {
	a := g.asks[id]
	if a == nil || !a.inFlight || a.node != from {
		return
	}
	if g.cfg.Choice.Rare(choice.AnswerLost) {
		g.lost(a)
		return
	}
	a.inFlight = false
	if err == nil && !fits(a.req, resp) {
		err = model.Errorf(model.Internal, "node %s answered a %T with a %T; do both run the same version?",
			from, a.req, resp)
	}
	if err == nil {
		if acked, ok := resp.(*call.Acked); ok {
			for i := range acked.Results {
				r := &acked.Results[i]
				if r.Err != nil && r.Err.Reason != call.ReasonCheckEnd {
					r.Err = a.judged(r.Err, g.cfg.Probe)
				}
			}
		}
		g.leaders[a.group] = from
		g.finish(a, resp, nil)
		return
	}
	a.last = err
	switch {
	case err.Reason == model.ReasonNotLeader:
		delete(g.leaders, a.group)
		pause := retryPause
		if err.Leader != "" && err.Leader != from {
			g.cfg.Probe.Hit(probe.HintFollowed)
			g.leaders[a.group] = err.Leader
			pause = hopPause
		}
		g.retry(a, pause)
	case err.Reason == model.ReasonStaleMap && !isAppend(a.req):
		g.retry(a, retryPause)
	case err.Code == model.Unavailable && repeatable(a.req) && err.Reason != model.ReasonStaleMap:
		a.open = a.open || !readOnly(a.req)
		g.cfg.Probe.Hit(probe.TriedAgain)
		delete(g.leaders, a.group)
		g.retry(a, max(retryPause, err.RetryAfter))
	default:
		g.finish(a, nil, a.judged(err, g.cfg.Probe))
	}
}

// fits says whether an answer is of the kind that the request asks for.
func fits(req call.Request, resp call.Response) (ok bool) {
	switch req.(type) {
	case *call.Append:
		_, ok = resp.(*call.Appended)
	case *call.Read:
		_, ok = resp.(*call.ReadResult)
	case *call.Locate:
		_, ok = resp.(*call.Located)
	case *call.Grant:
		_, ok = resp.(*call.Granted)
	case *call.Deliver:
		_, ok = resp.(*call.Delivered)
	case *call.AckCursors, *call.NackCursors, *call.ExtendLeases:
		_, ok = resp.(*call.Acked)
	case *call.MoveCursors:
		_, ok = resp.(*call.Moved)
	case *call.KeepCursors, *call.ListCursors:
		_, ok = resp.(*call.KeptCursors)
	case *call.Describe:
		_, ok = resp.(*call.Description)
	case *call.OpenProducer:
		_, ok = resp.(*call.ProducerOpened)
	case *call.Fence, *call.Heartbeat, *call.Leave, *call.TransferLeader:
		ok = true // nothing is read from it
	default:
		_, ok = resp.(*call.Done)
	}
	return ok
}

// judged is what a refusal says of the whole call. A try before it whose outcome
// is not known may have taken effect, and the refusal may be the consequence: of
// an ack, say, that was made, before its partition went to another member.
func (a *ask) judged(err *model.Error, probes probe.Func) *model.Error {
	if err == nil || !a.open || !changes(a.req) || err.Code == model.InvalidArgument || err.Code == model.Unimplemented {
		return err
	}
	probes.Hit(probe.RefusedAfterUnknown)
	return model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, retryPause,
		"an earlier try may have taken effect; the last one was refused: %s", err.Error())
}

// changes says whether a call leaves something behind that its caller relies on.
func changes(req call.Request) bool {
	switch req.(type) {
	case *call.Grant, *call.Deliver, *call.Heartbeat, *call.ExtendLeases, *call.Leave:
		return false
	}
	return !readOnly(req)
}

func isAppend(r call.Request) bool { _, ok := r.(*call.Append); return ok }

// retry plans the next try, or gives up when patience or deadline end first.
func (g *Gateway) retry(a *ask, pause time.Duration) {
	now := g.h.Now()
	// Half the pause is drawn, so that callers of one group do not march in step.
	at := now.Add(pause/2 + time.Duration(g.h.Rand()%uint64(pause/2+1)))
	if at >= min(a.deadline, a.started.Add(g.cfg.LeaderWait+a.wait)) {
		g.giveUp(a)
		return
	}
	a.inFlight, a.due = false, at
	g.schedule(a)
}

func (g *Gateway) giveUp(a *ask) {
	switch {
	case a.open || a.inFlight && !readOnly(a.req):
		g.cfg.Probe.Hit(probe.OutcomeUnknown)
		g.finish(a, nil, model.Reasoned(model.DeadlineExceeded, model.ReasonUnknownOutcome, retryPause,
			"no answer within the deadline; the call may have taken effect"))
	case a.last != nil && a.last.Code == model.Unavailable: // STALE_MAP, or a leader that says why not
		g.finish(a, nil, a.last)
	default:
		g.cfg.Probe.Hit(probe.NoLeader)
		g.finish(a, nil, g.noLeader(a))
	}
}

// noLeader says that nobody answers for a group, and if nobody ever will, why.
func (g *Gateway) noLeader(a *ask) *model.Error {
	if cat := g.h.Catalog(); cat != nil {
		if gr, ok := cat.Group(a.group); ok && gr.Lost(cat.Nodes()) {
			return model.Reasoned(model.Unavailable, model.ReasonNoLeader, 200*time.Millisecond, "%s", model.LostText(cat, gr))
		}
	}
	return model.Reasoned(model.Unavailable, model.ReasonNoLeader, 200*time.Millisecond,
		"group %d has no leader that answers; waited %v", a.group, g.h.Now().Sub(a.started))
}

func readOnly(req call.Request) bool {
	switch req.(type) {
	case *call.Read, *call.Locate, *call.Describe, *call.ListCursors, *call.Barrier:
		return true
	}
	return false
}

// expire handles an ask whose moment has come: the next try, or the end of one.
func (g *Gateway) expire(a *ask) {
	if !a.inFlight {
		g.try(a)
		return
	}
	g.h.Withdraw(a.node, a.id)
	g.lost(a)
}

// lost handles a try that will not be answered.
func (g *Gateway) lost(a *ask) {
	if g.leaders[a.group] == a.node {
		delete(g.leaders, a.group)
	}
	if !repeatable(a.req) || g.h.Now() >= a.deadline {
		g.giveUp(a)
		return
	}
	a.open = a.open || !readOnly(a.req)
	g.cfg.Probe.Hit(probe.TriedAgain)
	g.retry(a, retryPause)
}

// PeerDown ends the tries under way at a node.
func (g *Gateway) PeerDown(n model.NodeID) {
	for _, a := range g.sortedAsks() {
		if a.inFlight && a.node == n {
			g.lost(a)
		}
	}
}

func (g *Gateway) finish(a *ask, resp call.Response, err *model.Error) {
	g.drop(a)
	a.then(resp, err)
}

func (g *Gateway) drop(a *ask) {
	if a.pos >= 0 {
		heap.Remove(&g.dues, a.pos)
	}
	delete(g.asks, a.id)
	delete(a.owner.asks, a.id)
}

// withdraw drops an ask without running then.
func (g *Gateway) withdraw(a *ask) {
	if g.asks[a.id] != a {
		return
	}
	if a.inFlight {
		g.h.Withdraw(a.node, a.id)
	}
	g.drop(a)
}

func (g *Gateway) schedule(a *ask) {
	if a.pos >= 0 {
		heap.Fix(&g.dues, a.pos)
		return
	}
	heap.Push(&g.dues, a)
}

// dues orders asks by (due, id).
type dues []*ask

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	return d[i].due < d[j].due || d[i].due == d[j].due && d[i].id < d[j].id
}
func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].pos, d[j].pos = i, j
}
func (d *dues) Push(x any) { a := x.(*ask); a.pos = len(*d); *d = append(*d, a) }
func (d *dues) Pop() any {
	a := (*d)[len(*d)-1]
	(*d)[len(*d)-1] = nil
	*d = (*d)[:len(*d)-1]
	a.pos = -1
	return a
}
