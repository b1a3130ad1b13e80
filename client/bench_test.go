package client_test

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/client"
)

// BenchmarkPublish publishes 100-byte messages to a cluster in this process:
// the client's, the brokers' and the disk's work share the machine.
func BenchmarkPublish(b *testing.B) {
	c := startCluster(b, 3).client(b)
	createTopic(b, c, "orders", 4)
	ctx := within(b, 5*time.Minute)
	p, err := c.NewProducer(ctx, "orders")
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 100)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		err := p.PublishAsync(ctx, &client.Message{Payload: payload}, func(_ client.Result, err error) {
			if err != nil {
				b.Error(err)
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		b.Fatal(err)
	}
}
