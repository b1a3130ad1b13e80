package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// Two members of a shared subscription compete for messages, by key, while the
// nodes crash; one message is given back until it is a dead letter.
func TestASharedSubscriptionAcrossNodes(t *testing.T) {
	c := newCluster(t, 3, core.Limits{})
	c.createTopic("orders", 2, 3)
	c.createTopic("dead", 1, 3)
	for i := range 30 {
		c.publish("n1", "orders", fmt.Sprint("k", i%5), fmt.Sprint("m", i))
	}
	must[*call.CreateSubscriptionCallResult](t)(c.call("n2", &call.CreateSubscriptionCall{Topic: "orders", Name: "work",
		Settings: model.SubscriptionSettings{Mode: model.ModeShared, KeyOrdered: true, MaxInFlightMember: 4,
			AckDeadline: time.Second, MaxAttempts: 3, DeadLetterTopic: "dead", MinBackoff: time.Millisecond}}))
	const ref = "orders/work"
	acked, last := map[string]bool{}, map[byte]int{}
	poison := 0
	for round := 0; len(acked) < 29 || poison < 3; round++ {
		if round == 200 {
			t.Fatalf("%d acked, m7 came %d times", len(acked), poison)
		}
		member := model.MemberID(fmt.Sprint("w", round%2))
		r := must[*call.PullResult](t)(c.call(c.names[round%3], &call.Pull{Subscription: ref, Member: member,
			MaxMessages: 3, Wait: 100 * time.Millisecond}))
		back := false
		for _, g := range r.Ranges {
			for o := g.From; o < g.To; o++ {
				one := g
				one.From, one.To = o, o+1
				payload := payloadAt(t, one)
				at := []call.PartitionOffset{{Partition: g.Partition, Offset: o}}
				if payload == "m7" {
					if poison++; int(g.Attempt) != poison && o == g.From {
						t.Fatalf("attempt %d was told as %d", poison, g.Attempt)
					}
					must[*call.Empty](t)(c.call("n1", &call.Nack{Subscription: ref, Member: member,
						Generation: r.Generation, Offsets: at, Deliveries: []uint64{r.Delivery}}))
					c.crash("n3")
					c.start("n3")
					back = true
					continue
				}
				var n int
				if _, err := fmt.Sscanf(payload, "m%d", &n); err != nil {
					t.Fatal(err)
				}
				if back && n%5 == 2 {
					continue // what follows of its key came back with it
				}
				res := must[*call.AckCallResult](t)(c.call("n1", &call.Ack{Subscription: ref, Member: member,
					Generation: r.Generation, Offsets: at}))
				if res.Results[0].Err != nil {
					t.Fatal(res.Results[0].Err)
				}
				if key := byte(n % 5); !acked[payload] && last[key] > n {
					t.Fatalf("%s came after m%d of its key", payload, last[key])
				} else {
					last[key] = max(last[key], n)
				}
				acked[payload] = true
			}
		}
	}
	for round := 0; ; round++ {
		letters := c.fetchAll("n1", "dead", 0)
		if len(letters) == 1 && letters[0] == "m7" && poison == 3 {
			break
		}
		if round == 50 || len(letters) > 1 {
			t.Fatalf("dead letters %q, m7 came %d times", letters, poison)
		}
		c.call("n2", &call.Pull{Subscription: ref, Member: "w0", Wait: 100 * time.Millisecond})
	}
}
