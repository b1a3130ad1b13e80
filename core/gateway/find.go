package gateway

import (
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/model"
)

// What a client names, it may know from another node that is ahead of this one.
// So nothing is refused by a catalog that may be behind: what is not found here is
// looked for once more after a refresh. What means all of something (all
// partitions of a topic, say) has no such sign, and is looked for freshly at once.

// refresh runs then once this node knows all that meta had committed at the call.
func (g *Gateway) refresh(rq *request, then func(*model.Error)) {
	g.ask(rq, model.MetaGroup, &call.Barrier{}, 0, func(resp call.Response, err *model.Error) {
		if err != nil {
			then(err)
			return
		}
		g.waitCatalog(rq, resp.(*call.Done).MapVersion, then)
	})
}

// find runs then with what look finds, in the catalog as it is or in a fresh one.
func find[T any](g *Gateway, rq *request, look func(model.Catalog) (T, *model.Error), then func(T)) {
	if v, err := look(g.h.Catalog()); err == nil && !g.cfg.Choice.Rare(choice.CatalogFetched) {
		then(v)
		return
	}
	fresh(g, rq, look, then)
}

// fresh runs then with what look finds in a fresh catalog; an error of look's is
// the request's answer.
func fresh[T any](g *Gateway, rq *request, look func(model.Catalog) (T, *model.Error), then func(T)) {
	g.refresh(rq, func(err *model.Error) {
		if err != nil {
			g.reply(rq, nil, err)
			return
		}
		v, err := look(g.h.Catalog())
		if err != nil {
			g.reply(rq, nil, err)
			return
		}
		then(v)
	})
}

// named is what a request names of a topic's partitions: the field it does that
// in, and the highest of them. Where it names none, zero will do: each topic has
// partition 0.
type named struct {
	field   string
	highest model.Partition
}

func (n named) within(t *model.Topic) *model.Error {
	if int(n.highest) < len(t.Partitions) {
		return nil
	}
	return model.Invalid(n.field, "is %d; topic %q has %d, counted from 0", n.highest, t.Name, len(t.Partitions))
}

// partitionsOf says what lists of offsets name, in a field of the request.
func partitionsOf(field string, lists ...[]call.PartitionOffset) named {
	n := named{field: field}
	for _, list := range lists {
		for _, o := range list {
			n.highest = max(n.highest, o.Partition)
		}
	}
	return n
}

// highestOf is the same for a list of partitions.
func highestOf(field string, parts []model.Partition) named {
	n := named{field: field}
	for _, p := range parts {
		n.highest = max(n.highest, p)
	}
	return n
}

// lookTopic looks for a topic that has the partitions.
func lookTopic(name string, n named) func(model.Catalog) (*model.Topic, *model.Error) {
	return func(c model.Catalog) (*model.Topic, *model.Error) {
		t, ok := c.Topic(name)
		if !ok {
			return nil, model.TopicNotFound(c, name)
		}
		return t, n.within(t)
	}
}

// subscribed is a subscription with its topic.
type subscribed struct {
	s *model.Subscription
	t *model.Topic
}

// lookSubscription looks for a subscription whose topic has the partitions.
func lookSubscription(ref string, n named) func(model.Catalog) (subscribed, *model.Error) {
	return func(c model.Catalog) (subscribed, *model.Error) {
		s, ok := c.Subscription(ref)
		if !ok {
			return subscribed{}, model.SubscriptionNotFound(c, ref)
		}
		t, ok := c.TopicByID(s.Topic)
		if !ok {
			return subscribed{}, model.SubscriptionNotFound(c, ref)
		}
		return subscribed{s, t}, n.within(t)
	}
}

// topic finds a topic that has the partitions.
func (g *Gateway) topic(rq *request, name string, n named, then func(*model.Topic)) {
	if err := model.ValidateName("topic", name); err != nil {
		g.reply(rq, nil, err)
		return
	}
	find(g, rq, lookTopic(name, n), then)
}

// subscription finds a subscription whose topic has the partitions.
func (g *Gateway) subscription(rq *request, ref string, n named,
	then func(*model.Subscription, *model.Topic)) {
	if _, _, err := model.SplitRef("subscription", ref); err != nil {
		g.reply(rq, nil, err)
		return
	}
	find(g, rq, lookSubscription(ref, n), func(f subscribed) { then(f.s, f.t) })
}
