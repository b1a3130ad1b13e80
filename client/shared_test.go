package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

// TestSharedSubscription: members compete; one of them gives every tenth message
// back once. All arrive, and the subscription ends empty.
func TestSharedSubscription(t *testing.T) {
	c := startCluster(t, 3).client(t)
	createTopic(t, c, "orders", 2)
	if _, err := c.CreateSubscription(t.Context(), &tapedeckv1.CreateSubscriptionRequest{Topic: "orders", Name: "work",
		Mode: tapedeckv1.Mode_MODE_SHARED, KeyOrdered: true}); err != nil {
		t.Fatal(err)
	}
	const count = 600
	publishMany(t, c, "orders", count)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	seen, nacked, by := map[string]bool{}, 0, [3]int{}
	var members sync.WaitGroup
	for who := range by {
		s, err := c.Subscribe(ctx, "orders/work", client.WithAckInterval(-1), client.WithBuffer(40))
		if err != nil {
			t.Fatal(err)
		}
		take := func(m *client.Message) {
			mu.Lock()
			defer mu.Unlock()
			if m.Offset%10 == 3 && m.Attempt == 1 {
				nacked++
				m.Nack(time.Millisecond)
				return
			}
			by[who]++
			seen[fmt.Sprintf("%d/%d", m.Partition, m.Offset)] = true
			if len(seen) == count {
				stop()
			}
		}
		members.Go(func() {
			if who > 0 { // one by its callback, the others by the loop
				if err := s.Run(ctx, func(_ context.Context, m *client.Message) error { take(m); return nil }); err != nil {
					t.Error(err)
				}
				return
			}
			for m, err := range s.Messages(ctx) {
				if err != nil {
					t.Error(err)
					return
				}
				m.Extend(time.Minute)
				take(m)
			}
		})
	}
	late := time.AfterFunc(time.Minute, stop)
	members.Wait()
	late.Stop()
	if len(seen) != count || nacked == 0 {
		t.Fatalf("%d of %d messages arrived, %d were given back, by member %v", len(seen), count, nacked, by)
	}
}

// TestNackInOrder: a message given back comes again, with its attempt counted
// and before what follows it.
func TestNackInOrder(t *testing.T) {
	c := startCluster(t, 3).client(t)
	createTopic(t, c, "orders", 1, "mail")
	publishMany(t, c, "orders", 50)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	s, err := c.Subscribe(ctx, "orders/mail", client.WithAckInterval(-1))
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(0)
	for m, err := range s.Messages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case m.Offset != next:
			t.Fatalf("offset %d came; %d was next", m.Offset, next)
		case m.Offset%20 == 15 && m.Attempt < 3:
			m.Nack(time.Millisecond)
			continue
		}
		if next++; next == 50 {
			m.Ack()
			break
		}
	}
	if n := lag(t, c, "orders/mail"); n != 0 || next != 50 {
		t.Fatalf("lag %d after %d", n, next)
	}
}
