package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/session"
)

// ErrClosed is what publishing with a closed producer, and reading from a
// closed subscriber, fails with.
var ErrClosed = errors.New("closed")

// Result is where a message was stored.
type Result struct {
	Partition uint32
	Offset    uint64
	Duplicate bool // an earlier attempt had stored it; there is one copy
}

// ProducerOption changes a producer's defaults.
type ProducerOption func(*producerConfig)

type producerConfig struct {
	session     session.ProducerConfig
	compression Compression
}

// WithProducerName opens the producer under a name: whoever opens the same name
// later fences this one. By default the name is drawn at random.
func WithProducerName(name string) ProducerOption {
	return func(c *producerConfig) { c.session.Name = name }
}

// WithoutIdempotence publishes without sequences: what is not answered is not
// sent again and fails with UNKNOWN_OUTCOME.
func WithoutIdempotence() ProducerOption {
	return func(c *producerConfig) { c.session.NoProducer = true }
}

// WithLinger sets how long a batch waits for more messages, 2 ms; negative: not at all.
func WithLinger(d time.Duration) ProducerOption {
	return func(c *producerConfig) { c.session.Linger = d }
}

// WithBatchLimits sets the size at which a batch leaves, 256 KiB and 4,096 messages.
func WithBatchLimits(bytes, messages int) ProducerOption {
	return func(c *producerConfig) { c.session.MaxBatchBytes, c.session.MaxBatchMessages = bytes, messages }
}

// WithPendingLimits sets how much may wait for its result before publishing
// blocks, 64 MiB and 100,000 messages.
func WithPendingLimits(bytes, messages int) ProducerOption {
	return func(c *producerConfig) { c.session.MaxPendingBytes, c.session.MaxPendingMessages = bytes, messages }
}

// WithInFlight sets the number of requests under way per partition, 8.
func WithInFlight(n int) ProducerOption {
	return func(c *producerConfig) { c.session.InFlight = n }
}

// WithDeliveryTimeout sets after how long a message fails that could not be
// stored, retries included; 2 min.
func WithDeliveryTimeout(d time.Duration) ProducerOption {
	return func(c *producerConfig) { c.session.DeliveryTimeout = d }
}

// WithCompression packs batches.
func WithCompression(how Compression) ProducerOption {
	return func(c *producerConfig) { c.compression = how }
}

// Producer publishes to one topic. It is safe for concurrent use.
type Producer struct {
	c      *Client
	topic  string
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wake   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	s       *session.Producer
	waiting []func(Result, error) // by token
	free    []uint64              // tokens to be used again
	changed chan struct{}         // closed at the next outcome or when something became ready
	done    []session.Outcome     // to be told
	telling bool
	closed  bool
}

// NewProducer makes a producer and waits until topic and producer are known to
// the cluster, as long as ctx allows.
func (c *Client) NewProducer(ctx context.Context, topic string, opts ...ProducerOption) (*Producer, error) {
	cfg := producerConfig{session: session.ProducerConfig{
		Topic: topic, Name: randomName("go"), Seed: rand.Uint64(),
	}}
	for _, o := range opts {
		o(&cfg)
	}
	if err := model.ValidateName("topic", topic); err != nil {
		return nil, fromModel(err, false)
	}
	var err error
	if cfg.session.Compression, cfg.session.Pack, err = packer(cfg.compression); err != nil {
		return nil, &Error{Code: connect.CodeInvalidArgument, Field: "compression", Message: err.Error()}
	}
	p := &Producer{
		c: c, topic: topic, wake: make(chan struct{}, 1), s: session.NewProducer(cfg.session),
		changed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.loop)
	if err := p.awaitReady(ctx); err != nil {
		p.cancel()
		p.wg.Wait()
		return nil, err
	}
	return p, nil
}

// awaitReady waits for topic and epoch. It gives up at an error that a moment
// does not heal, and when no node can be reached.
func (p *Producer) awaitReady(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.c.cfg.CallTimeout)
		defer cancel()
	}
	for {
		p.mu.Lock()
		ready, err := p.s.Ready()
		changed := p.changed
		p.mu.Unlock()
		if ready {
			return nil
		}
		if err != nil && (session.Final(err) || err.Reason == session.ReasonNotSent) {
			return fromModel(err, false)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err != nil {
				return fromModel(err, false)
			}
			e := wrap(ctx.Err())
			e.Message = fmt.Sprintf("no node says where the partitions of topic %q are: most of the nodes may be down (%s)",
				p.topic, e.Message)
			return e
		}
	}
}

// Publish stores a message and says where. When ctx ends first, the message may
// still be stored.
func (p *Producer) Publish(ctx context.Context, m *Message) (Result, error) {
	type answer struct {
		r   Result
		err error
	}
	got := make(chan answer, 1)
	if err := p.PublishAsync(ctx, m, func(r Result, err error) { got <- answer{r, err} }); err != nil {
		return Result{}, err
	}
	select {
	case a := <-got:
		return a.r, a.err
	case <-ctx.Done():
		e := wrap(ctx.Err())
		e.Maybe = true
		e.Message = "gave up waiting for the result; the message may be stored: " + e.Message
		return Result{}, e
	}
}

// PublishAsync hands a message over and returns; then is told its result later,
// one at a time, in the order the answers come, and must not block. When as many
// messages wait as may, PublishAsync waits as long as ctx allows. The producer
// owns key and payload until the result.
func (p *Producer) PublishAsync(ctx context.Context, m *Message, then func(Result, error)) error {
	return p.publish(ctx, m, then, func(token uint64) *model.Error {
		return p.s.Add(p.c.now(), m.encode(), token)
	})
}

// PublishTo is PublishAsync to a partition chosen by the caller.
func (p *Producer) PublishTo(ctx context.Context, partition uint32, m *Message, then func(Result, error)) error {
	return p.publish(ctx, m, then, func(token uint64) *model.Error {
		return p.s.AddTo(p.c.now(), model.Partition(partition), m.encode(), token)
	})
}

func (p *Producer) publish(ctx context.Context, m *Message, then func(Result, error),
	add func(uint64) *model.Error) error {
	if then == nil {
		then = func(Result, error) {}
	}
	p.mu.Lock()
	for {
		if p.closed {
			p.mu.Unlock()
			return ErrClosed
		}
		token := p.token(then)
		err := add(token)
		if err == nil {
			break
		}
		p.release(token)
		if err.Reason != model.ReasonThrottled {
			p.mu.Unlock()
			return fromModel(err, false)
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return &Error{Code: connect.CodeResourceExhausted, Reason: ReasonThrottled, Message: err.Message, cause: ctx.Err()}
		}
		p.mu.Lock()
	}
	sooner := p.s.Sooner()
	p.mu.Unlock()
	if sooner {
		p.nudge()
	}
	return nil
}

// token keeps then until its outcome; mu is held.
func (p *Producer) token(then func(Result, error)) uint64 {
	if n := len(p.free); n > 0 {
		t := p.free[n-1]
		p.free = p.free[:n-1]
		p.waiting[t] = then
		return t
	}
	p.waiting = append(p.waiting, then)
	return uint64(len(p.waiting) - 1)
}

func (p *Producer) release(token uint64) (then func(Result, error)) {
	then = p.waiting[token]
	p.waiting[token] = nil
	p.free = append(p.free, token)
	return then
}

// Flush sends what lingers and waits until every message has its result.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	p.s.Flush()
	p.nudge()
	for !p.s.Idle() || len(p.done) > 0 || p.telling {
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return wrap(ctx.Err())
		}
		p.mu.Lock()
	}
	p.mu.Unlock()
	return nil
}

// Close flushes as long as ctx allows, and ends the producer. What has no
// result by then fails with ErrClosed and may be stored all the same.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.cancel()
	p.wg.Wait()
	p.mu.Lock()
	left := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	for _, then := range left {
		if then != nil {
			then(Result{}, ErrClosed)
		}
	}
	return err
}

// nudge makes the loop look again.
func (p *Producer) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// loop carries out what the session wants, when it wants it.
func (p *Producer) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for p.ctx.Err() == nil {
		now := p.c.now()
		p.mu.Lock()
		sends := p.s.Poll(now)
		next := p.s.Next()
		p.collect()
		p.mu.Unlock()
		for _, s := range sends {
			p.wg.Go(func() { p.carry(s) })
		}
		p.tell()
		timer.Reset(until(now, next))
		select {
		case <-p.wake:
		case <-timer.C:
		case <-p.ctx.Done():
		}
	}
}

// until is the time to a moment of a session, within what a timer takes.
func until(now, next model.Mono) time.Duration {
	if next == model.Never {
		return time.Hour
	}
	return max(next.Sub(now), 0)
}

func (p *Producer) carry(s session.Send) {
	result, err := p.c.carry(p.ctx, s)
	p.mu.Lock()
	p.s.Done(p.c.now(), s.ID, result, err)
	p.collect()
	p.signal()
	p.mu.Unlock()
	p.tell()
	p.nudge()
}

// collect takes the outcomes over; mu is held.
func (p *Producer) collect() {
	if out := p.s.Outcomes(); len(out) > 0 {
		p.done = append(p.done, out...)
		p.signal()
	}
}

// signal wakes whoever waits for a change; mu is held.
func (p *Producer) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// tell tells results, one goroutine at a time.
func (p *Producer) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.telling {
		return
	}
	if len(p.done) == 0 {
		return
	}
	p.telling = true
	for len(p.done) > 0 && p.waiting != nil {
		done := p.done
		p.done = nil
		thens := make([]func(Result, error), len(done))
		for i := range done {
			thens[i] = p.release(done[i].Token)
		}
		p.mu.Unlock()
		for i := range done {
			thens[i](resultOf(&done[i]))
		}
		p.mu.Lock()
	}
	p.telling = false
	p.signal()
}

func resultOf(o *session.Outcome) (Result, error) {
	if o.Err != nil {
		return Result{Partition: uint32(o.Partition)}, fromModel(o.Err, o.Maybe)
	}
	return Result{Partition: uint32(o.Partition), Offset: uint64(o.Offset), Duplicate: o.Duplicate}, nil
}
