package partition

import (
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// A producer has several batches under way, each on a connection of its own, and
// they overtake each other. One that arrives before its predecessor is kept for a
// moment rather than refused: a refusal would cost the producer a round trip and
// all its pipelining until the order is restored.

const (
	// earlyWait is how long a batch waits for what comes before it: longer than a
	// busy machine takes to bring it, shorter than a gateway waits for an answer.
	earlyWait = 300 * time.Millisecond
	// maxEarly bounds the batches of one producer that wait.
	maxEarly = model.ProducerMemory / 2
	// maxAllEarly and maxEarlyBytes bound those of all producers of the partition.
	maxAllEarly   = 512
	maxEarlyBytes = 16 << 20
)

// early is a batch that waits for its predecessor. until is not below that of
// any batch that came before.
type early struct {
	ref   group.Ref
	view  batch.View
	start bool
	until model.Mono
}

// keep holds a batch back, if there is room.
func (l *leader) keep(now model.Mono, ref group.Ref, v batch.View, start bool) bool {
	if l.earlyBytes+len(v) > maxEarlyBytes || len(l.early) >= maxAllEarly {
		return false
	}
	same := 0
	for i := range l.early {
		if l.early[i].view.Producer() == v.Producer() {
			same++
		}
	}
	if same >= maxEarly {
		return false
	}
	l.early = append(l.early, early{ref, v, start, now.Add(earlyWait)})
	l.earlyBytes += len(v)
	return true
}

// release takes a batch that was kept out.
func (l *leader) release(i int) early {
	e := l.early[i]
	l.earlyBytes -= len(e.view)
	l.early = slices.Delete(l.early, i, i+1)
	return e
}

// dueEarly finds a producer's batch that need not wait any more: its turn has come,
// or it will never come.
func (l *leader) dueEarly(s *state, id model.ProducerID) (early, bool) {
	for i := range l.early {
		if e := &l.early[i]; e.view.Producer() == id {
			if f := fitOf(l.standing(s, id), e.view, e.start); f != fitGap && f != fitUnknown {
				return l.release(i), true
			}
		}
	}
	return early{}, false
}

// follow takes up what waited for a producer's batch.
func (m *Machine) follow(h group.Host, id model.ProducerID) {
	for m.lead != nil && len(m.lead.early) > 0 {
		e, ok := m.lead.dueEarly(&m.st, id)
		if !ok {
			return
		}
		group.Hit(h, probe.BatchFollows)
		m.admit(h, e.ref, &call.Append{Batch: e.view, Start: e.start}, false)
	}
}

// expireEarly answers those whose predecessor did not come.
func (m *Machine) expireEarly(h group.Host) {
	for l := m.lead; len(l.early) > 0 && l.early[0].until <= h.Now(); {
		e := l.release(0)
		group.Hit(h, probe.BatchWaitedInVain)
		m.admit(h, e.ref, &call.Append{Batch: e.view, Start: e.start}, false)
	}
}

// dropEarly answers all of them when leadership ends: nothing of them was proposed.
func (l *leader) dropEarly(h group.Host) {
	for i := range l.early {
		h.Reply(l.early[i].ref, nil, h.NotLeader())
	}
	l.early, l.earlyBytes = nil, 0
}
