package sim

import "time"

// event is something that happens at a moment of virtual time.
type event struct {
	at  time.Duration
	seq uint64 // breaks ties: first scheduled, first run
	run func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// loop is the heap of what is to come. Invariant: now never decreases, and no
// event runs before its moment.
type loop struct {
	now  time.Duration
	seq  uint64
	heap []event
	ran  uint64
}

// after schedules run d from now; a negative d counts as 0.
func (l *loop) after(d time.Duration, run func()) { l.at(l.now+max(d, 0), run) }

func (l *loop) at(t time.Duration, run func()) {
	l.seq++
	e := event{at: max(t, l.now), seq: l.seq, run: run}
	h := append(l.heap, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
	l.heap = h
}

// next takes the earliest event off, or says that there is none.
func (l *loop) next() (event, bool) {
	if len(l.heap) == 0 {
		return event{}, false
	}
	h := l.heap
	top, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = last
	}
	l.heap = h
	return top, true
}

// step runs the earliest event, unless it lies after limit.
func (l *loop) step(limit time.Duration) bool {
	if len(l.heap) == 0 || l.heap[0].at > limit {
		l.now = max(l.now, limit)
		return false
	}
	e, _ := l.next()
	l.now = e.at
	l.ran++
	e.run()
	return true
}
