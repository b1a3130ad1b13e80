package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/subscription"
)

// A message that is given back time and again goes to the dead-letter topic,
// once, over crashes of every node; the others are delivered in order.
func TestPoisonGoesToTheDeadLetterTopic(t *testing.T) {
	c := newCluster(t, 3, core.Limits{})
	c.createTopic("orders", 1, 3)
	c.createTopic("dead", 2, 3)
	for i := range 6 {
		c.publish("n1", "orders", "k", fmt.Sprint("m", i))
	}
	must[*call.CreateSubscriptionCallResult](t)(c.call("n2", &call.CreateSubscriptionCall{Topic: "orders", Name: "audit",
		Settings: model.SubscriptionSettings{MaxAttempts: 3, DeadLetterTopic: "dead", MinBackoff: time.Millisecond}}))
	const ref = "orders/audit"
	attempts := map[string]int{}
	for round := 0; len(attempts) < 6 || attempts["m2"] < 3; round++ {
		if round == 40 {
			t.Fatalf("attempts %v", attempts)
		}
		r := must[*call.PullResult](t)(c.call("n3", &call.Pull{Subscription: ref, Member: "a",
			MaxMessages: 1, Wait: time.Second}))
		for _, g := range r.Ranges {
			payload := payloadAt(t, g)
			attempts[payload]++
			if payload != "m2" {
				must[*call.AckCallResult](t)(c.call("n1", &call.Ack{Subscription: ref, Member: "a", Generation: r.Generation,
					UpTo: []call.PartitionOffset{{Offset: g.To}}}))
				continue
			}
			if int(g.Attempt) != attempts[payload] {
				t.Fatalf("attempt %d was told as %d", attempts[payload], g.Attempt)
			}
			must[*call.Empty](t)(c.call("n1", &call.Nack{Subscription: ref, Member: "a", Generation: r.Generation,
				Offsets: []call.PartitionOffset{{Offset: g.From}}}))
			for _, id := range c.names {
				c.crash(id)
				c.start(id)
			}
		}
	}
	if attempts["m2"] != 3 || attempts["m3"] != 1 {
		t.Fatalf("attempts %v", attempts)
	}
	letters := append(c.fetchAll("n1", "dead", 0), c.fetchAll("n1", "dead", 1)...)
	if len(letters) != 1 || letters[0] != "m2" {
		t.Fatalf("dead letters %q", letters)
	}
	target := batch.PartitionFor([]byte("k"), 2)
	f := must[*call.FetchResult](t)(c.call("n2", &call.Fetch{Topic: "dead", Partition: target}))
	ms, err := f.Batches[0].Messages(nil)
	if err != nil || len(ms) != 1 {
		t.Fatal(err, len(ms))
	}
	origin := map[string]string{}
	for _, a := range ms[0].Attributes {
		origin[a.Name] = a.Value
	}
	if origin[subscription.AttributeTopic] != "orders" || origin[subscription.AttributeOffset] != "2" ||
		origin[subscription.AttributeAttempts] != "3" {
		t.Fatalf("%v", origin)
	}
}

func payloadAt(t *testing.T, g call.PulledRange) string {
	t.Helper()
	for _, v := range g.Batches {
		ms, err := v.Messages(nil)
		if err != nil {
			t.Fatal(err)
		}
		if v.Base() <= g.From && g.From < v.Next() {
			return string(ms[g.From-v.Base()].Payload)
		}
	}
	t.Fatalf("%+v came without its batch", g.Range)
	return ""
}
