package session

import (
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// ProducerConfig is fixed for a producer's life. Zero fields take the default.
type ProducerConfig struct {
	Topic string
	// Name is the producer's, opened with OpenProducer. Two producers with one
	// name fence each other: unless one is meant to replace the other, draw it
	// at random. It may be empty only with NoProducer.
	Name string
	// NoProducer publishes without id and sequence: one request in flight per
	// partition, and an attempt without an answer ends in an unknown outcome.
	NoProducer bool

	Linger             time.Duration // 2 ms; negative: none
	MaxBatchBytes      int           // 256 KiB, before compression
	MaxBatchMessages   int           // 4,096
	MaxPendingBytes    int           // 64 MiB
	MaxPendingMessages int           // 100,000
	InFlight           int           // requests per partition, 8; at most half of model.ProducerMemory

	TryTimeout      time.Duration // of one request, 6 s
	DeliveryTimeout time.Duration // of a message from Add on, 2 min
	MinBackoff      time.Duration // 20 ms
	MaxBackoff      time.Duration // 2 s
	TopicRefresh    time.Duration // age at which the partition count is read anew, 5 min
	Seed            uint64        // of jitter and of spreading keyless messages

	Compression batch.Compression
	Pack        func(dst, raw []byte) []byte // needed with Compression
}

func (c ProducerConfig) withDefaults() ProducerConfig {
	def(&c.Linger, 2*time.Millisecond)
	def(&c.MaxBatchBytes, 256<<10)
	def(&c.MaxBatchMessages, 4096)
	def(&c.MaxPendingBytes, 64<<20)
	def(&c.MaxPendingMessages, 100_000)
	def(&c.InFlight, 8)
	def(&c.TryTimeout, 6*time.Second)
	def(&c.DeliveryTimeout, 2*time.Minute)
	def(&c.MinBackoff, 20*time.Millisecond)
	def(&c.MaxBackoff, 2*time.Second)
	def(&c.TopicRefresh, 5*time.Minute)
	c.MaxBatchBytes = min(c.MaxBatchBytes, model.MaxRequestBytes/2)
	c.InFlight = min(c.InFlight, model.ProducerMemory/2)
	if c.NoProducer {
		// Without sequences nothing but waiting keeps the order.
		c.InFlight = 1
	}
	return c
}

// Outcome is what became of one message.
type Outcome struct {
	Token     uint64
	Partition model.Partition
	Offset    model.Offset
	Duplicate bool // an earlier attempt had been appended
	Err       *model.Error
	// Maybe says, with Err, that the message may have been appended all the same.
	Maybe bool
}

// pending is a message on its way.
type pending struct {
	msg     batch.Message
	token   uint64
	since   model.Mono
	number  uint64 // of arrival, to keep the order when split anew
	named   bool   // the caller chose the partition
	to      model.Partition
	encoded int // bytes
}

// Producer brings messages to a topic.
type Producer struct {
	cfg     ProducerConfig
	backoff backoff
	lastID  uint64
	number  uint64

	describe   task // GetTopic
	known      bool
	partitions uint32
	mapVersion uint32
	maxMessage int
	stale      bool // the partition count must be read anew

	register task // OpenProducer
	id       model.ProducerID
	epoch    model.Epoch // newest opened; partitions may still be on older ones
	first    model.Epoch // the first opened
	opens    uint64      // attempts ever made: each may have raised the epoch, be it late
	more     bool        // some partition waits for a newer epoch

	waiting  []pending // not yet assigned to a partition
	parts    map[model.Partition]*partition
	order    []*partition // parts by number
	flights  map[uint64]flight
	sticky   model.Partition // of keyless messages
	messages int             // accepted and without an outcome
	bytes    int
	outcomes []Outcome
	flush    bool         // nothing lingers until Idle
	sooner   bool         // see Sooner
	fatal    *model.Error // fenced: nothing can be sent any more
}

type flight struct {
	part  *partition
	batch *outgoing
}

// NewProducer makes a producer; its first Poll asks for the topic and an epoch.
func NewProducer(cfg ProducerConfig) *Producer {
	cfg = cfg.withDefaults()
	return &Producer{
		cfg: cfg, backoff: newBackoff(cfg.MinBackoff, cfg.MaxBackoff, cfg.Seed),
		parts: map[model.Partition]*partition{}, flights: map[uint64]flight{},
		maxMessage: model.MaxMessageBytes, more: !cfg.NoProducer, stale: true,
	}
}

// Add takes a message; its key, or chance without one, chooses the partition.
// The producer owns the message's bytes until its outcome. THROTTLED means that
// as many messages or bytes as may wait do wait: add again after an outcome.
func (p *Producer) Add(now model.Mono, m batch.Message, token uint64) *model.Error {
	return p.add(now, pending{msg: m, token: token})
}

// AddTo is Add for a partition chosen by the caller.
func (p *Producer) AddTo(now model.Mono, to model.Partition, m batch.Message, token uint64) *model.Error {
	if p.known && uint32(to) >= p.partitions {
		return noPartition(to, p.partitions)
	}
	return p.add(now, pending{msg: m, token: token, named: true, to: to})
}

func noPartition(to model.Partition, count uint32) *model.Error {
	return model.Invalid("partition", "%d does not exist; the topic has %d, from 0", to, count)
}

func (p *Producer) add(now model.Mono, m pending) *model.Error {
	if p.fatal != nil {
		return p.fatal
	}
	if err := m.msg.Check("message", p.maxMessage); err != nil {
		return err
	}
	m.encoded = m.msg.Size()
	full := p.messages >= p.cfg.MaxPendingMessages || p.bytes+m.encoded > p.cfg.MaxPendingBytes
	if full && p.messages > 0 {
		return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, p.cfg.MinBackoff,
			"%d messages of %d bytes wait for their outcome; add more when some are done", p.messages, p.bytes)
	}
	p.number++
	m.since, m.number = now, p.number
	p.messages++
	p.bytes += m.encoded
	if p.known && now.Sub(p.describe.at) > p.cfg.TopicRefresh {
		p.stale, p.sooner = true, true
	}
	if p.messages == 1 {
		p.sooner = true // a task that failed is wanted again
	}
	if !p.known || len(p.waiting) > 0 {
		p.waiting = append(p.waiting, m)
		return nil
	}
	p.assign(m)
	return nil
}

// Sooner says, once, whether what was added since the last call may be due
// before the moment Next named. It saves a driver from asking Next at each message.
func (p *Producer) Sooner() bool {
	sooner := p.sooner
	p.sooner = false
	return sooner
}

// assign puts a message into the filling batch of its partition.
func (p *Producer) assign(m pending) {
	mapVersion := uint32(0)
	switch {
	case m.named:
	case len(m.msg.Key) > 0:
		m.to, mapVersion = batch.PartitionFor(m.msg.Key, p.partitions), p.mapVersion
	default:
		m.to = p.sticky
	}
	part := p.partition(m.to)
	if b := part.filling; b != nil && (b.bytes+m.encoded > p.cfg.MaxBatchBytes ||
		len(b.messages) >= p.cfg.MaxBatchMessages) {
		part.seal()
		if !m.named && len(m.msg.Key) == 0 {
			p.rotate()
			m.to = p.sticky
			part = p.partition(m.to)
		}
	}
	if part.filling == nil {
		p.sooner = true
		part.filling = &outgoing{due: m.since.Add(max(p.cfg.Linger, 0)), since: m.since}
	}
	b := part.filling
	b.messages = append(b.messages, m)
	b.bytes += m.encoded
	b.mapVersion = max(b.mapVersion, mapVersion)
	if b.bytes >= p.cfg.MaxBatchBytes || len(b.messages) >= p.cfg.MaxBatchMessages {
		p.sooner = true
		part.seal()
		if m.to == p.sticky {
			p.rotate()
		}
	}
}

// rotate moves keyless messages on: one batch fills at a time, so few messages
// still make full batches, and batch by batch all partitions get their share.
func (p *Producer) rotate() {
	p.sticky = model.Partition((uint32(p.sticky) + 1) % p.partitions)
}

func (p *Producer) partition(n model.Partition) *partition {
	part := p.parts[n]
	if part == nil {
		part = &partition{number: n, epoch: p.epoch, window: p.cfg.InFlight}
		p.parts[n] = part
		at, _ := slices.BinarySearchFunc(p.order, n, func(q *partition, n model.Partition) int {
			return int(q.number) - int(n)
		})
		p.order = slices.Insert(p.order, at, part)
	}
	return part
}

// Flush sends what lingers and lets nothing linger until the producer is Idle.
func (p *Producer) Flush() { p.flush = p.messages > 0 }

// Idle says that every accepted message has its outcome.
func (p *Producer) Idle() bool { return p.messages == 0 }

// Pending is the number of messages and bytes accepted and without an outcome.
func (p *Producer) Pending() (messages, bytes int) { return p.messages, p.bytes }

// Ready says that topic and epoch are known; before that, err is why not yet, if
// an attempt failed. A fenced producer is never ready again.
func (p *Producer) Ready() (ok bool, err *model.Error) {
	if p.fatal != nil {
		return false, p.fatal
	}
	return p.known && (p.cfg.NoProducer || p.epoch > 0), p.setupErr()
}

// setupErr is why GetTopic, or else OpenProducer, last failed.
func (p *Producer) setupErr() *model.Error {
	if p.describe.err != nil {
		return p.describe.err
	}
	return p.register.err
}

// Outcomes returns what was decided since the last call, in order of decision.
func (p *Producer) Outcomes() []Outcome {
	out := p.outcomes
	p.outcomes = nil
	return out
}

// Poll returns the requests to make now.
func (p *Producer) Poll(now model.Mono) []Send {
	if p.fatal != nil {
		return nil
	}
	p.expire(now)
	var sends []Send
	if p.stale && p.wanted(&p.describe) && p.describe.ready(now) {
		p.describe.id = p.nextID()
		sends = append(sends, Send{p.describe.id, &call.GetTopic{Name: p.cfg.Topic}, p.cfg.TryTimeout,
			Route{Topic: p.cfg.Topic}})
	}
	if p.more && p.wanted(&p.register) && p.register.ready(now) {
		p.register.id = p.nextID()
		p.opens++
		sends = append(sends, Send{p.register.id, &call.OpenProducerCall{Name: p.cfg.Name}, p.cfg.TryTimeout, Route{}})
	}
	for _, part := range p.order {
		for {
			b, at := part.next(p)
			if at > now {
				break
			}
			sends = append(sends, p.send(now, part, b))
		}
	}
	return sends
}

// Next is when to call Poll again, unless Add, Flush or Done comes first.
func (p *Producer) Next() model.Mono {
	if p.fatal != nil {
		return model.Never
	}
	at := model.Never
	if p.stale && p.wanted(&p.describe) {
		at = min(at, p.describe.next())
	}
	if p.more && p.wanted(&p.register) {
		at = min(at, p.register.next())
	}
	if len(p.waiting) > 0 {
		at = min(at, p.waiting[0].since.Add(p.cfg.DeliveryTimeout))
	}
	for _, part := range p.order {
		_, ready := part.next(p)
		at = min(at, ready)
		if b := part.oldest(); b != nil {
			at = min(at, b.since.Add(p.cfg.DeliveryTimeout))
		}
	}
	return at
}

// wanted says whether a task that is due should be tried: once it failed for
// good, only while some message needs it.
func (p *Producer) wanted(t *task) bool { return p.messages > 0 || !t.hopeless() }

func (p *Producer) nextID() uint64 {
	p.lastID++
	return p.lastID
}

// Done brings a request's answer; see the package comment.
func (p *Producer) Done(now model.Mono, id uint64, result call.ClientResult, err *model.Error) {
	switch {
	case p.fatal != nil:
	case id == p.describe.id:
		p.described(now, result, err)
	case id == p.register.id:
		p.registered(now, result, err)
	default:
		f, ok := p.flights[id]
		if !ok {
			return
		}
		delete(p.flights, id)
		f.part.inFlight--
		f.batch.id = 0
		if r, ok := result.(*call.PublishBatchResult); ok && err == nil {
			p.published(f.part, f.batch, r)
		} else {
			p.refusedOrOpen(now, f.part, f.batch, answered(err))
		}
		p.settle(f.part)
	}
}

// answered makes a missing or foreign answer an error that proves nothing.
func answered(err *model.Error) *model.Error {
	if err == nil {
		return model.Errorf(model.Internal, "the answer is not of the kind asked for")
	}
	return err
}

func (p *Producer) described(now model.Mono, result call.ClientResult, err *model.Error) {
	r, ok := result.(*call.GetTopicResult)
	if err != nil || !ok || len(r.Topic.Partitions) == 0 {
		p.setupFailed(now, &p.describe, answered(err))
		return
	}
	p.describe.succeeded()
	p.describe.at = now // of the last reading, until it is stale
	p.stale = false
	if n := r.Topic.Settings.MaxMessageBytes; n > 0 {
		p.maxMessage = int(n)
	}
	if p.known && r.Topic.MapVersion <= p.mapVersion {
		return
	}
	if !p.known {
		p.sticky = model.Partition(p.backoff.rand.Uint32N(uint32(len(r.Topic.Partitions))))
	}
	p.known = true
	p.partitions, p.mapVersion = uint32(len(r.Topic.Partitions)), r.Topic.MapVersion
	p.split()
}

// split assigns what waits, and anew what was assigned but never sent: only a
// message's first send pins its partition.
func (p *Producer) split() {
	all := p.waiting
	p.waiting = nil
	for _, part := range p.order {
		all = append(all, part.takeUnsent()...)
	}
	slices.SortFunc(all, func(a, b pending) int { return int(int64(a.number) - int64(b.number)) })
	for _, m := range all {
		if m.named && uint32(m.to) >= p.partitions {
			p.outcome(m, Outcome{Partition: m.to, Err: noPartition(m.to, p.partitions)})
			continue
		}
		if err := m.msg.Check("message", p.maxMessage); err != nil {
			p.outcome(m, Outcome{Err: err})
			continue
		}
		p.assign(m)
	}
}

// setupFailed handles a failed GetTopic or OpenProducer. What is final for it
// is final for every message that was never sent.
func (p *Producer) setupFailed(now model.Mono, t *task, err *model.Error) {
	t.failed(now, &p.backoff, err)
	if judge(err) != final {
		return
	}
	for _, m := range p.waiting {
		p.outcome(m, Outcome{Err: err})
	}
	p.waiting = nil
	for _, part := range p.order {
		for _, m := range part.takeUnsent() {
			p.outcome(m, Outcome{Partition: part.number, Err: err})
		}
	}
}

func (p *Producer) registered(now model.Mono, result call.ClientResult, err *model.Error) {
	r, ok := result.(*call.OpenProducerCallResult)
	if err != nil || !ok {
		p.setupFailed(now, &p.register, answered(err))
		return
	}
	p.register.succeeded()
	if p.epoch > 0 && (r.ID != p.id || r.Epoch <= p.epoch || uint64(r.Epoch-p.first) >= p.opens) {
		// More epochs went by than this producer asked for: somebody else opened
		// the name, and this one was replaced.
		p.fail(&model.Error{Code: model.FailedPrecondition, Reason: model.ReasonFenced, Expected: uint64(r.Epoch),
			Message: "producer " + p.cfg.Name + " was opened by another; use a name of its own for each"})
		return
	}
	if p.epoch == 0 {
		p.first = r.Epoch
	}
	p.id, p.epoch, p.more = r.ID, r.Epoch, false
	for _, part := range p.order {
		p.settle(part)
	}
}

// fail ends everything: the producer was fenced.
func (p *Producer) fail(err *model.Error) {
	p.fatal = err
	for _, m := range p.waiting {
		p.outcome(m, Outcome{Err: err})
	}
	p.waiting = nil
	for _, part := range p.order {
		for _, b := range part.all() {
			p.drop(part, b, err)
		}
		part.queue, part.filling = nil, nil
	}
}

// expire ends messages whose time is up. The oldest of a partition is its first.
func (p *Producer) expire(now model.Mono) {
	late := func(since model.Mono) bool { return now.Sub(since) >= p.cfg.DeliveryTimeout }
	for len(p.waiting) > 0 && late(p.waiting[0].since) {
		p.outcome(p.waiting[0], Outcome{Err: p.tooLate(nil)})
		p.waiting = p.waiting[1:]
	}
	for _, part := range p.order {
		for b := part.oldest(); b != nil && late(b.since); b = part.oldest() {
			part.remove(b)
			p.drop(part, b, p.tooLate(b))
			if b.sent {
				part.resetting = !p.cfg.NoProducer
			}
		}
		p.settle(part)
	}
}

func (p *Producer) tooLate(b *outgoing) *model.Error {
	why := "no attempt was possible"
	if b != nil && b.lastErr != nil {
		why = "last error: " + b.lastErr.Error()
	} else if err := p.setupErr(); err != nil {
		why = "last error: " + err.Error()
	}
	if b != nil && b.maybe() {
		return model.Reasoned(model.DeadlineExceeded, model.ReasonUnknownOutcome, 0,
			"not acknowledged within %v, and it may have been appended; %s", p.cfg.DeliveryTimeout, why)
	}
	return model.Errorf(model.DeadlineExceeded, "not published within %v; %s", p.cfg.DeliveryTimeout, why)
}

func (p *Producer) outcome(m pending, o Outcome) {
	o.Token = m.token
	p.outcomes = append(p.outcomes, o)
	p.messages--
	p.bytes -= m.encoded
	if p.messages == 0 {
		p.flush = false
	}
}
