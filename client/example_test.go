package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

// The way of a message: a topic, a subscription, a producer, a subscriber.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.New(client.Config{Addresses: exampleCluster()})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{Name: "orders"}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.CreateSubscription(ctx, &tapedeckv1.CreateSubscriptionRequest{
		Topic: "orders", Name: "billing",
	}); err != nil {
		log.Fatal(err)
	}

	producer, err := c.NewProducer(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	for _, what := range []string{"placed", "paid", "shipped"} {
		r, err := producer.Publish(ctx, &client.Message{Key: []byte("order-17"), Payload: []byte(what)})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("published %s at %d/%d\n", what, r.Partition, r.Offset)
	}
	if err := producer.Close(ctx); err != nil {
		log.Fatal(err)
	}

	subscriber, err := c.Subscribe(ctx, "orders/billing")
	if err != nil {
		log.Fatal(err)
	}
	for m, err := range subscriber.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("received %s %s\n", m.Key, m.Payload)
		if string(m.Payload) == "shipped" {
			m.Ack() // the loop does not come back for another
			break
		}
	}

	// Nothing was deleted by reading: fetch it from where it was.
	r, err := c.Fetch(ctx, client.FetchRequest{Topic: "orders", Offset: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("offset 1 is %s\n", r.Messages[0].Payload)

	var e *client.Error
	_, err = c.Subscribe(ctx, "orders/shipping")
	fmt.Println(errors.As(err, &e), e.Code)
	// Output:
	// published placed at 0/0
	// published paid at 0/1
	// published shipped at 0/2
	// received order-17 placed
	// received order-17 paid
	// received order-17 shipped
	// offset 1 is paid
	// true not_found
}

// A callback handles messages until it fails or the context ends; what it did
// not handle comes again.
func ExampleSubscriber_Run() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.New(client.Config{Addresses: exampleCluster()})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	prepare(ctx, c, "jobs", "workers", "one", "two")
	subscriber, err := c.Subscribe(ctx, "jobs/workers", client.WithConcurrency(4))
	if err != nil {
		log.Fatal(err)
	}
	err = subscriber.Run(ctx, func(_ context.Context, m *client.Message) error {
		fmt.Printf("%s\n", m.Payload)
		if string(m.Payload) == "two" {
			cancel()
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// one
	// two
	// <nil>
}
