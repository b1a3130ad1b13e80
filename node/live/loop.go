package live

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/node"
)

// Bounds of the inbox and of one turn of the loop.
const (
	maxInboxRequests    = 10_000
	maxInboxPacketBytes = 64 << 20
	// maxTurn is how many items are taken up before journal work is passed on.
	maxTurn = 256
)

// host is what the loop needs of node.Host.
type host interface {
	Start(env node.Env)
	Step(ev core.Event)
	Tick()
	DoJournal(ws []*node.JournalWork) (then func())
	Shard() *core.Shard
	Close() error
}

// request is a call on its way through the shard. Between do and the close of
// done the loop owns id and the answer.
type request struct {
	call      call.Client
	principal string
	deadline  model.Mono

	id     uint64 // given by the loop; 0: not yet seen
	result call.ClientResult
	err    *model.Error
	done   chan struct{} // closed once result and err are there
}

// item is one thing in the inbox; exactly one field is set.
type item struct {
	then   func()
	event  core.Event
	req    *request
	cancel *request
}

// loop owns the shard: its goroutine alone steps the host.
type loop struct {
	host    host
	inbox   *mailbox[item]
	journal *journalLane
	segment *keyed
	read    *pool
	check   *pool
	send    func(to model.NodeID, packet []byte)
	fail    func(error) // called once or more, on the loop's goroutine

	began  time.Time
	now    model.Instant
	timer  *time.Timer
	calls  map[uint64]*request
	lastID uint64
	dead   bool          // Fatal was called: nothing is stepped any more
	stop   chan struct{} // closed to end run
	ended  chan struct{} // closed when run has returned

	requests    atomic.Int64 // waiting in the inbox
	packetBytes atomic.Int64 // waiting in the inbox
	dropped     atomic.Int64 // packets refused by a full inbox
	pending     atomic.Int64 // requests under way
	steps       atomic.Int64
}

func newLoop(h host, send func(model.NodeID, []byte), fail func(error)) *loop {
	l := &loop{
		host: h, send: send, fail: fail,
		inbox: newMailbox[item](),
		began: time.Now().Add(-time.Second),
		timer: time.NewTimer(time.Hour),
		calls: map[uint64]*request{},
		stop:  make(chan struct{}),
		ended: make(chan struct{}),
	}
	l.journal = &journalLane{box: newMailbox[*node.JournalWork]()}
	l.segment = newKeyed(segmentWorkers, l.post)
	l.read = newPool(readWorkers, l.post)
	l.check = newPool(1, l.post)
	return l
}

// clock is this moment on both clocks.
func (l *loop) clock() model.Instant {
	t := time.Now()
	return model.Instant{Mono: model.Mono(t.Sub(l.began)), Wall: model.Wall(t.UnixNano())}
}

// post hands a continuation back to the loop.
func (l *loop) post(then func()) { l.inbox.put(item{then: then}) }

// run starts the shard and steps it until stop. The lanes run until closeLanes.
func (l *loop) run() {
	defer close(l.ended)
	journaled := make(chan struct{})
	go func() { defer close(journaled); l.journal.run(l.host.DoJournal, l.post) }()
	defer func() { l.journal.box.close(); <-journaled }()

	l.now = l.clock()
	l.host.Start(l)
	l.journal.flush()
	var spare []item
	for {
		select {
		case <-l.stop:
			return
		case <-l.timer.C:
			l.now = l.clock()
			l.host.Tick()
			l.steps.Add(1)
			if l.dead {
				return
			}
		case <-l.inbox.wake:
		}
		items, _ := l.inbox.take(spare)
		for i := range items {
			if i%maxTurn == maxTurn-1 {
				l.journal.flush()
			}
			if l.takeUp(&items[i]); l.dead {
				return
			}
		}
		l.journal.flush()
		clear(items)
		spare = items
	}
}

func (l *loop) takeUp(it *item) {
	l.now = l.clock()
	l.steps.Add(1)
	switch {
	case it.then != nil:
		it.then()
	case it.req != nil:
		l.requests.Add(-1)
		l.lastID++
		it.req.id = l.lastID
		l.calls[it.req.id] = it.req
		l.pending.Add(1)
		l.host.Step(core.Request{
			ID: it.req.id, Principal: it.req.principal, Call: it.req.call, Deadline: it.req.deadline,
		})
	case it.cancel != nil:
		if l.calls[it.cancel.id] == it.cancel {
			l.forget(it.cancel.id)
			l.host.Step(core.Cancel{ID: it.cancel.id})
		}
	default:
		if p, ok := it.event.(core.Packet); ok {
			l.packetBytes.Add(-int64(len(p.Data)))
		}
		l.host.Step(it.event)
	}
}

func (l *loop) forget(id uint64) {
	delete(l.calls, id)
	l.pending.Add(-1)
}

// closeLanes ends the loop and waits until no lane works any more. What was
// waiting for an answer is answered UNAVAILABLE.
func (l *loop) closeLanes() {
	close(l.stop)
	<-l.ended
	l.segment.close()
	l.read.close()
	l.check.close()
	for _, r := range l.calls {
		r.err = unknownOutcome()
		close(r.done)
	}
	items, _ := l.inbox.take(nil)
	for _, it := range items {
		if it.req != nil {
			it.req.err = stopping()
			close(it.req.done)
		}
	}
}

// deliver hands a packet in; it is dropped when too much is waiting.
func (l *loop) deliver(from model.NodeID, packet []byte) {
	if l.packetBytes.Add(int64(len(packet))) > maxInboxPacketBytes {
		l.packetBytes.Add(-int64(len(packet)))
		l.dropped.Add(1)
		return
	}
	l.inbox.put(item{event: core.Packet{From: from, Data: packet}})
}

func (l *loop) event(ev core.Event) { l.inbox.put(item{event: ev}) }

// inspect runs f on the loop's goroutine and waits for it; false: the loop has ended.
func (l *loop) inspect(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	l.post(func() { f(); close(done) })
	select {
	case <-done:
		return true
	case <-l.ended:
	case <-ctx.Done():
	}
	return false
}

// Now implements node.Env.
func (l *loop) Now() model.Instant { return l.now }

// Run implements node.Env.
func (l *loop) Run(on node.Lane, work node.Work) {
	switch on.Kind {
	case node.LaneSegment:
		l.segment.put(on.Group, work)
	case node.LaneRead:
		l.read.put(work)
	default:
		l.check.put(work)
	}
}

// RunJournal implements node.Env.
func (l *loop) RunJournal(w *node.JournalWork) { l.journal.held = append(l.journal.held, w) }

// Wake implements node.Env.
func (l *loop) Wake(at model.Mono) {
	if at == model.Never {
		l.timer.Stop()
		return
	}
	l.timer.Reset(max(0, at.Sub(l.clock().Mono)))
}

// Send implements node.Env.
func (l *loop) Send(to model.NodeID, packet []byte) { l.send(to, packet) }

// Reply implements node.Env.
func (l *loop) Reply(id uint64, result call.ClientResult, err *model.Error) {
	r := l.calls[id]
	if r == nil {
		return
	}
	l.forget(id)
	r.result, r.err = result, err
	close(r.done)
}

// Fatal implements node.Env.
func (l *loop) Fatal(err error) {
	l.dead = true
	l.fail(err)
}
