package main

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/client/sqlstore"
)

func message(partition uint32, offset, generation uint64) *client.Message {
	return &client.Message{Topic: "orders", Partition: partition, Offset: offset, Generation: generation}
}

// TestOutcomes goes through what may come, one after the other.
func TestOutcomes(t *testing.T) {
	w := newWorld(t, "outcomes", 1)
	defer w.close()
	broken := errors.New("broken")
	fails := func(context.Context, *sql.Tx, *client.Message) error { return broken }
	must := effect("a")
	never := func(context.Context, *sql.Tx, *client.Message) error {
		t.Error("the handler was called")
		return nil
	}
	for _, step := range []struct {
		what               string
		offset, generation uint64
		f                  sqlstore.Handler
		outcome            sqlstore.Outcome
		err                error
		next               uint64
	}{
		{"a failure before there is a row", 5, 2, fails, 0, broken, 0},
		{"the first begins the row", 5, 2, must, sqlstore.Applied, nil, 6},
		{"it comes again", 5, 2, never, sqlstore.Repeated, nil, 6},
		{"a failure leaves the row", 6, 2, fails, 0, broken, 6},
		{"an older generation", 6, 1, never, 0, sqlstore.ErrFenced, 6},
		{"a later owner's message is an old one", 5, 4, never, sqlstore.Repeated, nil, 6},
		{"and has fenced the one before it", 6, 3, never, 0, sqlstore.ErrFenced, 6},
		{"even for what it had applied itself", 5, 3, never, 0, sqlstore.ErrFenced, 6},
		{"the owner goes on", 6, 4, must, sqlstore.Applied, nil, 7},
		{"one is missing", 8, 4, never, 0, &sqlstore.GapError{}, 7},
		{"older and one is missing", 8, 3, never, 0, sqlstore.ErrFenced, 7},
		{"a later generation needs no word of itself", 7, 9, must, sqlstore.Applied, nil, 8},
	} {
		outcome, err := w.store.Apply(t.Context(), message(0, step.offset, step.generation), step.f)
		var gap *sqlstore.GapError
		switch {
		case errors.As(step.err, &gap):
			if !errors.As(err, &gap) || gap.From != 7 || gap.To != 8 {
				t.Errorf("%s: error %v", step.what, err)
			}
		case !errors.Is(err, step.err):
			t.Errorf("%s: error %v, want %v", step.what, err, step.err)
		}
		next, ok, err := w.store.Next(t.Context(), 0)
		if outcome != step.outcome || err != nil || next != step.next || ok != (next > 0) {
			t.Errorf("%s: outcome %d, row at %d: %v", step.what, outcome, next, err)
		}
	}
	if next, ok, err := w.store.Next(t.Context(), 1); next != 0 || ok || err != nil {
		t.Errorf("another partition's row is at %d, %v: %v", next, ok, err)
	}
}

// TestAnotherSubscriptionOfTheName: its offsets and generations begin anew, so it
// must not go on with the rows; after Forget it may.
func TestAnotherSubscriptionOfTheName(t *testing.T) {
	w := newWorld(t, "replaced", 1)
	defer w.close()
	for offset := range uint64(3) {
		if _, err := w.store.Apply(t.Context(), message(0, offset, 1), effect("old")); err != nil {
			t.Fatal(err)
		}
	}
	again, err := sqlstore.New(w.db, sqlstore.Config{Subscription: "orders/books", SubscriptionID: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []uint64{0, 3, 9} {
		_, err := again.Apply(t.Context(), message(0, offset, 1), effect("new"))
		if !errors.Is(err, sqlstore.ErrReplaced) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	tx, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(again.Forget(t.Context(), tx), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	outcome, err := again.Apply(t.Context(), message(0, 0, 1), effect("new"))
	if outcome != sqlstore.Applied || err != nil {
		t.Errorf("outcome %d: %v", outcome, err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	w := newWorld(t, "refused", 1)
	defer w.close()
	for _, cfg := range []sqlstore.Config{
		{Subscription: "orders", SubscriptionID: 1},
		{Subscription: "/books", SubscriptionID: 1},
		{Subscription: "orders/books"},
		{Subscription: "orders/books", SubscriptionID: 1 << 63},
		{Subscription: "orders/books", SubscriptionID: 1, Table: "x; DROP TABLE effect"},
	} {
		if _, err := sqlstore.New(w.db, cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	fetched, strange, far := message(0, 0, 0), message(0, 0, 1), message(0, 1<<63-1, 1)
	strange.Topic = "other"
	for _, m := range []*client.Message{fetched, strange, far} {
		if _, err := w.store.Apply(t.Context(), m, effect("a")); err == nil {
			t.Errorf("%+v was taken", m)
		}
	}
}

// TestNumbered: arguments written as PostgreSQL wants them, which SQLite knows, too.
func TestNumbered(t *testing.T) {
	w := newWorld(t, "numbered", 1)
	defer w.close()
	s, err := sqlstore.New(w.db, sqlstore.Config{Subscription: "orders/books", SubscriptionID: 1, Table: "main.cursors",
		Numbered: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // Init may be repeated
		if err := s.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []sqlstore.Outcome{sqlstore.Applied, sqlstore.Applied, sqlstore.Repeated} {
		offset := uint64(min(i, 1))
		if got, err := s.Apply(t.Context(), message(3, offset, uint64(i)+1), effect("a")); got != want || err != nil {
			t.Errorf("%d: outcome %d: %v", i, got, err)
		}
	}
	if next, _, err := s.Next(t.Context(), 3); next != 2 || err != nil {
		t.Errorf("row at %d: %v", next, err)
	}
}
