package meta

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// Three machines see the same entries: one leads, one follows, one is restored
// from a snapshot now and then. They must agree byte for byte, keep the
// package's invariants, and never give an id twice.
func TestMachinesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := founding(rapid.IntRange(1, 7).Draw(t, "nodes"))
		h := newHost()
		leader, follower, restored := New(f), New(f), New(f)
		seen := ids{}
		for ref := range group.Ref(rapid.IntRange(1, 60).Draw(t, "steps")) {
			h.wall = model.Wall(rapid.Int64Range(1, 1000).Draw(t, "wall"))
			leader.Handle(h, ref, drawRequest(t))
			if rapid.Bool().Draw(t, "commit") {
				h.commit(leader, follower, restored)
			}
			if rapid.IntRange(0, 9).Draw(t, "restore") == 0 {
				fresh := New(founding(2))
				if err := fresh.Restore(restored.Snapshot()); err != nil {
					t.Fatalf("restore: %v", err)
				}
				restored = fresh
			}
			if err := leader.state.check(); err != nil {
				t.Fatal(err)
			}
			seen.note(t, leader.Catalog())
		}
		h.commit(leader, follower, restored)
		a, b, c := leader.Snapshot(), follower.Snapshot(), restored.Snapshot()
		if !bytes.Equal(a, b) || !bytes.Equal(a, c) {
			t.Fatalf("snapshots differ:\n%x\n%x\n%x", a, b, c)
		}
	})
}

// ids remembers what each id was first seen to name.
type ids struct {
	topics        map[model.TopicID]string
	subscriptions map[model.SubscriptionID]string
	groups        map[model.GroupID]model.TopicID
	replicas      map[model.ReplicaID]model.GroupID
	gone          map[any]bool // ids once there and now not
}

func (s *ids) note(t *rapid.T, c model.Catalog) {
	if s.topics == nil {
		*s = ids{map[model.TopicID]string{}, map[model.SubscriptionID]string{}, map[model.GroupID]model.TopicID{},
			map[model.ReplicaID]model.GroupID{}, map[any]bool{}}
	}
	for _, topic := range c.Topics() {
		once(t, s, s.topics, topic.ID, topic.Name)
	}
	for _, d := range c.Subscriptions() {
		once(t, s, s.subscriptions, d.ID, d.Ref())
	}
	for _, g := range c.Groups() {
		once(t, s, s.groups, g.ID, g.Topic)
		for _, r := range g.Replicas {
			once(t, s, s.replicas, r.ID, g.ID)
		}
	}
	for id := range s.topics {
		if _, there := c.TopicByID(id); !there {
			s.gone[id] = true
		}
	}
	for id := range s.subscriptions {
		if _, there := c.SubscriptionByID(id); !there {
			s.gone[id] = true
		}
	}
	for id := range s.groups {
		if _, there := c.Group(id); !there {
			s.gone[id] = true
		}
	}
}

func once[K, V comparable](t *rapid.T, s *ids, named map[K]V, id K, name V) {
	if first, there := named[id]; there && first != name {
		t.Fatalf("id %v names %v, after %v", id, name, first)
	}
	if s.gone[id] {
		t.Fatalf("id %v of %v is back", id, name)
	}
	named[id] = name
}

func drawRequest(t *rapid.T) call.Request {
	name := rapid.SampledFrom([]string{"a", "b", "ab", "Bad", ""}).Draw(t, "name")
	ref := name + "/" + rapid.SampledFrom([]string{"s", "t"}).Draw(t, "subscription")
	partitions := rapid.Uint32Range(0, 6).Draw(t, "partitions")
	settings := model.TopicSettings{
		Replicas:       rapid.SampledFrom([]uint32{0, 1, 1, 3, 5}).Draw(t, "replicas"),
		RetentionBytes: rapid.Uint64Range(0, 2).Draw(t, "bytes"),
	}
	of := model.SubscriptionSettings{
		AckDeadline: time.Duration(rapid.IntRange(0, 2).Draw(t, "deadline")) * time.Second,
	}
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		return &call.CreateTopic{Name: name, Partitions: partitions, Settings: settings}
	case 1:
		settings.Replicas = 0
		return &call.UpdateTopic{Name: name, Partitions: partitions, Settings: settings}
	case 2:
		return &call.DeleteTopic{Name: name, Force: rapid.Bool().Draw(t, "force")}
	case 3:
		return &call.CreateSubscription{Topic: name, Name: "s", Settings: of, StartsAt: make([]model.Offset, partitions/3)}
	case 4:
		return &call.UpdateSubscription{Subscription: ref, Settings: of}
	case 5:
		return &call.DeleteSubscription{Subscription: ref}
	}
	return &call.OpenProducer{Name: name}
}
