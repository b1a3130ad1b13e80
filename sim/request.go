package sim

import (
	"bytes"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// answer takes a call's outcome. It runs once.
type answer func(result call.ClientResult, err *model.Error)

// request is one client call on its way to a node and back.
type request struct {
	w       *World
	id      uint64
	node    *simNode
	timeout time.Duration
	done    answer // nil once the client knows, or has given up
}

// call sends a client's call to a node over a link with delay and loss. The
// client waits for timeout at most: then the outcome is unknown to it.
func (w *World) call(n *simNode, c call.Client, timeout time.Duration, done answer) *request {
	w.request++
	r := &request{w: w, id: w.request, node: n, timeout: timeout, done: done}
	o := &w.opts.Network
	c = copyCall(c)
	d, lost := w.links.near(o.ClientMinDelay, o.ClientMaxDelay), w.links.hit(o.ClientLossOfRequest)
	w.trace.note(w.loop.now, n.index, kindClient, r.id)
	if !lost {
		w.loop.after(d, func() { r.arrive(c) })
	}
	w.loop.after(timeout, func() {
		if r.done != nil {
			r.finish(nil, model.Reasoned(model.DeadlineExceeded, model.ReasonUnknownOutcome, 0,
				"no answer within %v", timeout))
			r.cancel()
		}
	})
	return r
}

// finish tells the client.
func (r *request) finish(result call.ClientResult, err *model.Error) {
	if done := r.done; done != nil {
		r.done = nil
		r.w.trace.note(r.w.loop.now, r.node.index, kindReply, digestResult(result, err))
		done(result, err)
	}
}

func (r *request) arrive(c call.Client) {
	n := r.node
	if !n.up {
		d := r.w.links.near(r.w.opts.Network.ClientMinDelay, r.w.opts.Network.ClientMaxDelay)
		r.w.loop.after(d, func() {
			r.finish(nil, model.Errorf(model.Unavailable, "connection to %s refused", n.id))
		})
		return
	}
	n.live(func() {
		n.pending[r.id] = r
		deadline := n.Now().Mono.Add(r.timeout)
		n.enter(kindRequest, r.id, func() {
			n.host.Step(core.Request{ID: r.id, Call: c, Deadline: deadline})
		})
	})()
}

// reply carries the node's answer back, if the link does not lose it.
func (r *request) reply(result call.ClientResult, err *model.Error) {
	o := &r.w.opts.Network
	d, lost := r.w.links.near(o.ClientMinDelay, o.ClientMaxDelay), r.w.links.hit(o.ClientLossOfReply)
	if lost {
		return
	}
	result = copyResult(result)
	r.w.loop.after(d, func() { r.finish(result, err) })
}

// cancel tells the node that nobody waits any more, as a closed connection does.
func (r *request) cancel() {
	n := r.node
	if !n.up {
		return
	}
	o := &r.w.opts.Network
	r.w.loop.after(r.w.links.near(o.ClientMinDelay, o.ClientMaxDelay), n.live(func() {
		if n.pending[r.id] != nil {
			delete(n.pending, r.id)
			n.enter(kindRequest, r.id, func() { n.host.Step(core.Cancel{ID: r.id}) })
		}
	}))
}

// failPending tells the clients of a crashed node that their connections broke.
func (n *simNode) failPending() {
	ids := make([]uint64, 0, len(n.pending))
	for id := range n.pending {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		r := n.pending[id]
		o := &n.w.opts.Network
		n.w.loop.after(n.w.links.near(o.ClientMinDelay, o.ClientMaxDelay), func() {
			r.finish(nil, model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, 0,
				"connection to %s broke", n.id))
		})
	}
	n.pending = nil
}

// copyCall copies the bytes that the gateway will own, as the wire would.
func copyCall(c call.Client) call.Client {
	switch c := c.(type) {
	case *call.PublishBatch:
		d := *c
		d.Batch = bytes.Clone(c.Batch)
		return &d
	case *call.Publish:
		d := *c
		d.Messages = slices.Clone(c.Messages)
		return &d
	}
	return c
}

// copyResult copies the bytes that belong to the node, as the wire would.
func copyResult(result call.ClientResult) call.ClientResult {
	switch r := result.(type) {
	case *call.FetchResult:
		d := *r
		d.Batches = copyBatches(r.Batches)
		return &d
	case *call.PullResult:
		d := *r
		d.Ranges = slices.Clone(r.Ranges)
		for i := range d.Ranges {
			d.Ranges[i].Batches = copyBatches(d.Ranges[i].Batches)
		}
		return &d
	}
	return result
}

func copyBatches(vs []batch.View) []batch.View {
	out := make([]batch.View, len(vs))
	for i, v := range vs {
		out[i] = v.Clone()
	}
	return out
}
