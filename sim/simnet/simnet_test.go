package simnet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

// world is a tiny event loop that notes deliveries.
type world struct {
	now   time.Duration
	queue []struct {
		at  time.Duration
		run func()
	}
	got  []string
	down []string
}

func (w *world) Now() time.Duration { return w.now }
func (w *world) After(d time.Duration, run func()) {
	w.queue = append(w.queue, struct {
		at  time.Duration
		run func()
	}{w.now + d, run})
}
func (w *world) Deliver(from, to model.NodeID, data []byte) {
	w.got = append(w.got, fmt.Sprintf("%s>%s %s", from, to, data))
}
func (w *world) Down(at, peer model.NodeID) { w.down = append(w.down, string(at)+"-"+string(peer)) }

func (w *world) run() {
	for len(w.queue) > 0 {
		first := 0
		for i := range w.queue {
			if w.queue[i].at < w.queue[first].at {
				first = i
			}
		}
		e := w.queue[first]
		w.queue = slices.Delete(w.queue, first, first+1)
		w.now = e.at
		e.run()
	}
}

func setUp(o Options) (*world, *Net) {
	w := &world{}
	return w, New(o, w, rand.New(rand.NewPCG(1, 2)))
}

func TestInOrderAndCopied(t *testing.T) {
	w, n := setUp(Options{MinDelay: time.Millisecond, MaxDelay: time.Second})
	var want []string
	buf := []byte("packet 00")
	for i := range 50 {
		copy(buf[7:], fmt.Sprintf("%02d", i))
		n.Send("a", "b", buf)
		want = append(want, "a>b "+string(buf))
	}
	clear(buf)
	w.run()
	if !slices.Equal(w.got, want) {
		t.Errorf("got %q", w.got)
	}
}

func TestCutLosesWhatIsInFlight(t *testing.T) {
	w, n := setUp(Options{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
	n.Send("a", "b", []byte("1"))
	n.Cut("a", "b")
	n.Send("a", "b", []byte("2"))
	n.Send("b", "a", []byte("3"))
	w.run()
	if !slices.Equal(w.got, []string{"b>a 3"}) || len(w.down) != 2 {
		t.Errorf("got %q, down %q", w.got, w.down)
	}
	n.Heal("a", "b")
	n.Send("a", "b", []byte("4"))
	w.run()
	if !slices.Equal(w.got, []string{"b>a 3", "a>b 4"}) {
		t.Errorf("after healing got %q", w.got)
	}
}

func TestHoldKeepsOrder(t *testing.T) {
	w, n := setUp(Options{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
	n.Send("a", "b", []byte("1"))
	n.Hold("a", "b")
	n.Send("a", "b", []byte("2"))
	w.run()
	if len(w.got) != 0 || n.Held("a", "b") != 2 {
		t.Fatalf("got %q, held %d", w.got, n.Held("a", "b"))
	}
	n.Release("a", "b")
	w.run()
	if len(w.got) != 2 {
		t.Errorf("got %q", w.got)
	}
}

func TestWeather(t *testing.T) {
	w, n := setUp(Options{MinDelay: time.Millisecond, MaxDelay: 9 * time.Millisecond, Loss: 1000, Duplicate: 1000,
		Reorder: 2000})
	for i := range 1000 {
		n.Send("a", "b", fmt.Appendf(nil, "%03d", i))
	}
	w.run()
	if s := n.Stats; s.Lost == 0 || s.Duplicated == 0 || s.Reordered == 0 || s.Delivered != 1000-s.Lost+s.Duplicated {
		t.Errorf("%+v", s)
	}
	if slices.IsSorted(w.got) {
		t.Error("nothing was overtaken")
	}
}
