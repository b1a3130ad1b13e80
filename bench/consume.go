package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/protobuf/types/known/emptypb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

// Readers says how a subscription is read.
type Readers struct {
	Members     int           `json:"members"`
	Concurrency int           `json:"concurrency"` // handlers of each member
	Buffer      int           `json:"buffer"`      // messages a member holds; 0: the client's own
	AckInterval time.Duration `json:"ackIntervalNs"`
	PullWait    time.Duration `json:"pullWaitNs"`
}

func (r *Readers) options() []client.SubscriberOption {
	var opts []client.SubscriberOption
	if r.Buffer > 0 {
		opts = append(opts, client.WithBuffer(r.Buffer))
	}
	if r.AckInterval != 0 {
		opts = append(opts, client.WithAckInterval(r.AckInterval))
	}
	if r.PullWait != 0 {
		opts = append(opts, client.WithPullWait(r.PullWait))
	}
	return append(opts, client.WithConcurrency(max(r.Concurrency, 1)))
}

// Consumption says what is read back: all that a topic holds, again and again.
type Consumption struct {
	Load             // that fills the topic, and its rounds
	Readers  Readers `json:"readers"`
	Messages int     `json:"messages"` // the topic holds at least
}

// Consume fills a topic and reads all of it, acked, by a new subscription for
// each pass. A pass is timed from the first message to the last ack's answer;
// a round is as many passes as fit into its duration, at least one.
func Consume(ctx context.Context, c *client.Client, k Consumption, meter Meter) (*Result, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	k.Readers.Members = max(k.Readers.Members, 1)
	held, err := fillTopic(ctx, c, &k)
	if err != nil {
		return nil, err
	}
	r := &Result{Name: k.Topic, Kind: "consume", Settings: k}
	if _, _, err := pass(ctx, c, &k, held); err != nil { // a warm-up
		return r, err
	}
	for range k.Rounds {
		var f Figures
		began, before, self, err := look(ctx, meter)
		if err != nil {
			return r, err
		}
		for first := true; first || time.Since(began) < k.Duration; first = false {
			n, took, err := pass(ctx, c, &k, held)
			if err != nil {
				return r, err
			}
			f.Messages, f.Seconds = f.Messages+float64(n), f.Seconds+took.Seconds()
		}
		_, after, selfAfter, err := look(ctx, meter)
		if err != nil {
			return r, err
		}
		f.rate(k.MessageBytes)
		f.spend(after.sub(before), selfAfter-self, k.MessageBytes)
		f.WrittenPerAcked = 0
		r.Rounds = append(r.Rounds, f)
	}
	r.Summarize()
	return r, nil
}

// fillTopic publishes what the topic lacks, and says how many messages it holds.
func fillTopic(ctx context.Context, c *client.Client, k *Consumption) (int64, error) {
	g, err := newGenerator(ctx, c, &k.Load)
	if err != nil {
		return 0, err
	}
	held, err := topicHolds(ctx, c, k.Topic)
	if err != nil || held >= int64(k.Messages) {
		return held, errors.Join(err, g.close(ctx))
	}
	var acked atomic.Int64
	full := make(chan struct{})
	lack := int64(k.Messages) - held
	g.accepted = func(client.Result, []byte) {
		if acked.Add(1) == lack {
			close(full)
		}
	}
	g.start(ctx)
	select {
	case <-full:
	case err = <-g.failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err = errors.Join(err, g.stop(ctx)); err != nil {
		return 0, fmt.Errorf("fill the topic: %w", err)
	}
	return topicHolds(ctx, c, k.Topic)
}

func topicHolds(ctx context.Context, c *client.Client, topic string) (sum int64, err error) {
	got, err := c.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: topic})
	if err != nil {
		return 0, err
	}
	for _, p := range got.GetPartitions() {
		if p.GetError() != nil {
			return 0, fmt.Errorf("partition %d: %s", p.GetPartition(), p.GetError().GetMessage())
		}
		sum += int64(p.GetHighWatermark() - p.GetLogStart())
	}
	return sum, nil
}

// pass reads everything once.
func pass(ctx context.Context, c *client.Client, k *Consumption, held int64) (int64, time.Duration, error) {
	sub, err := newSubscription(ctx, c, k.Topic, false)
	if err != nil {
		return 0, 0, err
	}
	defer dropSubscription(ctx, c, sub)
	work, stop := context.WithCancel(ctx)
	defer stop()
	var began atomic.Int64
	var count atomic.Int64
	origin := time.Now()
	err = readAll(work, c, sub, &k.Readers, func(*client.Message) {
		switch count.Add(1) {
		case 1:
			began.Store(int64(time.Since(origin)))
		case held:
			stop()
		}
	})
	took := time.Since(origin) - time.Duration(began.Load()) // the last acks were waited for
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return count.Load(), took, err
}

// newSubscription makes one on a topic, from its start or its end.
func newSubscription(ctx context.Context, c *client.Client, topic string, latest bool) (string, error) {
	req := &tapedeckv1.CreateSubscriptionRequest{Topic: topic, Name: fmt.Sprintf("bench-%016x", rand.Uint64())}
	if latest {
		req.Start = &tapedeckv1.CreateSubscriptionRequest_Latest{Latest: &emptypb.Empty{}}
	}
	if _, err := c.CreateSubscription(ctx, req); err != nil {
		return "", fmt.Errorf("make a subscription: %w", err)
	}
	return topic + "/" + req.Name, nil
}

func dropSubscription(ctx context.Context, c *client.Client, sub string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = c.DeleteSubscription(ctx, sub) // best effort: its topic may be deleted next
}

// readAll runs the members until ctx ends; each ends with its last acks answered.
func readAll(ctx context.Context, c *client.Client, sub string, r *Readers, each func(*client.Message)) error {
	var members sync.WaitGroup
	errs := make([]error, r.Members)
	for i := range r.Members {
		s, err := c.Subscribe(ctx, sub, r.options()...)
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			errs[i] = fmt.Errorf("subscribe: %w", err)
			break
		}
		members.Go(func() {
			errs[i] = s.Run(ctx, func(_ context.Context, m *client.Message) error {
				each(m)
				return nil
			})
		})
	}
	members.Wait()
	return errors.Join(errs...)
}

// EndToEnd publishes, reads the same messages by a subscription, and times them
// from the moment they were due to the moment a handler has them.
func EndToEnd(ctx context.Context, c *client.Client, l Load, readers Readers, meter Meter) (*Result, error) {
	readers.Members = max(readers.Members, 1)
	g, err := newGenerator(ctx, c, &l)
	if err != nil {
		return nil, err
	}
	g.unique = true
	sub, err := newSubscription(ctx, c, l.Topic, true)
	if err != nil {
		return nil, errors.Join(err, g.close(ctx))
	}
	defer dropSubscription(ctx, c, sub)
	var mu sync.Mutex
	got := NewHistogram()
	g.began = time.Now()
	work, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	began := make(chan time.Time, 1)
	go func() {
		at := <-began
		ended <- readAll(work, c, sub, &readers, func(m *client.Message) {
			due := time.Duration(binary.LittleEndian.Uint64(m.Payload))
			took := time.Since(at) - due
			mu.Lock()
			Note(got, took)
			mu.Unlock()
		})
	}()
	g.start(ctx)
	began <- g.began
	r := &Result{Name: l.Topic, Kind: "e2e", Settings: struct {
		Load
		Readers Readers `json:"readers"`
	}{l, readers}}
	err = g.rounds(ctx, r, meter, func(f *Figures) {
		fresh := NewHistogram()
		mu.Lock()
		var h *hdrhistogram.Histogram
		h, got = got, fresh
		mu.Unlock()
		f.EndToEnd = LatencyOf(h)
	})
	err = errors.Join(err, g.stop(ctx))
	stop()
	return r, errors.Join(err, <-ended)
}
