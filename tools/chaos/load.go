package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

// Shape of the load.
const (
	topicName  = "orders"
	partitions = 6
	keysEach   = 5 // keys of each producer
	callTime   = 10 * time.Second
	// sessionTimeout is short, so that a member that is gone is noticed in a run.
	sessionTimeout = 5 * time.Second
)

// loadConfig is how much is published and read.
type loadConfig struct {
	producers int
	rate      int // messages per second, all producers together; 0: as fast as it goes
	size      int // bytes of payload, on average
	replicas  uint32
	retention uint64 // bytes per partition; 0: all is kept
	consumers int    // members of each subscription
	seeker    bool   // a third subscription is rewound now and then
	reader    bool
	restarts  bool // clients end and come back
}

var subscriptions = []string{topicName + "/billing", topicName + "/audit"}

const seekRef = topicName + "/replay"

// place is where a message was acknowledged to be.
type place struct {
	partition uint32
	offset    uint64
}

// sentMessage is what the load knows of one message that a producer called.
type sentMessage struct {
	at    place
	acked bool
}

// load publishes to and reads from a cluster, and remembers what it was promised.
type load struct {
	cfg     loadConfig
	rec     *recorder
	cluster *cluster
	began   time.Time
	seed    uint64

	mu       sync.Mutex
	sent     map[uint64]sentMessage // by payload id
	ackTimes [partitions][]time.Duration
	failures map[string]int // of publishes, by reason

	acked, failed, delivered atomic.Int64
	lastAck                  atomic.Int64 // nanoseconds since began

	stopWriters, stopReaders context.CancelFunc
	writers, readers         sync.WaitGroup
}

func newLoad(cfg loadConfig, c *cluster, seed uint64) *load {
	l := &load{cfg: cfg, rec: newRecorder(), cluster: c, seed: seed,
		sent: map[uint64]sentMessage{}, failures: map[string]int{}}
	l.began = l.rec.began
	return l
}

// newClient makes a recorded client of its own that asks the given nodes.
func (l *load) newClient(noDirect bool, addresses ...string) *client.Client {
	c, err := client.New(client.Config{
		Addresses: addresses, HTTP: l.rec.client(), NoDirect: noDirect, CallTimeout: callTime,
	})
	if err != nil {
		panic(err) // the addresses are this program's own
	}
	return c
}

// shuffled lists the nodes in an order of this client's own.
func (l *load) shuffled(rng *rand.Rand) []string {
	all := slices.Clone(l.cluster.addresses())
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// define makes topic and subscriptions.
func (l *load) define(ctx context.Context) error {
	c := l.newClient(false, l.cluster.addresses()...)
	defer c.Close()
	if _, err := c.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{
		Name: topicName, Partitions: partitions, Replicas: l.cfg.replicas, RetentionBytes: l.cfg.retention,
	}); err != nil {
		return fmt.Errorf("create the topic: %w", err)
	}
	refs := subscriptions
	if l.cfg.seeker {
		refs = append(slices.Clone(refs), seekRef)
	}
	for _, ref := range refs {
		if _, err := c.CreateSubscription(ctx, &tapedeckv1.CreateSubscriptionRequest{
			Topic: topicName, Name: ref[len(topicName)+1:], SessionTimeout: durationpb.New(sessionTimeout),
		}); err != nil {
			return fmt.Errorf("create the subscription %s: %w", ref, err)
		}
	}
	return nil
}

// start begins to publish and to read.
func (l *load) start() {
	writing, stopWriters := context.WithCancel(context.Background())
	reading, stopReaders := context.WithCancel(context.Background())
	l.stopWriters, l.stopReaders = stopWriters, stopReaders
	for i := range l.cfg.producers {
		l.writers.Go(func() { l.produce(writing, i) })
	}
	for i := range l.cfg.consumers {
		for k, ref := range subscriptions {
			l.readers.Go(func() { l.consume(reading, ref, 10*k+i) })
		}
	}
	if l.cfg.seeker {
		l.readers.Go(func() { l.consume(reading, seekRef, 99) })
		l.writers.Go(func() { l.seek(writing) })
	}
	if l.cfg.reader {
		l.writers.Go(func() { l.read(writing) })
		l.writers.Go(func() { l.look(writing) })
	}
}

// rng is an actor's own source.
func (l *load) rng(actor uint64) *rand.Rand { return rand.New(rand.NewPCG(l.seed, actor)) }

// produce publishes under one name, life after life, until ctx ends.
func (l *load) produce(ctx context.Context, number int) {
	rng := l.rng(uint64(100 + number))
	p := &writer{l: l, number: number, rng: rng}
	for ctx.Err() == nil {
		p.life(ctx)
	}
}

// writer is one producer over all its lives.
type writer struct {
	l      *load
	number int
	rng    *rand.Rand
	next   uint64 // number of the next message
}

func (w *writer) life(ctx context.Context) {
	l := w.l
	c := l.newClient(false, l.shuffled(w.rng)...)
	defer c.Close()
	p, err := c.NewProducer(ctx, topicName, client.WithProducerName(fmt.Sprintf("p%d", w.number)),
		client.WithDeliveryTimeout(90*time.Second), client.WithLinger(2*time.Millisecond))
	if err != nil {
		sleep(ctx, 200*time.Millisecond)
		return
	}
	life := ctx
	if l.cfg.restarts {
		until, cancel := context.WithTimeout(ctx, 5*time.Second+time.Duration(w.rng.Int64N(int64(15*time.Second))))
		defer cancel()
		life = until
	}
	w.publish(life, p)
	closing, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := p.Close(closing); err != nil {
		l.note("CLOSE: " + err.Error())
	}
}

// publish sends messages at the rate until ctx ends.
func (w *writer) publish(ctx context.Context, p *client.Producer) {
	const tick = 5 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	perTick, due := float64(w.l.cfg.rate)/float64(w.l.cfg.producers)*tick.Seconds(), 0.0
	for ctx.Err() == nil {
		if w.l.cfg.rate > 0 {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			// After a stall the rate is not made up for.
			due = min(due+perTick, 50+perTick)
		} else {
			due = 1
		}
		for ; due >= 1; due-- {
			if !w.one(ctx, p) {
				return
			}
		}
	}
}

// one publishes the next message.
func (w *writer) one(ctx context.Context, p *client.Producer) bool {
	l := w.l
	key := fmt.Sprintf("p%d-k%d", w.number, w.rng.IntN(keysEach))
	payload := payloadOf(w.rng, w.number, w.next, l.cfg.size)
	w.next++
	id := payloadID(payload)
	l.mu.Lock()
	l.sent[id] = sentMessage{}
	l.mu.Unlock()
	err := p.PublishAsync(ctx, &client.Message{Key: []byte(key), Payload: payload}, func(r client.Result, err error) {
		if err != nil {
			l.failed.Add(1)
			l.note(reasonOf(err))
			return
		}
		at := time.Since(l.began)
		l.acked.Add(1)
		l.lastAck.Store(int64(at))
		l.mu.Lock()
		l.sent[id] = sentMessage{at: place{r.Partition, r.Offset}, acked: true}
		if int(r.Partition) < partitions {
			l.ackTimes[r.Partition] = append(l.ackTimes[r.Partition], at)
		}
		l.mu.Unlock()
	})
	return err == nil
}

func (l *load) note(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures[reason]++
}

func reasonOf(err error) string {
	var e *client.Error
	if errors.As(err, &e) && e.Reason != "" {
		return e.Reason
	}
	return err.Error()
}

// payloadHead is the fixed part of a payload: producer and number.
const payloadHead = 12

// payloadOf makes a payload of about the size asked for, now and then a much
// larger one. It tells its producer and its number.
func payloadOf(rng *rand.Rand, producer int, number uint64, size int) []byte {
	n := size/2 + rng.IntN(size+1)
	if rng.IntN(500) == 0 {
		n = min(20*n, 500_000)
	}
	b := make([]byte, payloadHead+n)
	binary.BigEndian.PutUint32(b, uint32(producer))
	binary.BigEndian.PutUint64(b[4:], number)
	for at := payloadHead; at+8 <= len(b); at += 8 {
		binary.LittleEndian.PutUint64(b[at:], rng.Uint64())
	}
	return b
}

// consume reads a subscription under one member after another until ctx ends.
func (l *load) consume(ctx context.Context, ref string, number int) {
	rng := l.rng(uint64(1000 + number))
	for life := 0; ctx.Err() == nil; life++ {
		l.consumeLife(ctx, ref, fmt.Sprintf("c%d.%d", number, life), rng)
		sleep(ctx, time.Duration(rng.Int64N(int64(300*time.Millisecond))))
	}
}

func (l *load) consumeLife(ctx context.Context, ref, member string, rng *rand.Rand) {
	c := l.newClient(false, l.shuffled(rng)...)
	defer c.Close()
	if l.cfg.restarts {
		until, cancel := context.WithTimeout(ctx, 5*time.Second+time.Duration(rng.Int64N(int64(25*time.Second))))
		defer cancel()
		ctx = until
	}
	s, err := c.Subscribe(ctx, ref, client.WithMember(member, false), client.WithPullWait(2*time.Second))
	if err != nil {
		return
	}
	_ = s.Run(ctx, func(context.Context, *client.Message) error {
		l.delivered.Add(1)
		return nil
	})
}

// seek rewinds the subscription made for it.
func (l *load) seek(ctx context.Context) {
	rng := l.rng(2000)
	c := l.newClient(false, l.shuffled(rng)...)
	defer c.Close()
	for sleep(ctx, 3*time.Second+time.Duration(rng.Int64N(int64(8*time.Second)))) {
		req := &tapedeckv1.SeekRequest{Subscription: seekRef}
		switch rng.IntN(3) {
		case 0:
			req.Target = &tapedeckv1.SeekRequest_Latest{Latest: &emptypb.Empty{}}
		default:
			back := time.Duration(rng.Int64N(int64(4 * time.Second)))
			req.Target = &tapedeckv1.SeekRequest_Time{Time: timestamppb.New(time.Now().Add(-back))}
		}
		_, _ = c.Seek(ctx, req) // how it went is in the history
	}
}

// read fetches from one node after the other, without a subscription.
func (l *load) read(ctx context.Context) {
	rng := l.rng(3000)
	var ends [partitions]uint64
	var clients []*client.Client
	for _, n := range l.cluster.nodes {
		clients = append(clients, l.newClient(true, n.address))
	}
	for ctx.Err() == nil {
		p := rng.IntN(partitions)
		from := ends[p] - min(ends[p], rng.Uint64N(200))
		r, err := clients[rng.IntN(len(clients))].Fetch(ctx, client.FetchRequest{
			Topic: topicName, Partition: uint32(p), Offset: from, MaxMessages: 100, MaxBytes: 256 << 10,
		})
		if err == nil {
			ends[p] = max(ends[p], r.Next)
		} else if l.acked.Load() > 0 {
			ends[p] = max(ends[p], l.startOf(err))
		}
		sleep(ctx, 5*time.Millisecond)
	}
}

// startOf is where the log starts, if the error says so.
func (l *load) startOf(err error) uint64 {
	var e *client.Error
	if errors.As(err, &e) && e.Reason == client.ReasonOffsetTooOld {
		return e.Start + 200
	}
	return 0
}

// look asks for the state of topic and subscriptions.
func (l *load) look(ctx context.Context) {
	rng := l.rng(4000)
	c := l.newClient(false, l.shuffled(rng)...)
	defer c.Close()
	for sleep(ctx, 500*time.Millisecond) {
		_, _ = c.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: topicName})
		for _, ref := range subscriptions {
			_, _ = c.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: ref})
		}
	}
}

// awaitProgress waits until messages that were published after this call are
// acknowledged in every partition.
func (l *load) awaitProgress(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	since := time.Since(l.began)
	for {
		waiting := l.silentSince(since)
		if len(waiting) == 0 {
			return nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("no publish to the partitions %v was acknowledged for %v", waiting, within)
		}
	}
}

// silentSince lists partitions without an acknowledgement since a moment.
func (l *load) silentSince(since time.Duration) (silent []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.ackTimes {
		if n := len(l.ackTimes[p]); n == 0 || l.ackTimes[p][n-1] < since {
			silent = append(silent, p)
		}
	}
	return silent
}

// gapAfter is the longest time without an acknowledged publish to a partition
// that began about a moment.
func (l *load) gapAfter(partition uint32, at time.Duration) time.Duration {
	l.mu.Lock()
	times := slices.Clone(l.ackTimes[partition])
	l.mu.Unlock()
	const about = time.Second
	longest := time.Duration(0)
	for i := 1; i < len(times); i++ {
		if times[i-1] > at-about/5 && times[i-1] < at+about {
			longest = max(longest, times[i]-times[i-1])
		}
	}
	return longest
}
