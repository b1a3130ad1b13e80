package subscription

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// stampede is a subscription of many members that all come back at once.
type stampede struct {
	*bench
	owner []model.MemberID // the last each partition had
	moves []int            // to another member, by partition
	idle  []time.Duration  // without an owner that lives, by partition
	alive map[model.MemberID]bool

	// An assignor that deals all partitions out anew whenever the members change.
	eager      []model.MemberID
	eagerMoves []int
	members    string
}

const (
	herd     = 50
	pastures = 200
)

func newStampede(t *testing.T) *stampede {
	b := newBench(t, pastures)
	b.config.MaxMembers, b.machine().config.MaxMembers = 1000, 1000
	s := &stampede{bench: b, alive: map[model.MemberID]bool{}}
	for i := range herd {
		s.alive[model.MemberID(fmt.Sprintf("old%02d", i))] = true
	}
	for range 60 { // the founding is no part of it
		s.step(time.Second)
	}
	s.wantBalance(herd)
	s.deal()
	s.eagerMoves = make([]int, pastures)
	s.owner, s.moves, s.idle = s.owners(), make([]int, pastures), make([]time.Duration, pastures)
	return s
}

// step lets time pass; whoever lives pulls.
func (s *stampede) step(d time.Duration) {
	for _, m := range slices.Sorted(mapsKeys(s.alive)) {
		s.Do(&call.Grant{Target: target(), Member: m})
	}
	s.Settle()
	s.count()
	s.Advance(d)
	s.Settle()
	s.count()
	for p, o := range s.owner {
		if !s.alive[o] && s.idle != nil {
			s.idle[p] += d
		}
	}
}

func (s *stampede) count() {
	if s.moves == nil {
		return
	}
	s.deal()
	for p, o := range s.owners() {
		if o != "" && o != s.owner[p] {
			s.owner[p] = o
			s.moves[p]++
		}
	}
}

// deal is what an eager assignor would do now.
func (s *stampede) deal() {
	list := s.view().Members
	slices.SortFunc(list, func(a, b MemberView) int { return int(a.Joined) - int(b.Joined) })
	if now := fmt.Sprint(list); now == s.members || len(list) == 0 {
		return
	} else {
		s.members = now
	}
	eager := make([]model.MemberID, pastures)
	for p := range eager {
		eager[p] = list[p*len(list)/pastures].ID
		if s.eagerMoves != nil && eager[p] != s.eager[p] {
			s.eagerMoves[p]++
		}
	}
	s.eager = eager
}

// mapsKeys is maps.Keys for a set.
func mapsKeys(m map[model.MemberID]bool) func(yield func(model.MemberID) bool) {
	return func(yield func(model.MemberID) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// restart ends everyone, by a crash or in good order one after the other, while
// their successors come, one every so often.
func (s *stampede) restart(every time.Duration, crash bool) {
	for i := range herd {
		if crash && i == 0 {
			clear(s.alive)
		}
		if old := model.MemberID(fmt.Sprintf("old%02d", i)); !crash {
			delete(s.alive, old)
			s.Do(&call.Leave{Target: target(), Member: old})
		}
		s.alive[model.MemberID(fmt.Sprintf("new%02d", i))] = true
		s.step(every)
	}
	for range 40 {
		s.step(time.Second)
	}
	s.wantBalance(herd)
}

// All members restart at once: no partition changes hands more than twice, and
// none is without a member that lives for much longer than the session timeout. In
// good order, one after the other, nobody stops at all; there the last of those
// who leave may add a third.
func TestStampede(t *testing.T) {
	for _, c := range []struct {
		crash bool
		every time.Duration
		moves int
		idle  time.Duration
	}{
		{true, 20 * time.Millisecond, 2, 11 * time.Second},
		{true, 200 * time.Millisecond, 2, 11 * time.Second},
		{false, 20 * time.Millisecond, 3, 0},
		{false, time.Second, 3, 0},
	} {
		s := newStampede(t)
		s.restart(c.every, c.crash)
		most, idle := slices.Max(s.moves), slices.Max(s.idle)
		t.Logf("crash %v, one each %v: moves %d at most, %.2f on average; without a member %v at most; eager: %d, %.2f",
			c.crash, c.every, most, mean(s.moves), idle, slices.Max(s.eagerMoves), mean(s.eagerMoves))
		if most > c.moves || idle > c.idle {
			t.Errorf("crash %v, one each %v: moves %d, want %d; idle %v, want %v", c.crash, c.every, most, c.moves, idle, c.idle)
		}
	}
}

func mean(list []int) float64 {
	sum := 0
	for _, n := range list {
		sum += n
	}
	return float64(sum) / float64(len(list))
}

// Who comes back under its name within the session timeout gets what it had.
func TestARestartWithinTheSessionMovesNothing(t *testing.T) {
	b := newBench(t, 6)
	for range 3 {
		for _, m := range []model.MemberID{"a", "b", "c"} {
			must[*call.Granted](b, &call.Grant{Target: target(), Member: m, Static: true, PullSequence: 1})
			b.Settle()
		}
	}
	before, generation := b.owners(), b.view().Generation
	b.Advance(9 * time.Second)
	b.Settle()
	for _, m := range []model.MemberID{"c", "a", "b"} {
		must[*call.Granted](b, &call.Grant{Target: target(), Member: m, Static: true, PullSequence: 1})
	}
	b.Advance(9 * time.Second)
	b.Settle()
	if !slices.Equal(before, b.owners()) || b.view().Generation != generation {
		t.Fatalf("%v became %v", before, b.owners())
	}
}
