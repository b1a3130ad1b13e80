package live

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/node"
)

func TestASegmentLaneKeepsItsOrderAndNeverRunsTwice(t *testing.T) {
	const lanes, each = 20, 200
	var mu sync.Mutex
	done := map[model.GroupID][]int{}
	busy := map[model.GroupID]bool{}
	k := newKeyed(4, func(then func()) { then() })
	for i := range each {
		for g := range model.GroupID(lanes) {
			k.put(g, func() func() {
				mu.Lock()
				if busy[g] {
					t.Errorf("lane %d runs twice", g)
				}
				busy[g] = true
				mu.Unlock()
				return func() {
					mu.Lock()
					busy[g] = false
					done[g] = append(done[g], i)
					mu.Unlock()
				}
			})
		}
	}
	k.close()
	for g := range model.GroupID(lanes) {
		if len(done[g]) != each {
			t.Fatalf("lane %d did %d of %d", g, len(done[g]), each)
		}
		for i, v := range done[g] {
			if i != v {
				t.Fatalf("lane %d did %d as its number %d", g, v, i)
			}
		}
	}
}

// TestATurnWithoutWorkHarmsNothing: an empty turn once made the journal's lane
// read from the list it was being filled with.
func TestATurnWithoutWorkHarmsNothing(t *testing.T) {
	j := &journalLane{box: newMailbox[*node.JournalWork]()}
	put := func() *node.JournalWork {
		w := &node.JournalWork{}
		j.held = append(j.held, w)
		j.flush()
		return w
	}
	var spare []*node.JournalWork
	for round := range 4 {
		want := put()
		done := 0
		spare, _ = j.turn(spare, func(ws []*node.JournalWork) func() {
			put() // while this write is under way
			for _, w := range ws {
				if w == want {
					done++
				}
			}
			return nil
		}, nil)
		if done != 1 {
			t.Fatalf("round %d: the work was done %d times", round, done)
		}
		for range 2 { // what came meanwhile, then nothing
			spare, _ = j.turn(spare, func([]*node.JournalWork) func() { return nil }, nil)
		}
	}
}

func TestAPoolOfOneKeepsItsOrder(t *testing.T) {
	var got []int
	p := newPool(1, func(then func()) { then() })
	for i := range 100 {
		p.put(func() func() { return func() { got = append(got, i) } })
	}
	p.close()
	for i, v := range got {
		if i != v {
			t.Fatalf("%d came as number %d", v, i)
		}
	}
	if len(got) != 100 {
		t.Fatalf("%d of 100 were done", len(got))
	}
}

// TestStepsShareAJournalWrite holds the journal's first write until many more
// steps have queued theirs: the next write must take them all.
func TestStepsShareAJournalWrite(t *testing.T) {
	const steps = 50
	first, free := make(chan struct{}), make(chan struct{})
	sizes := make(chan int, steps+1)
	h := &fakeHost{}
	h.do = func(ws []*node.JournalWork) func() {
		sizes <- len(ws)
		select {
		case <-first:
		default:
			close(first)
			<-free
		}
		return nil
	}
	var asked sync.WaitGroup
	h.work = func(env node.Env, ev core.Event) {
		if r, ok := ev.(core.Request); ok {
			if _, ok := r.Call.(*call.Ack); ok {
				env.RunJournal(&node.JournalWork{})
				env.Reply(r.ID, &call.AckCallResult{}, nil)
			}
		}
	}
	n := startFake(t, h)
	ask := func() { _, _ = n.ask(t.Context(), &call.Ack{}, 0) }
	ask()
	<-first
	for range steps {
		asked.Go(ask)
	}
	asked.Wait()
	close(free)
	if got := <-sizes; got != 1 {
		t.Fatalf("the first write took %d steps", got)
	}
	if got := <-sizes; got != steps {
		t.Fatalf("the second write took %d steps, not all %d that waited", got, steps)
	}
}

func TestAFailedJournalEndsTheNode(t *testing.T) {
	h := &fakeHost{}
	h.answer = func(core.Request) (call.ClientResult, *model.Error) {
		h.env.Fatal(fmt.Errorf("the disk is gone"))
		return nil, nil
	}
	n := startFake(t, h)
	answered := make(chan *model.Error, 1)
	go func() {
		_, err := n.ask(t.Context(), &call.Ack{}, 0)
		answered <- err
	}()
	<-n.Failed()
	if n.Failure() == nil {
		t.Fatal("no cause is given")
	}
	n.Kill()
	if err := <-answered; err == nil || err.Code != model.Unavailable {
		t.Fatalf("who waited got %v", err)
	}
}

func TestAFullInboxThrottlesRequestsAndDropsPackets(t *testing.T) {
	held, enter := make(chan struct{}), make(chan struct{}, 1)
	h := &fakeHost{}
	h.answer = func(core.Request) (call.ClientResult, *model.Error) {
		enter <- struct{}{}
		<-held
		return &call.Empty{}, nil
	}
	n := startFake(t, h)
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = n.ask(t.Context(), &call.Ack{}, 0) })
	<-enter
	n.loop.requests.Add(maxInboxRequests)
	if _, err := n.ask(t.Context(), &call.Ack{}, 0); err == nil || err.Reason != model.ReasonThrottled {
		t.Errorf("beyond the limit: %v", err)
	}
	n.loop.requests.Add(-maxInboxRequests)
	for range 2*maxInboxPacketBytes>>20 + 2 {
		n.loop.deliver("n2", make([]byte, 1<<20))
	}
	if got := n.loop.dropped.Load(); got < maxInboxPacketBytes>>20 {
		t.Errorf("%d packets were dropped", got)
	}
	if got := n.loop.packetBytes.Load(); got > maxInboxPacketBytes {
		t.Errorf("%d bytes wait", got)
	}
	close(held)
	waiting.Wait()
}
