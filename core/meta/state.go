package meta

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/model"
)

// state is what meta's group replicates, and the Catalog read from it. Slices
// and what they point to are replaced, never changed in place.
type state struct {
	cluster      uint64
	version      uint64     // applied index
	clock        model.Wall // the greatest moment an entry carried
	coordinators uint32

	// The next id of each kind; ids below are taken or were.
	nextGroup        model.GroupID
	nextReplica      model.ReplicaID
	nextTopic        model.TopicID
	nextSubscription model.SubscriptionID
	nextChange       uint64

	nodes         []*model.Node         // by name
	topics        []*model.Topic        // by name
	subscriptions []*model.Subscription // by reference
	groups        []*model.Group        // by id
	producers     []producer            // producers[i] has id i+1

	index indexes
}

// producer is a name that was opened; its id is its place in the list.
type producer struct {
	name  string
	epoch model.Epoch
}

// indexes find by key what the sorted lists hold; rebuilt at restore.
type indexes struct {
	topic            map[string]*model.Topic
	topicByID        map[model.TopicID]*model.Topic
	subscription     map[string]*model.Subscription
	subscriptionByID map[model.SubscriptionID]*model.Subscription
	group            map[model.GroupID]*model.Group
	producer         map[string]int // place in producers
}

func found(f Founding) *state {
	s := &state{
		cluster:          f.Cluster,
		coordinators:     f.Coordinators,
		nextGroup:        model.FirstPartitionGroup,
		nextReplica:      f.firstReplica(),
		nextTopic:        1,
		nextSubscription: 1,
		nextChange:       1,
	}
	for _, n := range f.Nodes {
		s.nodes = append(s.nodes, &n)
	}
	for _, g := range f.Groups() {
		s.groups = append(s.groups, &g)
	}
	s.reindex()
	return s
}

func (s *state) reindex() {
	s.index = indexes{
		topic:            map[string]*model.Topic{},
		topicByID:        map[model.TopicID]*model.Topic{},
		subscription:     map[string]*model.Subscription{},
		subscriptionByID: map[model.SubscriptionID]*model.Subscription{},
		group:            map[model.GroupID]*model.Group{},
		producer:         map[string]int{},
	}
	for _, t := range s.topics {
		s.index.topic[t.Name], s.index.topicByID[t.ID] = t, t
	}
	for _, d := range s.subscriptions {
		s.index.subscription[d.Ref()], s.index.subscriptionByID[d.ID] = d, d
	}
	for _, g := range s.groups {
		s.index.group[g.ID] = g
	}
	for i, p := range s.producers {
		s.index.producer[p.name] = i
	}
}

// Version implements model.Catalog.
func (s *state) Version() uint64 { return s.version }

// Topic implements model.Catalog.
func (s *state) Topic(name string) (*model.Topic, bool) {
	t, ok := s.index.topic[name]
	return t, ok
}

// TopicByID implements model.Catalog.
func (s *state) TopicByID(id model.TopicID) (*model.Topic, bool) {
	t, ok := s.index.topicByID[id]
	return t, ok
}

// Subscription implements model.Catalog.
func (s *state) Subscription(ref string) (*model.Subscription, bool) {
	d, ok := s.index.subscription[ref]
	return d, ok
}

// SubscriptionByID implements model.Catalog.
func (s *state) SubscriptionByID(id model.SubscriptionID) (*model.Subscription, bool) {
	d, ok := s.index.subscriptionByID[id]
	return d, ok
}

// Group implements model.Catalog.
func (s *state) Group(id model.GroupID) (*model.Group, bool) {
	g, ok := s.index.group[id]
	return g, ok
}

// Topics implements model.Catalog.
func (s *state) Topics() []*model.Topic { return s.topics }

// Subscriptions implements model.Catalog.
func (s *state) Subscriptions() []*model.Subscription { return s.subscriptions }

// Groups implements model.Catalog.
func (s *state) Groups() []*model.Group { return s.groups }

// Nodes implements model.Catalog.
func (s *state) Nodes() []*model.Node { return s.nodes }

func byTopicName(t *model.Topic, name string) int { return strings.Compare(t.Name, name) }

func bySubscriptionRef(d *model.Subscription, ref string) int { return strings.Compare(d.Ref(), ref) }

// putTopic adds a topic or replaces the one of its name.
func (s *state) putTopic(t *model.Topic) {
	s.topics = put(s.topics, t, t.Name, byTopicName)
	s.index.topic[t.Name], s.index.topicByID[t.ID] = t, t
}

func (s *state) dropTopic(t *model.Topic) {
	s.topics = drop(s.topics, func(o *model.Topic) bool { return o.ID == t.ID })
	s.groups = drop(s.groups, func(g *model.Group) bool { return g.Kind == model.GroupPartition && g.Topic == t.ID })
	delete(s.index.topic, t.Name)
	delete(s.index.topicByID, t.ID)
	for _, id := range t.Partitions {
		delete(s.index.group, id)
	}
}

func (s *state) putSubscription(d *model.Subscription) {
	s.subscriptions = put(s.subscriptions, d, d.Ref(), bySubscriptionRef)
	s.index.subscription[d.Ref()], s.index.subscriptionByID[d.ID] = d, d
}

func (s *state) dropSubscription(d *model.Subscription) {
	s.subscriptions = drop(s.subscriptions, func(o *model.Subscription) bool { return o.ID == d.ID })
	delete(s.index.subscription, d.Ref())
	delete(s.index.subscriptionByID, d.ID)
}

// addGroups appends groups whose ids are above all others.
func (s *state) addGroups(groups []*model.Group) {
	s.groups = append(slices.Clone(s.groups), groups...)
	for _, g := range groups {
		s.index.group[g.ID] = g
	}
}

// putGroup replaces a group that is there.
func (s *state) putGroup(g *model.Group) {
	i, _ := slices.BinarySearchFunc(s.groups, g.ID, func(o *model.Group, id model.GroupID) int {
		return cmp.Compare(o.ID, id)
	})
	s.groups = slices.Clone(s.groups)
	s.groups[i] = g
	s.index.group[g.ID] = g
}

// node finds a node by name.
func (s *state) node(id model.NodeID) (*model.Node, bool) {
	i, ok := slices.BinarySearchFunc(s.nodes, id, byNodeID)
	if !ok {
		return nil, false
	}
	return s.nodes[i], true
}

func byNodeID(n *model.Node, id model.NodeID) int { return cmp.Compare(n.ID, id) }

// putNode adds a node or replaces the one of its name.
func (s *state) putNode(n *model.Node) {
	s.nodes = put(s.nodes, n, string(n.ID), func(n *model.Node, id string) int { return cmp.Compare(string(n.ID), id) })
}

// subscriptionsOf lists a topic's subscriptions by reference.
func (s *state) subscriptionsOf(t *model.Topic) []*model.Subscription {
	var of []*model.Subscription
	for _, d := range s.subscriptions {
		if d.Topic == t.ID {
			of = append(of, d)
		}
	}
	return of
}

// coordinatorOf spreads subscriptions over the coordinator groups.
func (s *state) coordinatorOf(ref string) model.GroupID {
	return model.FirstCoordinatorGroup + model.GroupID(xxhash.Sum64String(ref)%uint64(s.coordinators))
}

func (s *state) partitionCount() int {
	n := 0
	for _, t := range s.topics {
		n += len(t.Partitions)
	}
	return n
}

// put returns a copy of the sorted list with v in place of what has its key.
func put[T any](list []*T, v *T, key string, compare func(*T, string) int) []*T {
	i, there := slices.BinarySearchFunc(list, key, compare)
	if there {
		list = slices.Clone(list)
		list[i] = v
		return list
	}
	return slices.Concat(list[:i], []*T{v}, list[i:])
}

// drop returns a copy of the list without what matches.
func drop[T any](list []*T, matches func(*T) bool) []*T {
	var kept []*T
	for _, v := range list {
		if !matches(v) {
			kept = append(kept, v)
		}
	}
	return kept
}
