package client

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/session"
)

// leavePatience bounds how long a subscriber that ends waits for its last acks.
const leavePatience = 5 * time.Second

// SubscriberOption changes a subscriber's defaults.
type SubscriberOption func(*subscriberConfig)

type subscriberConfig struct {
	session     session.ConsumerConfig
	concurrency int
	skipped     func(partition uint32, from, to uint64)
	trouble     func(error)
}

// WithMember names this subscriber within its subscription; by default the name
// is drawn at random. A static member that comes back within the session timeout
// keeps its partitions: closing it does not end its session.
func WithMember(name string, static bool) SubscriberOption {
	return func(c *subscriberConfig) {
		c.session.Member, c.session.Static, c.session.MemberIsNew = model.MemberID(name), static, false
	}
}

// WithBuffer bounds the messages received and not yet processed, 2,000.
func WithBuffer(messages int) SubscriberOption {
	return func(c *subscriberConfig) {
		c.session.MaxBuffered = messages
		c.session.MaxMessages = uint32(min(max(messages/2, 1), 10_000))
	}
}

// WithAckInterval sets how long acks are gathered, 100 ms; negative: not at all.
func WithAckInterval(d time.Duration) SubscriberOption {
	return func(c *subscriberConfig) { c.session.AckInterval = d }
}

// WithPullWait sets how long one request waits at the broker for messages, 5 s.
func WithPullWait(d time.Duration) SubscriberOption {
	return func(c *subscriberConfig) { c.session.Wait = d }
}

// WithConcurrency lets Run call its function from n goroutines: messages of one
// partition still come one by one, in order. 1 by default.
func WithConcurrency(n int) SubscriberOption {
	return func(c *subscriberConfig) { c.concurrency = n }
}

// WithSkipped is told of ranges [from, to) that retention took before this
// subscription had read them.
func WithSkipped(told func(partition uint32, from, to uint64)) SubscriberOption {
	return func(c *subscriberConfig) { c.skipped = told }
}

// WithTrouble is told of errors that pulling is retried after.
func WithTrouble(told func(error)) SubscriberOption {
	return func(c *subscriberConfig) { c.trouble = told }
}

// Subscriber is one member of a subscription. It becomes one with the first Run
// or Messages, which may be used once, one of them.
type Subscriber struct {
	c     *Client
	topic string
	cfg   subscriberConfig
	wake  chan struct{} // the loop looks again
	ready chan struct{} // there may be something to take
	wg    sync.WaitGroup

	mu      sync.Mutex
	s       *session.Consumer
	cancels map[uint64]context.CancelFunc
	used    bool
	stop    context.CancelFunc // of the loop and its requests
}

// Subscribe prepares reading from a subscription, "topic/name", which must exist.
func (c *Client) Subscribe(ctx context.Context, subscription string, opts ...SubscriberOption) (*Subscriber, error) {
	topic, _, bad := model.SplitRef("subscription", subscription)
	if bad != nil {
		return nil, fromModel(bad, false)
	}
	cfg := subscriberConfig{session: session.ConsumerConfig{
		Subscription: subscription, Member: model.MemberID(randomName("go")), MemberIsNew: true,
		Seed: rand.Uint64(), Unpack: unpack,
	}}
	for _, o := range opts {
		o(&cfg)
	}
	s, err := c.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: subscription})
	if err != nil {
		return nil, err
	}
	cfg.session.Shared = s.GetMode() == tapedeckv1.Mode_MODE_SHARED
	// A heartbeat extends leases, too: it comes in time for both.
	cfg.session.SessionTimeout = min(s.GetSessionTimeout().AsDuration(), s.GetAckDeadline().AsDuration())
	return &Subscriber{
		c: c, topic: topic, cfg: cfg, wake: make(chan struct{}, 1), ready: make(chan struct{}, 1),
		s: session.NewConsumer(cfg.session), cancels: map[uint64]context.CancelFunc{},
	}, nil
}

// Member is this subscriber's name within its subscription.
func (s *Subscriber) Member() string { return string(s.cfg.session.Member) }

// Messages are the subscription's, to be ranged over. A message is acked when
// the loop comes back for the next one, or by its Ack; the one at which the loop
// is left is not. An error is the last thing yielded; when ctx ends, the loop
// just ends. Leaving the loop ends the membership.
func (s *Subscriber) Messages(ctx context.Context) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		if err := s.begin(ctx); err != nil {
			yield(nil, err)
			return
		}
		defer s.end()
		for {
			ds, err := s.take(ctx, 1)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(ds) == 0 {
				return
			}
			m := s.message(&ds[0])
			if !yield(m, nil) {
				return
			}
			m.Ack()
		}
	}
}

// Run calls f with each message and acks it when f returns nil. When f returns
// an error, Run ends with it; the message is not acked and comes again, to this
// or another member. Run returns nil when ctx ends. Running calls are waited for.
func (s *Subscriber) Run(ctx context.Context, f func(context.Context, *Message) error) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var workers sync.WaitGroup
	lanes := make([]chan []session.Delivery, max(s.cfg.concurrency, 1))
	for i := range lanes {
		lanes[i] = make(chan []session.Delivery)
		workers.Go(func() {
			for ds := range lanes[i] {
				for j := range ds {
					if work.Err() != nil {
						break // not acked, so they come again
					}
					m := s.message(&ds[j])
					if err := f(work, m); err != nil {
						stop(err)
						break
					}
					m.Ack()
				}
			}
		})
	}
	err := s.deal(work, lanes)
	for _, lane := range lanes {
		close(lane)
	}
	workers.Wait()
	s.end()
	if cause := context.Cause(work); err == nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	return err
}

// dealAtOnce is how many messages go to the lanes together. What was dealt is
// processed even if a seek overtakes it, so it is not many.
const dealAtOnce = 64

// deal hands messages to the lanes, each partition to one.
func (s *Subscriber) deal(ctx context.Context, lanes []chan []session.Delivery) error {
	for {
		ds, err := s.take(ctx, dealAtOnce)
		if len(ds) == 0 || err != nil {
			return err
		}
		for len(ds) > 0 {
			lane, n := int(ds[0].Partition)%len(lanes), 1
			for n < len(ds) && int(ds[n].Partition)%len(lanes) == lane {
				n++
			}
			select {
			case lanes[lane] <- ds[:n:n]:
			case <-ctx.Done():
				return nil
			}
			ds = ds[n:]
		}
	}
}

func (s *Subscriber) begin(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used {
		return ErrClosed
	}
	s.used = true
	// Requests outlive ctx: its end begins the leaving.
	calls, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.wg.Go(func() { s.loop(calls) })
	return nil
}

// end acks what was processed and leaves, so that others go on at once.
func (s *Subscriber) end() {
	s.mu.Lock()
	s.s.Leave(s.c.now())
	s.mu.Unlock()
	s.nudge()
	patience := time.AfterFunc(leavePatience, s.stop)
	defer patience.Stop()
	s.wg.Wait()
	s.stop()
}

// take waits for the next messages, at most limit; none when ctx ended.
func (s *Subscriber) take(ctx context.Context, limit int) ([]session.Delivery, error) {
	for {
		if ctx.Err() != nil {
			return nil, nil
		}
		s.mu.Lock()
		ds := s.s.Take(limit)
		err := s.s.Err()
		s.mu.Unlock()
		if len(ds) > 0 {
			return ds, nil
		}
		if err != nil {
			return nil, fromModel(err, false)
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
		}
	}
}

func (s *Subscriber) message(d *session.Delivery) *Message {
	m := delivered(s.topic, d)
	var once sync.Once
	tell := func(what func()) {
		s.mu.Lock()
		what()
		s.mu.Unlock()
		s.nudge()
	}
	m.ack = func() { once.Do(func() { tell(func() { s.s.Processed(s.c.now(), *d) }) }) }
	m.nack = func(delay time.Duration) {
		once.Do(func() { tell(func() { s.s.Nack(s.c.now(), *d, delay) }) })
	}
	m.extend = func(by time.Duration) { tell(func() { s.s.Extend(*d, by) }) }
	return m
}

func (s *Subscriber) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// loop carries out what the session wants until it has left.
func (s *Subscriber) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := s.c.now()
		s.mu.Lock()
		sends := s.s.Poll(now)
		next, left := s.s.Next(), s.s.Left()
		for _, id := range s.s.Cancels() {
			if stop := s.cancels[id]; stop != nil {
				stop()
			}
		}
		skipped := s.s.Skipped()
		s.mu.Unlock()
		if left {
			return
		}
		for _, r := range skipped {
			if s.cfg.skipped != nil {
				s.cfg.skipped(uint32(r.Partition), uint64(r.From), uint64(r.To))
			}
		}
		for _, send := range sends {
			s.dispatch(ctx, send)
		}
		timer.Reset(until(now, next))
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// dispatch makes a request on a goroutine of its own.
func (s *Subscriber) dispatch(ctx context.Context, send session.Send) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.cancels[send.ID] = cancel
	s.mu.Unlock()
	s.wg.Go(func() {
		defer cancel()
		result, err := s.c.carry(ctx, send)
		s.mu.Lock()
		delete(s.cancels, send.ID)
		s.s.Done(s.c.now(), send.ID, result, err)
		trouble := s.s.Trouble()
		s.mu.Unlock()
		if trouble != nil && err != nil && s.cfg.trouble != nil {
			s.cfg.trouble(fromModel(err, false))
		}
		s.nudge()
		select {
		case s.ready <- struct{}{}:
		default:
		}
	})
}
