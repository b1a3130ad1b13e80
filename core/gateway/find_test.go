package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// newPartition is the group of the partition that newFake's topic gets by grow.
const newPartition = model.GroupID(9000)

// grow gives the topic a fourth partition, which version 11 of the catalog has.
func (f *fake) grow() {
	grown := *f.topics[0]
	grown.MapVersion++
	grown.Partitions = append(grown.Partitions, newPartition)
	f.topics, f.version = []*model.Topic{&grown}, 11
	f.groups = append(f.groups, &model.Group{ID: newPartition, Replicas: f.groups[0].Replicas})
}

// barrier answers the question for the newest catalog, which must be what is asked next.
func (f *fake) barrier() {
	f.t.Helper()
	a := f.next()
	if _, ok := a.req.(*call.Barrier); !ok || a.group != model.MetaGroup {
		f.t.Fatalf("group %d is asked a %T, not meta for the newest catalog", a.group, a.req)
	}
	f.answer(a, &call.Done{MapVersion: f.version})
}

// namesPartition is every request that names a partition of topic "orders".
func namesPartition(p model.Partition) []call.Client {
	at := []call.PartitionOffset{{Partition: 0}, {Partition: p, Offset: 1}}
	one := []batch.Message{{Payload: []byte("m")}}
	return []call.Client{
		&call.Publish{Topic: "orders", HasPartition: true, Partition: p, Messages: one},
		&call.PublishBatch{Topic: "orders", Partition: p, Batch: batch.Encode(one, batch.Options{})},
		&call.Fetch{Topic: "orders", Partition: p},
		&call.TransferPartition{Topic: "orders", Partition: p, To: "b"},
		&call.OpenProducerCall{Name: "till", Fence: true, Topic: "orders", Partitions: []model.Partition{0, p}},
		&call.Ack{Subscription: "orders/audit", Member: "m", UpTo: at},
		&call.Ack{Subscription: "orders/audit", Member: "m", Offsets: at},
		&call.Nack{Subscription: "orders/audit", Member: "m", Offsets: at},
		&call.ExtendLease{Subscription: "orders/audit", Member: "m", Offsets: at},
		&call.Seek{Subscription: "orders/audit", Partitions: []model.Partition{0, p}},
		&call.Seek{Subscription: "orders/audit", To: model.Start{Kind: model.StartOffsets}, Offsets: at},
	}
}

func TestAPartitionThatAClientKnowsFirstIsLookedFor(t *testing.T) {
	for i, c := range namesPartition(3) {
		t.Run(fmt.Sprintf("%d %T", i, c), func(t *testing.T) {
			f := newFake(t)
			f.request(1, c)
			f.grow()
			f.barrier()
			if r, ok := f.replies[1]; ok {
				t.Fatalf("it was answered: %v", r.err)
			}
			if f.next().group == model.MetaGroup {
				if _, ok := c.(*call.OpenProducerCall); !ok {
					t.Error("meta is asked again")
				}
			}
			f.g.Cancel(1)
			f.idle()
		})
	}
}

func TestAPartitionThatNobodyKnowsIsRefused(t *testing.T) {
	for i, c := range namesPartition(3) {
		t.Run(fmt.Sprintf("%d %T", i, c), func(t *testing.T) {
			f := newFake(t)
			f.request(1, c)
			f.barrier()
			if err := f.refused(1, ""); err.Code != model.InvalidArgument || err.Field == "" {
				t.Errorf("refused by %+v", err)
			}
			if len(f.asks) > 0 {
				t.Errorf("then a %T was asked for", f.asks[0].req)
			}
			f.idle()
		})
	}
	for _, c := range namesPartition(2) {
		f := newFake(t)
		f.request(1, c)
		if _, ok := f.next().req.(*call.Barrier); ok {
			t.Errorf("%T asks meta for what is known", c)
		}
	}
}

// What means all partitions means those too that this node has not heard of.
func TestAllPartitionsAreThoseOfAFreshCatalog(t *testing.T) {
	for _, c := range []call.Client{
		&call.Seek{Subscription: "orders/audit", To: model.Start{Kind: model.StartLatest}},
		&call.CreateSubscriptionCall{Topic: "orders", Name: "mail", Start: model.Start{Kind: model.StartLatest}},
		&call.OpenProducerCall{Name: "till", Topic: "orders", Fence: true},
		&call.GetTopic{Name: "orders"},
	} {
		f := newFake(t)
		f.request(1, c)
		if _, ok := c.(*call.OpenProducerCall); ok {
			f.answer(f.next(), &call.ProducerOpened{ID: 5, Epoch: 1})
		}
		f.grow()
		f.barrier()
		asked := map[model.GroupID]bool{}
		for len(f.asks) > 0 {
			asked[f.next().group] = true
		}
		if len(asked) != 4 || !asked[newPartition] {
			t.Errorf("%T: asked are %v", c, asked)
		}
	}
}

func TestWithoutMetaNothingIsRefusedAsUnknown(t *testing.T) {
	f := newFake(t)
	f.request(1, &call.Seek{Subscription: "orders/audit", Partitions: []model.Partition{7}})
	f.request(2, &call.TransferPartition{Topic: "elsewhere"})
	f.pass(6 * time.Second)
	f.refused(1, model.ReasonNoLeader)
	f.refused(2, model.ReasonNoLeader)
	f.idle()
}
