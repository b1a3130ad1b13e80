package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/client/sqlstore"
)

// seeds is how often each step is crashed at.
var seeds = flag.Int("seeds", 1000, "crashes at each step")

// step is where a member crashes, or is held up, with one message.
type step int

const (
	beforeTransaction step = iota
	transactionBegun       // the row was moved, the effect is not there
	effectDone             // before the commit
	committed              // before the ack
	acked
	steps
)

func (s step) String() string {
	return [...]string{"before the transaction", "inside, before the effect", "inside, after the effect",
		"after the commit, before the ack", "after the ack"}[s]
}

// died is what a handler of a crashed process panics with.
type died struct{}

// process applies a queue of one owner and dies at a step of the message numbered
// at. Acks are gathered, so that the broker's cursor may be behind by several.
func (w *world) process(member string, queue []*client.Message, at int, where step) {
	var unacked []*client.Message
	flush := func() {
		for _, m := range unacked {
			w.b.ack(m)
		}
		unacked = nil
	}
	for i, m := range queue {
		die := i == at
		if die && where == beforeTransaction {
			w.crash()
			return
		}
		if w.applyOrDie(member, m, die, where) {
			return
		}
		if die && where == committed {
			w.crash()
			return
		}
		unacked = append(unacked, m)
		if die && where == acked || w.rng.IntN(3) == 0 {
			flush()
		}
		if die {
			w.crash()
			return
		}
	}
	flush()
}

// applyOrDie says whether the process died inside the transaction.
func (w *world) applyOrDie(member string, m *client.Message, die bool, where step) (dead bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(died); !ok {
				panic(p)
			}
			dead = true
		}
	}()
	_, err := w.store.Apply(w.t.Context(), m, func(ctx context.Context, tx *sql.Tx, m *client.Message) error {
		if die && where == transactionBegun {
			w.crash()
			panic(died{})
		}
		if err := effect(member)(ctx, tx, m); err != nil {
			return err
		}
		if die && where == effectDone {
			w.crash()
			panic(died{})
		}
		return nil
	})
	if err != nil {
		w.t.Fatalf("%s: %v", w.name, err)
	}
	return false
}

// TestCrashAtEachStep: one to three owners in a row die at the step, each with the
// database's files as they are at that moment; the next one finishes.
func TestCrashAtEachStep(t *testing.T) {
	for where := range steps {
		t.Run(where.String(), func(t *testing.T) {
			deaths := 0
			for seed := range uint64(*seeds) {
				w := newWorld(t, fmt.Sprintf("seed %d", seed), seed)
				for n := range 1 + w.rng.IntN(3) {
					if queue := w.b.take(w.rng); len(queue) > 0 {
						w.process(fmt.Sprint("dying ", n), queue, w.rng.IntN(len(queue)), where)
						w.check(false)
					}
				}
				deaths += w.crashes
				w.process("last", w.b.take(w.rng), -1, where)
				w.check(true)
				w.close()
			}
			if deaths < *seeds {
				t.Fatalf("only %d crashes in %d runs", deaths, *seeds)
			}
			t.Logf("%d crashes", deaths)
		})
	}
}

// owner is a member that works through its queue one message at a time.
type owner struct {
	name    string
	queue   []*client.Message
	applied []*client.Message // and not acked
}

// advance does one thing of an owner: apply a message, or ack what was applied.
// What is fenced leaves with the rest of its partition. It is false when nothing
// is left to do. What is to happen meanwhile, inside the transaction before or
// after the effect, is done there; with an error the owner is never heard of again.
func (w *world) advance(o *owner, where step, meanwhile func() error) bool {
	w.t.Helper()
	if len(o.queue) == 0 || len(o.applied) > 0 && w.rng.IntN(2) == 0 {
		for _, m := range o.applied {
			w.b.ack(m)
		}
		done := len(o.applied) > 0 || len(o.queue) > 0
		o.applied = nil
		return done
	}
	m := o.queue[0]
	o.queue = o.queue[1:]
	_, err := w.store.Apply(w.t.Context(), m, func(ctx context.Context, tx *sql.Tx, m *client.Message) error {
		if meanwhile != nil && where == transactionBegun {
			if err := meanwhile(); err != nil {
				return err
			}
		}
		if err := effect(o.name)(ctx, tx, m); err != nil || meanwhile == nil || where != effectDone {
			return err
		}
		return meanwhile()
	})
	switch {
	case errors.Is(err, errOutage):
		o.queue, o.applied = nil, nil
	case err == nil:
		o.applied = append(o.applied, m)
	case errors.Is(err, sqlstore.ErrFenced):
		kept := o.queue[:0:0]
		for _, other := range o.queue {
			if other.Partition != m.Partition {
				kept = append(kept, other)
			}
		}
		o.queue = kept
	default:
		w.t.Fatalf("%s: %s: %v", w.name, o.name, err)
	}
	return true
}

// TestTakeoverAtEachStep: the owner is held up at the step and another takes over
// and does some or all of the work; then the late one goes on, side by side with
// the new one, and at the end comes back as an owner.
func TestTakeoverAtEachStep(t *testing.T) {
	for where := range steps {
		t.Run(where.String(), func(t *testing.T) {
			for seed := range uint64(*seeds) {
				w := newWorld(t, fmt.Sprintf("seed %d", seed), seed)
				w.takeover(where)
				w.close()
			}
		})
	}
}

func (w *world) takeover(where step) {
	late := &owner{name: "late", queue: w.b.take(w.rng)}
	for range w.rng.IntN(2 * len(late.queue)) {
		w.advance(late, where, nil)
	}
	heir := &owner{name: "heir"}
	inherit := func() {
		heir.queue = w.b.take(w.rng)
		if where == beforeTransaction || where == committed {
			for range w.rng.IntN(2*len(heir.queue) + 1) {
				w.advance(heir, where, nil)
			}
		}
	}
	switch {
	case len(late.queue) > 0 && (where == transactionBegun || where == effectDone):
		w.meet(late, heir, where, inherit)
	case where == acked:
		for _, m := range late.applied {
			w.b.ack(m)
		}
		late.applied = nil
		inherit()
	default:
		inherit()
	}
	for busy := [2]bool{true, true}; busy[0] || busy[1]; {
		i := w.rng.IntN(2)
		busy[i] = w.advance([]*owner{late, heir}[i], where, nil)
		w.check(false)
	}
	w.check(true)
	late.queue = w.b.take(w.rng)
	for w.advance(late, where, nil) {
	}
	w.check(true)
}

// meet lets the heir's first message meet a transaction of the late one, which
// then is committed or, in half of the runs, comes to nothing.
func (w *world) meet(late, heir *owner, where step, inherit func()) {
	w.t.Helper()
	var first chan error
	for first == nil && len(late.queue) > 0 {
		w.advance(late, where, func() error {
			inherit()
			m := heir.queue[0]
			first = make(chan error, 1)
			begun := make(chan struct{})
			go func() {
				close(begun)
				_, err := w.store.Apply(context.Background(), m, effect(heir.name))
				first <- err
			}()
			<-begun
			if w.rng.IntN(2) == 0 {
				return errOutage
			}
			return nil
		})
	}
	if err := <-first; err != nil {
		w.t.Fatalf("%s: the heir's first message: %v", w.name, err)
	}
	heir.applied, heir.queue = append(heir.applied, heir.queue[0]), heir.queue[1:]
}
