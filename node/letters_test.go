package node_test

import (
	"fmt"
	"strings"
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

// The cursor stands still when the dead-letter topic was deleted by force, and
// who looks is told so by any node; with another topic it goes on.
func TestADeletedDeadLetterTopicIsSaid(t *testing.T) {
	c := newCluster(t, 3, core.Limits{})
	c.createTopic("orders", 1, 3)
	c.createTopic("dead", 1, 3)
	c.publish("n1", "orders", "k", "poison")
	const ref = "orders/audit"
	must[*call.CreateSubscriptionCallResult](t)(c.call("n2", &call.CreateSubscriptionCall{Topic: "orders", Name: "audit",
		Settings: model.SubscriptionSettings{MaxAttempts: 1, DeadLetterTopic: "dead", MinBackoff: time.Millisecond}}))
	deletion := &call.DeleteTopic{Name: "dead"}
	_, err := c.call("n3", &call.Admin{Request: deletion})
	if err == nil || err.Code != model.FailedPrecondition || !strings.Contains(err.Message, ref) {
		t.Fatalf("deleted without force: %v", err)
	}
	deletion.Force = true
	must[*call.Done](t)(c.call("n3", &call.Admin{Request: deletion}))
	r := must[*call.PullResult](t)(c.call("n3", &call.Pull{Subscription: ref, Member: "a",
		MaxMessages: 1, Wait: time.Second}))
	must[*call.Empty](t)(c.call("n1", &call.Nack{Subscription: ref, Member: "a", Generation: r.Generation,
		Offsets: []call.PartitionOffset{{Offset: r.Ranges[0].From}}}))
	c.rest(time.Second)
	waiting := func() (n int) {
		for _, id := range c.names {
			n += c.load(id).DeadLetters
		}
		return n
	}
	const says = "waits: dead-letter topic dead is gone, and offset 0 is out of attempts"
	for _, id := range c.names {
		s := must[*call.GetSubscriptionResult](t)(c.call(id, &call.GetSubscription{Subscription: ref}))
		if p := s.Partitions[0]; p.Err != nil || p.Lag != 1 || !strings.HasPrefix(p.Waits, says) {
			t.Fatalf("%s says %+v", id, p)
		}
	}
	if n := waiting(); n != 1 || !c.noted("subscription orders/audit, partition 0 "+says) {
		t.Fatalf("%d wait; notices %q", n, c.notes)
	}
	c.createTopic("other", 1, 3)
	must[*call.Done](t)(c.call("n1", &call.Admin{Request: &call.UpdateSubscription{Subscription: ref,
		Settings: model.SubscriptionSettings{DeadLetterTopic: "other"}}}))
	c.until("the letter", func() bool { return waiting() == 0 && len(c.fetchAll("n1", "other", 0)) == 1 })
	s := must[*call.GetSubscriptionResult](t)(c.call("n2", &call.GetSubscription{Subscription: ref}))
	if p := s.Partitions[0]; p.Waits != "" || p.Cursor != 1 {
		t.Fatalf("afterwards %+v", p)
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
