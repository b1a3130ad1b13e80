package live

import (
	"sync"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/node"
)

// workers of each kind of lane.
const (
	segmentWorkers = 4
	readWorkers    = 4
)

// mailbox is an unbounded list that one goroutine takes from. Whoever puts
// bounds what is put.
type mailbox[T any] struct {
	mu     sync.Mutex
	items  []T
	closed bool
	wake   chan struct{} // has an element while items may be there or closed was set
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{wake: make(chan struct{}, 1)}
}

func (m *mailbox[T]) put(v T) {
	m.mu.Lock()
	m.items = append(m.items, v)
	m.mu.Unlock()
	m.signal()
}

func (m *mailbox[T]) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// close lets the taker end once everything put before is taken.
func (m *mailbox[T]) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.signal()
}

// take swaps the list for an empty one that reuses spare, which must be what the
// previous take returned, empty or not: the mailbox has the other one. It does
// not wait.
func (m *mailbox[T]) take(spare []T) (items []T, closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	items = m.items
	m.items = spare[:0]
	return items, m.closed
}

// journalLane gathers steps' journal work and hands it over together.
type journalLane struct {
	box *mailbox[*node.JournalWork]
	// held is what the loop queued since its last flush; touched by the loop only.
	held []*node.JournalWork
}

// flush passes on what was held: the loop calls it after each run of steps, so
// that their writes share a sync even when the disk is idle.
func (j *journalLane) flush() {
	if len(j.held) == 0 {
		return
	}
	j.box.mu.Lock()
	j.box.items = append(j.box.items, j.held...)
	j.box.mu.Unlock()
	j.box.signal()
	clear(j.held)
	j.held = j.held[:0]
}

// run is the lane's goroutine.
func (j *journalLane) run(do func([]*node.JournalWork) func(), post func(func())) {
	var spare []*node.JournalWork
	for range j.box.wake {
		var closed bool
		if spare, closed = j.turn(spare, do, post); closed {
			return
		}
	}
}

// turn does what is queued, and returns the list to pass to the next turn.
func (j *journalLane) turn(
	spare []*node.JournalWork, do func([]*node.JournalWork) func(), post func(func()),
) (_ []*node.JournalWork, closed bool) {
	items, closed := j.box.take(spare)
	if len(items) > 0 {
		if then := do(items); then != nil {
			post(then)
		}
		clear(items)
	}
	return items, closed
}

// keyed runs work on a fixed number of workers, in order per group and never two
// of one group at a time.
type keyed struct {
	mu     sync.Mutex
	ready  sync.Cond
	lanes  map[model.GroupID]*lane // lanes with work waiting or under way
	queue  []*lane                 // lanes with work waiting and none under way
	closed bool
	done   sync.WaitGroup
	post   func(func())
}

type lane struct {
	group model.GroupID
	work  []node.Work
}

func newKeyed(workers int, post func(func())) *keyed {
	k := &keyed{lanes: map[model.GroupID]*lane{}, post: post}
	k.ready.L = &k.mu
	for range workers {
		k.done.Go(k.run)
	}
	return k
}

func (k *keyed) put(group model.GroupID, w node.Work) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lanes[group]
	if l == nil {
		l = &lane{group: group}
		k.lanes[group] = l
		k.queue = append(k.queue, l)
		k.ready.Signal()
	}
	l.work = append(l.work, w)
}

func (k *keyed) run() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		for len(k.queue) == 0 {
			if k.closed {
				return
			}
			k.ready.Wait()
		}
		l := k.queue[0]
		k.queue = k.queue[1:]
		work := l.work
		l.work = nil
		k.mu.Unlock()
		for _, w := range work {
			if then := w(); then != nil {
				k.post(then)
			}
		}
		k.mu.Lock()
		if len(l.work) == 0 {
			delete(k.lanes, l.group)
			continue
		}
		k.queue = append(k.queue, l)
		k.ready.Signal()
	}
}

// close waits until everything queued is done. Nothing may be put any more.
func (k *keyed) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.ready.Broadcast()
	k.done.Wait()
}

// pool runs work in the order put on a fixed number of workers: with one of
// them, one after the other.
type pool struct {
	mu     sync.Mutex
	ready  sync.Cond
	queue  []node.Work
	closed bool
	done   sync.WaitGroup
}

func newPool(workers int, post func(func())) *pool {
	p := &pool{}
	p.ready.L = &p.mu
	for range workers {
		p.done.Go(func() { p.run(post) })
	}
	return p
}

func (p *pool) put(w node.Work) {
	p.mu.Lock()
	p.queue = append(p.queue, w)
	p.mu.Unlock()
	p.ready.Signal()
}

func (p *pool) run(post func(func())) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.queue) == 0 {
			if p.closed {
				return
			}
			p.ready.Wait()
		}
		w := p.queue[0]
		p.queue[0] = nil
		if p.queue = p.queue[1:]; len(p.queue) == 0 {
			p.queue = nil
		}
		p.mu.Unlock()
		if then := w(); then != nil {
			post(then)
		}
		p.mu.Lock()
	}
}

// close waits until everything queued is done. Nothing may be put any more.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.ready.Broadcast()
	p.done.Wait()
}
