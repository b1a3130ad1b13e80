package sim

import (
	"time"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/session"
)

// client is one process outside the cluster: it talks to one node until that
// fails it, records what it does, and has random choices of its own.
type client struct {
	run  *run
	id   checker.ClientID
	name string
	rand *stream
	node int
	dead bool // stopped for good: answers are dropped
}

func (r *run) newClient(name string) *client {
	r.clients++
	c := &client{run: r, id: checker.ClientID(r.clients), name: name, rand: newStream(r.w.opts.Seed, "workload "+name)}
	c.node = c.rand.IntN(len(r.w.nodes))
	return c
}

// now is the client's monotonic clock.
func (c *client) now() model.Mono { return model.Mono(c.run.w.loop.now + time.Second) }

// ask makes a recorded call and hands its outcome on. After a failure that may
// be the node's, the next call goes to another one.
func (c *client) ask(q call.Client, timeout time.Duration, done answer) {
	w := c.run.w
	note := c.run.rec.invoke(c.id, q, c.run.partitions(topicOf(q)))
	c.run.operations++
	c.run.rec.open++
	at := w.nodes[c.node]
	w.call(at, q, timeout, func(result call.ClientResult, err *model.Error) {
		c.run.rec.open--
		if c.dead {
			return // the process is gone: nobody got this answer
		}
		note(result, err)
		if err != nil && (err.Code == model.Unavailable || err.Code == model.DeadlineExceeded) && c.node == at.index {
			c.node = c.rand.IntN(len(w.nodes))
		}
		done(result, err)
	})
}

// later runs after a while, unless the client is dead by then.
func (c *client) later(d time.Duration, run func()) {
	c.run.w.loop.after(d, func() {
		if !c.dead {
			run()
		}
	})
}

func topicOf(q call.Client) string {
	switch q := q.(type) {
	case *call.Publish:
		return q.Topic
	case *call.PublishBatch:
		return q.Topic
	}
	return ""
}

// machine is what core/session's producers and consumers have in common.
type machine interface {
	Poll(now model.Mono) []session.Send
	Next() model.Mono
	Done(now model.Mono, id uint64, result call.ClientResult, err *model.Error)
}

// driver carries out a session's requests.
type driver struct {
	*client
	machine
	after func() // what the client does with the session after each change
	armed time.Duration
	on    bool
	busy  bool
}

// pump polls, sends, and comes back when the session asks for it.
func (d *driver) pump() {
	if d.dead || d.busy {
		return
	}
	d.busy = true
	for _, s := range d.Poll(d.now()) {
		d.ask(s.Call, s.Deadline, func(result call.ClientResult, err *model.Error) {
			d.Done(d.now(), s.ID, result, err)
			d.pump()
		})
	}
	if d.after != nil {
		d.after()
	}
	d.busy = false
	d.arm()
}

func (d *driver) arm() {
	next := d.Next()
	if next == model.Never {
		return
	}
	at := max(time.Duration(next)-time.Second, d.run.w.loop.now)
	if d.on && d.armed <= at {
		return
	}
	d.on, d.armed = true, at
	d.run.w.loop.at(at, func() {
		if d.on && d.armed == at {
			d.on = false
			d.pump()
		}
	})
}
