package sim

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

func TestLoopRunsInOrderOfTimeThenSequence(t *testing.T) {
	var l loop
	s := newStream(1, "test")
	type done struct {
		at    time.Duration
		order int
	}
	var got []done
	for i := range 500 {
		at := s.between(0, 20)
		l.at(at, func() { got = append(got, done{l.now, i}) })
	}
	for l.step(10) {
	}
	if l.now != 10 {
		t.Fatalf("now is %d after running up to 10", l.now)
	}
	for l.step(100) {
	}
	if len(got) != 500 {
		t.Fatalf("%d of 500 events ran", len(got))
	}
	for i := 1; i < len(got); i++ {
		a, b := got[i-1], got[i]
		if b.at < a.at || b.at == a.at && b.order < a.order {
			t.Fatalf("event %v ran after %v", b, a)
		}
	}
}

func TestClockUntilIsTheFirstMoment(t *testing.T) {
	s := newStream(2, "test")
	for range 2000 {
		c := newClock(s.between(-time.Hour, time.Hour), s.Int64N(10_001)-5000)
		now := s.between(0, time.Minute)
		c.boot(now, model.Mono(s.Int64N(int64(time.Hour))))
		m := c.at(now).Mono.Add(s.between(0, time.Minute))
		at := c.until(m)
		if at < now {
			t.Fatalf("until is %v before the boot at %v", at, now)
		}
		if got := c.at(at).Mono; got < m {
			t.Fatalf("at %v the clock says %d, not yet %d", at, got, m)
		}
		if at > now && c.at(at-2).Mono >= m {
			t.Fatalf("the clock says %d already before %v", m, at)
		}
	}
}

func TestStreamsAreIndependent(t *testing.T) {
	a, b := newStream(7, "network"), newStream(7, "disks")
	again := newStream(7, "network")
	same := 0
	for range 100 {
		x := a.Uint64()
		if x == b.Uint64() {
			same++
		}
		if x != again.Uint64() {
			t.Fatal("one name gives two streams")
		}
	}
	if same > 0 {
		t.Errorf("%d of 100 draws of two streams are equal", same)
	}
}
