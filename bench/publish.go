package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tapedeck/tapedeck/client"
)

// Publish puts the load on the cluster and looks at it for its rounds. meter may be nil.
func Publish(ctx context.Context, c *client.Client, l Load, meter Meter) (*Result, error) {
	g, err := newGenerator(ctx, c, &l)
	if err != nil {
		return nil, err
	}
	r := &Result{Name: l.Topic, Kind: "publish", Settings: l}
	g.start(ctx)
	err = g.rounds(ctx, r, meter, nil)
	return r, errors.Join(err, g.stop(ctx))
}

// tally is what came in between two looks.
type tally struct {
	ack        *hdrhistogram.Histogram
	messages   int64
	errors     int64
	partitions []int64
	err        error // the first
}

// recorder gathers one producer's results.
type recorder struct {
	mu  sync.Mutex
	now *tally
}

func (g *generator) newTally() *tally {
	return &tally{ack: NewHistogram(), partitions: make([]int64, g.load.Partitions)}
}

// generator publishes until it is stopped.
type generator struct {
	load      *Load
	payload   []byte
	keys      [][]byte
	producers []*client.Producer
	recorders []*recorder
	began     time.Time
	halt      context.CancelFunc
	workers   sync.WaitGroup
	failed    chan error
	// unique gives each message bytes of its own, which begin with its due moment
	// in nanoseconds since began; numbered adds publisher and count.
	unique   bool
	accepted func(r client.Result, payload []byte) // of every ack, if set; may be called concurrently
}

// slot is a message's place in the window.
type slot struct {
	due     time.Time
	message client.Message
	then    func(client.Result, error)
}

func newGenerator(ctx context.Context, c *client.Client, l *Load) (*generator, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	partitions, err := MakeTopic(ctx, c, l.Topic, l.Partitions, l.Replicas)
	if err != nil {
		return nil, err
	}
	l.Partitions = partitions
	opts, err := l.producerOptions()
	if err != nil {
		return nil, err
	}
	g := &generator{load: l, payload: make([]byte, l.MessageBytes), failed: make(chan error, 1)}
	fill(g.payload)
	for k := range l.Keys {
		g.keys = append(g.keys, fmt.Appendf(nil, "key-%07d", k))
	}
	for range l.Producers {
		p, err := c.NewProducer(ctx, l.Topic, opts...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a producer: %w", err), g.close(ctx))
		}
		g.producers = append(g.producers, p)
		g.recorders = append(g.recorders, &recorder{now: g.newTally()})
	}
	return g, nil
}

// fill makes bytes that no compression shortens.
func fill(b []byte) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func (g *generator) start(ctx context.Context) {
	ctx, g.halt = context.WithCancel(ctx)
	g.began = time.Now()
	for i := range g.load.Publishers {
		g.workers.Go(func() {
			if err := g.publish(ctx, i); err != nil && ctx.Err() == nil {
				select {
				case g.failed <- fmt.Errorf("publish: %w", err):
				default:
				}
			}
		})
	}
}

func (g *generator) stop(ctx context.Context) error {
	g.halt()
	g.workers.Wait()
	return g.close(ctx)
}

func (g *generator) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	var err error
	for _, p := range g.producers {
		err = errors.Join(err, p.Close(ctx))
	}
	return err
}

// publish is one publisher.
func (g *generator) publish(ctx context.Context, number int) error {
	l := g.load
	producer, rec := g.producers[number%l.Producers], g.recorders[number%l.Producers]
	free := make(chan *slot, l.Window/l.Publishers)
	for range cap(free) {
		free <- g.newSlot(rec, free)
	}
	key := g.chooser(number)
	due := func(int) time.Time { return time.Now() }
	if l.Rate > 0 {
		pace := NewPacer()
		defer pace.Close()
		every := float64(time.Second) * float64(l.Publishers) / l.Rate
		first := g.began.Add(time.Duration(every * float64(number) / float64(l.Publishers)))
		due = func(n int) time.Time {
			at := first.Add(time.Duration(every * float64(n)))
			pace.Until(at)
			return at
		}
	}
	for n := 0; ctx.Err() == nil; n++ {
		at := due(n)
		var s *slot
		select {
		case s = <-free:
		case <-ctx.Done():
			return nil
		}
		s.due, s.message.Key = at, key()
		if l.Rate == 0 {
			s.due = time.Now()
		}
		if g.unique {
			binary.LittleEndian.PutUint64(s.message.Payload, uint64(s.due.Sub(g.began)))
			binary.LittleEndian.PutUint64(s.message.Payload[8:], uint64(number)<<48|uint64(n))
		}
		if err := producer.PublishAsync(ctx, &s.message, s.then); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) newSlot(rec *recorder, free chan *slot) *slot {
	s := &slot{message: client.Message{Payload: g.payload}}
	if g.unique {
		s.message.Payload = append([]byte(nil), g.payload...)
	}
	s.then = func(r client.Result, err error) {
		took := time.Since(s.due)
		rec.mu.Lock()
		t := rec.now
		if err != nil {
			t.errors++
			if t.err == nil {
				t.err = err
			}
		} else {
			t.messages++
			Note(t.ack, took)
			if int(r.Partition) < len(t.partitions) {
				t.partitions[r.Partition]++
			}
		}
		rec.mu.Unlock()
		if err == nil && g.accepted != nil {
			g.accepted(r, s.message.Payload)
		}
		free <- s
	}
	return s
}

// chooser draws keys, the same for each run.
func (g *generator) chooser(number int) func() []byte {
	if len(g.keys) == 0 {
		return func() []byte { return nil }
	}
	r := rand.New(rand.NewPCG(7, uint64(number)))
	if g.load.Zipf > 1 {
		z := rand.NewZipf(r, g.load.Zipf, 1, uint64(len(g.keys)-1))
		return func() []byte { return g.keys[z.Uint64()] }
	}
	return func() []byte { return g.keys[r.IntN(len(g.keys))] }
}

// swap takes what was tallied and begins anew.
func (g *generator) swap() *tally {
	sum := g.newTally()
	for _, r := range g.recorders {
		fresh := g.newTally()
		r.mu.Lock()
		t := r.now
		r.now = fresh
		r.mu.Unlock()
		sum.ack.Merge(t.ack)
		sum.messages += t.messages
		sum.errors += t.errors
		for p := range t.partitions {
			sum.partitions[p] += t.partitions[p]
		}
		if sum.err == nil {
			sum.err = t.err
		}
	}
	return sum
}

// rounds waits the warm-up and looks at each round. more adds to a round's figures.
func (g *generator) rounds(ctx context.Context, r *Result, meter Meter, more func(*Figures)) error {
	if err := g.wait(ctx, g.load.Warmup); err != nil {
		return err
	}
	for range g.load.Rounds {
		g.swap()
		if more != nil {
			more(&Figures{})
		}
		began, before, self, err := look(ctx, meter)
		if err != nil {
			return err
		}
		if err := g.wait(ctx, g.load.Duration); err != nil {
			return err
		}
		t := g.swap()
		took := time.Since(began)
		_, after, selfAfter, err := look(ctx, meter)
		if err != nil {
			return err
		}
		f := t.figures(took, g.load.MessageBytes)
		f.spend(after.sub(before), selfAfter-self, g.load.MessageBytes)
		if more != nil {
			more(&f)
		}
		r.Rounds = append(r.Rounds, f)
		if t.messages == 0 {
			return fmt.Errorf("no message was acknowledged within %v: %w", took.Round(time.Millisecond), t.err)
		}
		if t.err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("%d messages failed, the first: %v", t.errors, t.err))
		}
	}
	r.Summarize()
	return nil
}

func (g *generator) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-g.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look reads the clock and what has been used.
func look(ctx context.Context, meter Meter) (at time.Time, nodes Usage, self float64, err error) {
	if meter != nil {
		if nodes, err = meter(ctx); err != nil {
			return at, nodes, 0, err
		}
	}
	return time.Now(), nodes, SelfCPU(), nil
}

func (t *tally) figures(took time.Duration, messageBytes int) Figures {
	f := Figures{
		Seconds: took.Seconds(), Messages: float64(t.messages), Errors: float64(t.errors), Ack: LatencyOf(t.ack),
	}
	f.rate(messageBytes)
	for _, n := range t.partitions {
		f.Partitions = append(f.Partitions, float64(n)/took.Seconds())
	}
	return f
}

func (f *Figures) rate(messageBytes int) {
	f.PerSecond = f.Messages / f.Seconds
	f.MBps = f.PerSecond * float64(messageBytes) / 1e6
}

// spend adds what was used.
func (f *Figures) spend(nodes Usage, self float64, messageBytes int) {
	f.NodesCPU, f.ClientCPU = nodes.CPU, self
	if nodes.CPU > 0 {
		f.PerNodesSecond = f.Messages / nodes.CPU
		f.PerCoreSecond = f.Messages / (nodes.CPU + self)
	}
	if f.Messages > 0 {
		f.WrittenPerAcked = nodes.Written / (f.Messages * float64(messageBytes))
	}
}
