package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/nats-io/nats.go"

	"github.com/tapedeck/tapedeck/bench"
)

const message = 1024

// line is the suite's line of that name.
type line struct {
	name    string
	streams int
	window  int
	rate    float64
	reads   bool // somebody reads meanwhile, and is timed
	consume int  // messages read back; 0: it is a line that publishes
}

func lines(quick bool) []line {
	all := []line{
		{name: "one-partition", streams: 1, window: 4096},
		{name: "eight-partitions", streams: 8, window: 8192},
		{name: "256-in-flight", streams: 1, window: 256},
		{name: "one-at-a-time", streams: 1, window: 1},
		{name: "steady-5000", streams: 1, window: 20_000, rate: 5000},
		{name: "end-to-end-5000", streams: 1, window: 20_000, rate: 5000, reads: true},
		{name: "consume-memory", streams: 1, window: 4096, consume: 50_000},
		{name: "consume-segments", streams: 1, window: 4096, consume: 100_000},
	}
	if quick {
		return []line{all[0], all[2], all[3], all[5]}
	}
	return all
}

// sender publishes with a window of asynchronous publishes.
type sender struct {
	line   *line
	js     nats.JetStreamContext
	names  []string
	began  time.Time
	mu     sync.Mutex
	ack    *hdrhistogram.Histogram
	ends   *hdrhistogram.Histogram
	count  int
	failed error
}

func (l *line) run(ctx context.Context, o *options, c *cluster) (*bench.Result, error) {
	nc, err := nats.Connect(strings.Join(c.urls, ","))
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := nc.JetStream(nats.PublishAsyncMaxPending(l.window + 1))
	if err != nil {
		return nil, err
	}
	s := &sender{line: l, js: js, ack: bench.NewHistogram(), ends: bench.NewHistogram()}
	for i := range l.streams {
		name := fmt.Sprintf("%s-%d", l.name, i)
		if err := makeStream(js, name, name); err != nil {
			return nil, err
		}
		defer js.DeleteStream(name) // best effort: the data folder goes, too
		s.names = append(s.names, name)
	}
	if l.consume > 0 {
		return s.consumed(ctx, o, c)
	}
	if l.reads {
		sub, err := js.Subscribe(s.names[0], s.received, nats.ManualAck(), nats.AckExplicit(), nats.DeliverAll(),
			nats.MaxAckPending(20_000))
		if err != nil {
			return nil, err
		}
		defer sub.Unsubscribe() // the connection closes next
	}
	s.began = time.Now()
	work, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { s.send(work, 0) })
	defer done.Wait()
	defer stop()
	return s.rounds(ctx, o, bench.ProcessMeter(c.pids))
}

func (s *sender) rounds(ctx context.Context, o *options, meter bench.Meter) (*bench.Result, error) {
	r := &bench.Result{Kind: "publish", Settings: fmt.Sprintf("%+v", *s.line)}
	for i := -1; i < o.rounds; i++ {
		s.swap()
		before, err := meter(ctx)
		if err != nil {
			return nil, err
		}
		began, self, length := time.Now(), bench.SelfCPU(), o.duration
		if i < 0 {
			length = o.warmup
		}
		select {
		case <-time.After(length):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		n, ack, ends, err := s.swap()
		if err != nil {
			return nil, err
		}
		took := time.Since(began).Seconds()
		after, err := meter(ctx)
		if err != nil {
			return nil, err
		}
		if i >= 0 {
			f := figures(n, took, before, after, bench.SelfCPU()-self)
			f.Ack, f.EndToEnd = bench.LatencyOf(ack), bench.LatencyOf(ends)
			r.Rounds = append(r.Rounds, f)
		}
	}
	r.Summarize()
	return r, nil
}

func figures(n int, took float64, before, after bench.Usage, self float64) bench.Figures {
	f := bench.Figures{Seconds: took, Messages: float64(n), NodesCPU: after.CPU - before.CPU, ClientCPU: self}
	f.PerSecond = f.Messages / took
	f.MBps = f.PerSecond * message / 1e6
	if f.NodesCPU > 0 && n > 0 {
		f.PerNodesSecond, f.PerCoreSecond = f.Messages/f.NodesCPU, f.Messages/(f.NodesCPU+self)
		f.WrittenPerAcked = (after.Written - before.Written) / (f.Messages * message)
	}
	return f
}

func (s *sender) swap() (n int, ack, ends *hdrhistogram.Histogram, err error) {
	freshAck, freshEnds := bench.NewHistogram(), bench.NewHistogram()
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ack, ends, err = s.count, s.ack, s.ends, s.failed
	s.count, s.ack, s.ends = 0, freshAck, freshEnds
	return n, ack, ends, err
}

func (s *sender) received(m *nats.Msg) {
	due := time.Duration(binary.LittleEndian.Uint64(m.Data))
	took := time.Since(s.began) - due
	s.mu.Lock()
	bench.Note(s.ends, took)
	s.mu.Unlock()
	_ = m.Ack() // asynchronous; one that is lost comes again
}

// flight is a publish without an answer yet.
type flight struct {
	due    time.Time
	future nats.PubAckFuture
}

// send publishes until ctx ends, or limit messages if that is not 0.
func (s *sender) send(ctx context.Context, limit int) {
	flights := make(chan flight, s.line.window-1) // and one that is waited for
	var waiter sync.WaitGroup
	waiter.Go(func() { s.await(flights) })
	defer waiter.Wait()
	defer close(flights)
	pace := bench.NewPacer()
	defer pace.Close()
	data := make([]byte, message)
	for n := 0; ctx.Err() == nil && (limit == 0 || n < limit); n++ {
		at := time.Now()
		if s.line.rate > 0 {
			at = s.began.Add(time.Duration(float64(n) / s.line.rate * 1e9))
			pace.Until(at)
		}
		binary.LittleEndian.PutUint64(data, uint64(at.Sub(s.began)))
		if s.line.window == 1 {
			_, err := s.js.Publish(s.names[0], data)
			s.note(at, err)
			continue
		}
		future, err := s.js.PublishAsync(s.names[n%len(s.names)], data)
		if err != nil {
			s.note(at, err)
			return
		}
		flights <- flight{at, future}
	}
}

func (s *sender) note(at time.Time, err error) {
	took := time.Since(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = err
		return
	}
	s.count++
	bench.Note(s.ack, took)
}

// await takes the answers in the order of publishing, which is nearly that of their coming.
func (s *sender) await(flights chan flight) {
	for f := range flights {
		select {
		case <-f.future.Ok():
			s.note(f.due, nil)
		case err := <-f.future.Err():
			s.note(f.due, err)
		}
	}
}

// consumed fills a stream and reads it, acked, once a round.
func (s *sender) consumed(ctx context.Context, o *options, c *cluster) (*bench.Result, error) {
	s.began = time.Now()
	s.send(ctx, s.line.consume)
	if s.failed != nil {
		return nil, s.failed
	}
	meter := bench.ProcessMeter(c.pids)
	r := &bench.Result{Kind: "consume", Settings: fmt.Sprintf("%+v", *s.line)}
	for range o.rounds {
		before, err := meter(ctx)
		if err != nil {
			return nil, err
		}
		self := bench.SelfCPU()
		took, err := s.pass(ctx)
		if err != nil {
			return nil, err
		}
		after, err := meter(ctx)
		if err != nil {
			return nil, err
		}
		f := figures(s.line.consume, took.Seconds(), before, after, bench.SelfCPU()-self)
		f.WrittenPerAcked = 0
		r.Rounds = append(r.Rounds, f)
	}
	r.Summarize()
	return r, nil
}

func (s *sender) pass(ctx context.Context) (time.Duration, error) {
	all := make(chan struct{})
	var began time.Time
	n := 0
	sub, err := s.js.Subscribe(s.names[0], func(m *nats.Msg) {
		if n++; n == 1 {
			began = time.Now()
		}
		_ = m.Ack() // asynchronous; one that is lost comes again
		if n == s.line.consume {
			close(all)
		}
	}, nats.ManualAck(), nats.AckExplicit(), nats.DeliverAll(), nats.MaxAckPending(20_000))
	if err != nil {
		return 0, err
	}
	defer sub.Unsubscribe() // the next pass has a consumer of its own
	select {
	case <-all:
		return time.Since(began), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(2 * time.Minute):
		return 0, fmt.Errorf("not all messages came within two minutes")
	}
}
