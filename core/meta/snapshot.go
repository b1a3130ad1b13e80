package meta

import (
	"fmt"
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

const snapshotVersion = 1

// Code implements wire.Coder: the whole state in its sorted order.
func (s *state) Code(c *wire.Codec) {
	c.Version(snapshotVersion)
	wire.Uint(c, &s.cluster)
	wire.Uint(c, &s.version)
	wire.Int(c, &s.clock)
	wire.Uint(c, &s.coordinators)
	wire.Uint(c, &s.nextGroup)
	wire.Uint(c, &s.nextReplica)
	wire.Uint(c, &s.nextTopic)
	wire.Uint(c, &s.nextSubscription)
	wire.Uint(c, &s.nextChange)
	wire.Slice(c, &s.nodes, pointed(CodeNode))
	wire.Slice(c, &s.groups, pointed(CodeGroup))
	wire.Slice(c, &s.topics, pointed(codeTopic))
	wire.Slice(c, &s.subscriptions, pointed(codeSubscription))
	wire.Slice(c, &s.producers, func(c *wire.Codec, p *producer) {
		wire.String(c, &p.name)
		wire.Uint(c, &p.epoch)
	})
}

// pointed makes a slice's element function of a value's.
func pointed[T any](each func(*wire.Codec, *T)) func(*wire.Codec, **T) {
	return func(c *wire.Codec, v **T) {
		if c.Decoding {
			*v = new(T)
		}
		each(c, *v)
	}
}

func codeTopic(c *wire.Codec, t *model.Topic) {
	wire.Uint(c, &t.ID)
	wire.String(c, &t.Name)
	wire.String(c, &t.Owner)
	call.CodeTopicSettings(c, &t.Settings)
	wire.Uint(c, &t.MapVersion)
	wire.Slice(c, &t.Partitions, func(c *wire.Codec, id *model.GroupID) { wire.Uint(c, id) })
	wire.Int(c, &t.Created)
}

func codeSubscription(c *wire.Codec, d *model.Subscription) {
	wire.Uint(c, &d.ID)
	wire.Uint(c, &d.Topic)
	wire.String(c, &d.TopicName)
	wire.String(c, &d.Name)
	wire.Uint(c, &d.Start.Kind)
	wire.Int(c, &d.Start.Time)
	wire.Slice(c, &d.StartsAt, func(c *wire.Codec, o *model.Offset) { wire.Uint(c, o) })
	call.CodeSubscriptionSettings(c, &d.Settings)
	wire.Uint(c, &d.Coordinator)
	wire.Int(c, &d.Created)
}

// restore reads a snapshot into a new state and checks what it must hold, so
// that bytes which are no snapshot of this build are refused, not believed.
func restore(snapshot []byte) (*state, error) {
	s := &state{}
	if err := wire.Decode(snapshot, s); err != nil {
		return nil, fmt.Errorf("restore meta: %w", err)
	}
	s.reindex()
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("restore meta: %w", err)
	}
	return s, nil
}

// check verifies the package's invariants; the error names the first broken one.
func (s *state) check() error {
	if s.coordinators == 0 || s.coordinators > MaxCoordinators || len(s.nodes) == 0 {
		return fmt.Errorf("%d coordinators and %d nodes", s.coordinators, len(s.nodes))
	}
	for i, n := range s.nodes {
		if i > 0 && s.nodes[i-1].ID >= n.ID {
			return fmt.Errorf("node %q is out of order", n.ID)
		}
	}
	if err := s.checkGroups(); err != nil {
		return err
	}
	if err := s.checkTopics(); err != nil {
		return err
	}
	for i, d := range s.subscriptions {
		if i > 0 && s.subscriptions[i-1].Ref() >= d.Ref() {
			return fmt.Errorf("subscription %q is out of order", d.Ref())
		}
		if d.ID == 0 || d.ID >= s.nextSubscription {
			return fmt.Errorf("subscription %q has id %d; the next is %d", d.Ref(), d.ID, s.nextSubscription)
		}
		if t, ok := s.Topic(d.TopicName); !ok || t.ID != d.Topic {
			return fmt.Errorf("subscription %q is of a topic that is not there", d.Ref())
		}
	}
	if len(s.index.subscriptionByID) != len(s.subscriptions) || len(s.index.producer) != len(s.producers) {
		return fmt.Errorf("a subscription's id or a producer's name is there twice")
	}
	return nil
}

func (s *state) checkGroups() error {
	for c := range s.coordinators {
		id := model.FirstCoordinatorGroup + model.GroupID(c)
		if g, ok := s.Group(id); !ok || g.Kind != model.GroupCoordinator {
			return fmt.Errorf("coordinator group %d is not there", id)
		}
	}
	replicas := map[model.ReplicaID]bool{}
	for i, g := range s.groups {
		if i > 0 && s.groups[i-1].ID >= g.ID || g.ID >= s.nextGroup {
			return fmt.Errorf("group %d is out of order; the next is %d", g.ID, s.nextGroup)
		}
		members := g.Replicas
		promoted := slices.ContainsFunc(members, func(r model.Replica) bool { return r.ID == g.Change.Add.ID && r.Learner })
		if g.Change.Add.ID != 0 && !promoted { // a learner that is to vote keeps its id
			members = append(slices.Clone(members), g.Change.Add)
		}
		for _, r := range members {
			if r.ID == 0 || r.ID >= s.nextReplica {
				return fmt.Errorf("group %d has replica %d; the next is %d", g.ID, r.ID, s.nextReplica)
			}
			if replicas[r.ID] {
				return fmt.Errorf("replica %d is there twice", r.ID)
			}
			replicas[r.ID] = true
		}
		if _, ok := s.index.topicByID[g.Topic]; g.Kind == model.GroupPartition && !ok {
			return fmt.Errorf("group %d is of topic %d, which is not there", g.ID, g.Topic)
		}
	}
	return nil
}

func (s *state) checkTopics() error {
	for i, t := range s.topics {
		if i > 0 && s.topics[i-1].Name >= t.Name {
			return fmt.Errorf("topic %q is out of order", t.Name)
		}
		if t.ID == 0 || t.ID >= s.nextTopic {
			return fmt.Errorf("topic %q has id %d; the next is %d", t.Name, t.ID, s.nextTopic)
		}
		for p, id := range t.Partitions {
			g, ok := s.Group(id)
			if !ok || g.Kind != model.GroupPartition || g.Topic != t.ID || g.Partition != model.Partition(p) {
				return fmt.Errorf("topic %q: partition %d is not group %d", t.Name, p, id)
			}
		}
	}
	if len(s.index.topicByID) != len(s.topics) {
		return fmt.Errorf("a topic's id is there twice")
	}
	return nil
}
