package grouptest

import (
	"maps"
	"slices"

	"github.com/tapedeck/tapedeck/core/model"
)

// Catalog is a map of the cluster that tests fill by hand.
type Catalog struct {
	V      uint64 // raised by every Put and Delete
	topics map[string]*model.Topic
	subs   map[string]*model.Subscription
	groups map[model.GroupID]*model.Group
	nodes  map[model.NodeID]*model.Node
}

var _ model.Catalog = (*Catalog)(nil)

// NewCatalog makes an empty one at version 1.
func NewCatalog() *Catalog {
	return &Catalog{V: 1, topics: map[string]*model.Topic{}, subs: map[string]*model.Subscription{},
		groups: map[model.GroupID]*model.Group{}, nodes: map[model.NodeID]*model.Node{}}
}

// PutTopic adds or replaces a topic.
func (c *Catalog) PutTopic(t *model.Topic) { c.V++; c.topics[t.Name] = t }

// DeleteTopic removes a topic.
func (c *Catalog) DeleteTopic(name string) { c.V++; delete(c.topics, name) }

// PutSubscription adds or replaces a subscription.
func (c *Catalog) PutSubscription(s *model.Subscription) { c.V++; c.subs[s.Ref()] = s }

// DeleteSubscription removes a subscription.
func (c *Catalog) DeleteSubscription(ref string) { c.V++; delete(c.subs, ref) }

// PutGroup adds or replaces a group.
func (c *Catalog) PutGroup(g *model.Group) { c.V++; c.groups[g.ID] = g }

// PutNode adds or replaces a node.
func (c *Catalog) PutNode(n *model.Node) { c.V++; c.nodes[n.ID] = n }

// Version implements model.Catalog.
func (c *Catalog) Version() uint64 { return c.V }

// Topic implements model.Catalog.
func (c *Catalog) Topic(name string) (*model.Topic, bool) { t, ok := c.topics[name]; return t, ok }

// TopicByID implements model.Catalog.
func (c *Catalog) TopicByID(id model.TopicID) (*model.Topic, bool) {
	for _, t := range c.Topics() {
		if t.ID == id {
			return t, true
		}
	}
	return nil, false
}

// Subscription implements model.Catalog.
func (c *Catalog) Subscription(ref string) (*model.Subscription, bool) {
	s, ok := c.subs[ref]
	return s, ok
}

// SubscriptionByID implements model.Catalog.
func (c *Catalog) SubscriptionByID(id model.SubscriptionID) (*model.Subscription, bool) {
	for _, s := range c.Subscriptions() {
		if s.ID == id {
			return s, true
		}
	}
	return nil, false
}

// Group implements model.Catalog.
func (c *Catalog) Group(id model.GroupID) (*model.Group, bool) { g, ok := c.groups[id]; return g, ok }

// Topics implements model.Catalog.
func (c *Catalog) Topics() []*model.Topic { return inOrder(c.topics) }

// Subscriptions implements model.Catalog.
func (c *Catalog) Subscriptions() []*model.Subscription { return inOrder(c.subs) }

// Groups implements model.Catalog.
func (c *Catalog) Groups() []*model.Group { return inOrder(c.groups) }

// Nodes implements model.Catalog.
func (c *Catalog) Nodes() []*model.Node { return inOrder(c.nodes) }

func inOrder[K ~string | ~uint64, V any](m map[K]V) []V {
	var out []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}
