package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

const (
	// fencedInRow is how many memberships may end fenced without having applied
	// or recognized a message before Run gives up.
	fencedInRow = 3
	// fillAtOnce is how many messages are fetched together to fill a gap.
	fillAtOnce = 500
	// fillWait is how long a fetch waits for messages that must be there.
	fillWait = time.Second
)

// Open makes a Store of a subscription that exists, and its table.
func Open(ctx context.Context, c *client.Client, db *sql.DB, cfg Config) (*Store, error) {
	r, err := c.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: cfg.Subscription})
	if err != nil {
		return nil, err
	}
	if r.GetMode() == tapedeckv1.Mode_MODE_SHARED {
		return nil, fmt.Errorf("subscription %s is of mode shared: a row per partition needs mode ordered",
			cfg.Subscription)
	}
	cfg.SubscriptionID = r.GetSubscriptionId()
	s, err := New(db, cfg)
	if err != nil {
		return nil, err
	}
	return s, s.Init(ctx)
}

// Run applies the subscription's messages one after the other, each partition in
// order, and acks them after their commits. It ends with nil when ctx ends, and
// with the first error of the handler, the database or the subscription; what was
// not committed comes again, so Run may be called again. A member that is fenced
// joins again by itself. Of options, WithConcurrency lets partitions be worked on
// side by side, each in a transaction of its own.
func (s *Store) Run(ctx context.Context, c *client.Client, f Handler, opts ...client.SubscriberOption) error {
	for fenced := 0; ; {
		w := &worker{s: s, c: c, f: f, applied: map[uint32]uint64{}}
		err := w.run(ctx, opts)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, ErrFenced):
			return err
		}
		if fenced++; w.useful.Load() {
			fenced = 0
		}
		if fenced == fencedInRow {
			return err
		}
	}
}

// worker is one membership.
type worker struct {
	s       *Store
	c       *client.Client
	f       Handler
	useful  atomic.Bool // a message was applied or recognized
	follows atomic.Bool // the broker leaves out messages on purpose

	mu      sync.Mutex
	applied map[uint32]uint64 // by partition: below it all is, as far as was seen
}

func (w *worker) run(ctx context.Context, opts []client.SubscriberOption) error {
	sub, err := w.c.Subscribe(ctx, w.s.cfg.Subscription, opts...)
	if err != nil {
		return err
	}
	if err := w.look(ctx); err != nil {
		return err
	}
	return sub.Run(ctx, w.handle)
}

// look asks whether the broker leaves messages out on purpose, and whether the
// subscription is still the one of the rows.
func (w *worker) look(ctx context.Context) error {
	r, err := w.c.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: w.s.cfg.Subscription})
	if err != nil {
		return err
	}
	if r.GetSubscriptionId() != w.s.cfg.SubscriptionID {
		return fmt.Errorf("subscription %s: %w", w.s.cfg.Subscription, ErrReplaced)
	}
	w.follows.Store(r.GetFilter() != "" || r.GetDeadLetterTopic() != "")
	return nil
}

func (w *worker) handle(ctx context.Context, m *client.Message) error {
	if m.Offset < w.below(m.Partition) {
		return nil // came again with what was recognized below
	}
	err := w.apply(ctx, m)
	var gap *GapError
	if !errors.As(err, &gap) {
		return err
	}
	if err := w.look(ctx); err != nil { // a filter may be new
		return err
	}
	if !w.follows.Load() {
		if err := w.fill(ctx, m, gap.From); err != nil {
			return err
		}
	}
	return w.apply(ctx, m)
}

func (w *worker) apply(ctx context.Context, m *client.Message) error {
	outcome, next, err := w.s.apply(ctx, m, w.f, w.follows.Load())
	if err != nil {
		return err
	}
	w.useful.Store(true)
	if outcome == Repeated {
		w.mu.Lock()
		w.applied[m.Partition] = next
		w.mu.Unlock()
	}
	return nil
}

func (w *worker) below(partition uint32) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applied[partition]
}

// fill applies [from, to.Offset), which the broker takes for done and the
// database does not know. What retention took of it is told and left out.
func (w *worker) fill(ctx context.Context, to *client.Message, from uint64) error {
	for from < to.Offset {
		r, err := w.c.Fetch(ctx, client.FetchRequest{Topic: to.Topic, Partition: to.Partition, Offset: from,
			MaxMessages: uint32(min(to.Offset-from, fillAtOnce)), Wait: fillWait})
		var refused *client.Error
		switch {
		case errors.As(err, &refused) && refused.Reason == client.ReasonOffsetTooOld && refused.Start > from:
			start := min(refused.Start, to.Offset)
			if err := w.skip(ctx, to, from, start); err != nil {
				return err
			}
			from = start
			continue
		case err != nil:
			return fmt.Errorf("fetch partition %d from offset %d, which was not applied: %w", to.Partition, from, err)
		case len(r.Messages) == 0:
			return fmt.Errorf("partition %d: offset %d was not applied and cannot be read now", to.Partition, from)
		}
		for _, m := range r.Messages {
			if m.Offset >= to.Offset {
				return nil
			}
			m.Generation = to.Generation
			if err := w.apply(ctx, m); err != nil {
				return err
			}
			from = m.Offset + 1
		}
	}
	return nil
}

// skip moves the row over [from, to), which is gone.
func (w *worker) skip(ctx context.Context, m *client.Message, from, to uint64) error {
	if told := w.s.cfg.Skipped; told != nil {
		told(m.Partition, from, to)
	}
	last := &client.Message{Topic: m.Topic, Partition: m.Partition, Offset: to - 1, Generation: m.Generation}
	_, _, err := w.s.apply(ctx, last, func(context.Context, *sql.Tx, *client.Message) error { return nil }, true)
	return err
}
