package subscription

import (
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

// maxShifts is how often a partition changes hands within a session timeout before
// it stays where it is, as long as its holder lives: when many members restart at
// once, each of them would otherwise take what the one before has just got.
const maxShifts = 2

// shift is how often a partition changed hands lately. A failover forgets it.
type shift struct {
	count int
	last  model.Mono
}

// shifted counts the changes of hands of which the last is less than a session
// timeout ago.
func (ls *leadSubscription) shifted(p int, now model.Mono, session time.Duration) int {
	if p >= len(ls.shifts) || now >= ls.shifts[p].last.Add(session) {
		return 0
	}
	return ls.shifts[p].count
}

func (ls *leadSubscription) noteShift(p int, now model.Mono, session time.Duration) {
	n := ls.shifted(p, now, session)
	for p >= len(ls.shifts) {
		ls.shifts = append(ls.shifts, shift{})
	}
	ls.shifts[p] = shift{n + 1, now}
}

// calm ranks a partition that may be given up behind those that changed hands
// less often, and keeps back one that did so too often for now.
func (ls *leadSubscription) calm(p int, rank int, now model.Mono, session time.Duration) int {
	n := ls.shifted(p, now, session)
	switch {
	case rank == mayNotGive || rank == alreadyGiving:
		return rank
	case n >= maxShifts:
		ls.settleAt = min(ls.settleAt, ls.shifts[p].last.Add(session))
		return mayNotGive
	}
	return rank + n*ranks
}
