package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/emptypb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func createTopic(t testing.TB, c *client.Client, name string, partitions uint32, subscriptions ...string) {
	t.Helper()
	ctx := within(t, 30*time.Second)
	if _, err := c.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{Name: name, Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	for _, s := range subscriptions {
		if _, err := c.CreateSubscription(ctx, &tapedeckv1.CreateSubscriptionRequest{Topic: name, Name: s}); err != nil {
			t.Fatal(err)
		}
	}
}

// publishMany publishes count messages over ten keys and checks that each
// landed once, in order.
func publishMany(t testing.TB, c *client.Client, topic string, count int, opts ...client.ProducerOption) {
	t.Helper()
	ctx := within(t, time.Minute)
	p, err := c.NewProducer(ctx, topic, opts...)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	where := map[string]int{}
	offsets := make([]uint64, count)
	for i := range count {
		key := fmt.Sprint("key", i%10)
		err := p.PublishAsync(ctx, &client.Message{
			Key: []byte(key), Payload: fmt.Appendf(nil, "%s %d %s", key, i, strings.Repeat("x", 100)),
			Attributes: map[string]string{"n": fmt.Sprint(i)},
		}, func(r client.Result, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("message %d: %v", i, err)
				return
			}
			place := fmt.Sprintf("%d/%d", r.Partition, r.Offset)
			if was, ok := where[place]; ok {
				t.Errorf("messages %d and %d are both at %s", was, i, place)
			}
			where[place], offsets[i] = i, r.Offset
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if len(where) != count {
		t.Fatalf("%d of %d messages have a place", len(where), count)
	}
	for i := 10; i < count; i++ {
		if offsets[i] <= offsets[i-10] { // of one key
			t.Errorf("message %d is at %d, the key's one before it at %d", i, offsets[i], offsets[i-10])
		}
	}
	if _, err := p.Publish(ctx, &client.Message{}); !errors.Is(err, client.ErrClosed) {
		t.Fatalf("publishing with a closed producer: %v", err)
	}
}

// receive reads with Run until count different messages were processed.
func receive(t testing.TB, c *client.Client, subscription string, count int, opts ...client.SubscriberOption) {
	t.Helper()
	s, err := c.Subscribe(t.Context(), subscription, opts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	seen := map[string]bool{}
	last := map[uint32]uint64{}
	err = s.Run(ctx, func(_ context.Context, m *client.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if was, ok := last[m.Partition]; ok && m.Offset != was+1 {
			t.Errorf("partition %d: offset %d after %d", m.Partition, m.Offset, was)
		}
		last[m.Partition] = m.Offset
		if !strings.HasPrefix(string(m.Payload), string(m.Key)+" "+m.Attributes["n"]+" ") ||
			m.AppendTime.IsZero() || m.Generation == 0 {
			t.Errorf("message %+v", m)
		}
		seen[fmt.Sprintf("%d/%d", m.Partition, m.Offset)] = true
		if len(seen) == count {
			cancel()
		}
		return nil
	})
	if err != nil || len(seen) != count {
		t.Fatalf("%d of %d messages: %v", len(seen), count, err)
	}
}

func lag(t testing.TB, c *client.Client, subscription string) (lag uint64) {
	t.Helper()
	s, err := c.GetSubscription(within(t, 30*time.Second), &tapedeckv1.GetSubscriptionRequest{Subscription: subscription})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.GetPartitions() {
		lag += p.GetLag()
	}
	return lag
}

func TestPublishAndReceive(t *testing.T) {
	cl := startCluster(t, 3)
	c := cl.client(t)
	const count = 3000
	createTopic(t, c, "orders", 4, "mail", "audit")
	publishMany(t, c, "orders", count/3)
	publishMany(t, c, "orders", count/3, client.WithCompression(client.Zstd))
	publishMany(t, c, "orders", count/3, client.WithCompression(client.S2), client.WithBatchLimits(4<<10, 100))
	receive(t, c, "orders/mail", count, client.WithConcurrency(4))
	receive(t, c, "orders/audit", count, client.WithBuffer(50))
	if n := lag(t, c, "orders/mail"); n != 0 {
		t.Errorf("lag %d after all was processed and the subscriber left", n)
	}

	// Read again from the beginning, with the iterator, and leave in the middle.
	if _, err := c.Seek(t.Context(), &tapedeckv1.SeekRequest{
		Subscription: "orders/mail", Target: &tapedeckv1.SeekRequest_Earliest{Earliest: &emptypb.Empty{}},
	}); err != nil {
		t.Fatal(err)
	}
	s, err := c.Subscribe(t.Context(), "orders/mail")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range s.Messages(within(t, time.Minute)) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 101 {
			break // the last one is not acked
		}
	}
	if got := lag(t, c, "orders/mail"); got != count-100 {
		t.Errorf("lag %d after 100 of %d were processed", got, count)
	}
}

func TestFetchReadsFromAnOffset(t *testing.T) {
	c := startCluster(t, 3).client(t)
	createTopic(t, c, "orders", 1)
	publishMany(t, c, "orders", 500, client.WithCompression(client.S2))
	var got int
	for next := uint64(7); next < 500; {
		r, err := c.Fetch(t.Context(), client.FetchRequest{Topic: "orders", Offset: next, MaxMessages: 100})
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range r.Messages {
			if m.Offset != next+uint64(i) {
				t.Fatalf("offset %d at place %d from %d", m.Offset, i, next)
			}
		}
		got += len(r.Messages)
		next = r.Next
	}
	if got != 493 {
		t.Fatalf("%d messages of 493", got)
	}
	var e *client.Error
	_, err := c.Fetch(t.Context(), client.FetchRequest{Topic: "orders", Offset: 1000})
	if !errors.As(err, &e) || e.Reason != client.ReasonOffsetTooNew || e.End != 500 {
		t.Fatalf("beyond the end: %+v", e)
	}
	_, err = c.Subscribe(t.Context(), "orders/nobody")
	if !errors.As(err, &e) || e.Code != connect.CodeNotFound {
		t.Fatalf("subscribing to nothing: %v", err)
	}
	if _, err := c.NewProducer(t.Context(), "nothing"); !errors.As(err, &e) || e.Code != connect.CodeNotFound {
		t.Fatalf("publishing to nothing: %v", err)
	}
}

// TestMembersShareAndTakeOver: two members share the partitions; one ends, and
// the other gets the rest.
func TestMembersShareAndTakeOver(t *testing.T) {
	c := startCluster(t, 3).client(t)
	createTopic(t, c, "orders", 4, "mail")
	var mu sync.Mutex
	seen := map[string]int{}
	by := [4]int{} // messages by member; the last: times that half was reached
	half, all := make(chan struct{}), make(chan struct{})
	const count = 2000
	run := func(ctx context.Context, who int) func() {
		s, err := c.Subscribe(ctx, "orders/mail", client.WithAckInterval(-1))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			done <- s.Run(ctx, func(_ context.Context, m *client.Message) error {
				mu.Lock()
				defer mu.Unlock()
				by[who]++
				seen[fmt.Sprintf("%d/%d", m.Partition, m.Offset)]++
				switch len(seen) {
				case count / 2:
					if by[3]++; by[3] == 1 {
						close(half)
					}
				case count:
					close(all)
				}
				return nil
			})
		}()
		return func() {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	first, stop := context.WithCancel(t.Context())
	ended := run(first, 1)
	second, stopSecond := context.WithCancel(t.Context())
	endedSecond := run(second, 2)
	publishMany(t, c, "orders", count/2)
	await := func(what chan struct{}) {
		select {
		case <-what:
		case <-time.After(time.Minute):
			mu.Lock()
			t.Fatalf("%d of %d messages arrived", len(seen), count)
		}
	}
	await(half)
	stop()
	ended()
	publishMany(t, c, "orders", count/2)
	await(all)
	stopSecond()
	endedSecond()
	if n := lag(t, c, "orders/mail"); n != 0 {
		t.Errorf("lag %d", n)
	}
	if by[1] == 0 || by[2] < count/2 {
		t.Errorf("by member: %v", by)
	}
}

// TestALostNodeStopsNobody: a node dies under load; publishing and receiving go
// on, and nothing is lost or there twice.
func TestALostNodeStopsNobody(t *testing.T) {
	cl := startCluster(t, 3)
	c := cl.client(t)
	createTopic(t, c, "orders", 3, "mail")
	ctx := within(t, 2*time.Minute)
	p, err := c.NewProducer(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	const count = 600
	stored := map[string]bool{}
	var longest time.Duration
	for i := range count {
		if i == count/3 {
			cl.killLeader(t, c, "orders")
		}
		began := time.Now()
		r, err := p.Publish(ctx, &client.Message{
			Key: fmt.Appendf(nil, "key%d", i%10), Payload: fmt.Appendf(nil, "key%d %d ", i%10, i),
			Attributes: map[string]string{"n": fmt.Sprint(i)},
		})
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(began))
		stored[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] = true
	}
	if len(stored) != count {
		t.Fatalf("%d places for %d messages", len(stored), count)
	}
	t.Logf("longest wait for one publish: %v", longest)
	receive(t, c, "orders/mail", count)
	topic, err := c.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	var stands uint64
	for _, p := range topic.GetPartitions() {
		stands += p.GetHighWatermark()
	}
	if stands != count {
		t.Fatalf("%d messages are stored, %d were published", stands, count)
	}
}
