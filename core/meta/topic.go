package meta

import (
	"fmt"
	"math"
	"strings"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// Bounds of the whole state, which every node holds in memory and writes with
// each checkpoint.
const (
	maxTopics        = 10_000
	maxAllPartitions = 200_000
	maxSubscriptions = 100_000
	maxProducers     = 1_000_000
)

// apply carries a request out: a function of state and request alone. An error
// leaves the state as it was.
func (s *state) apply(req call.Request) (call.Response, *model.Error) {
	if err := validate(req); err != nil {
		return nil, err
	}
	var err *model.Error
	switch r := req.(type) {
	case *call.CreateTopic:
		err = s.createTopic(r)
	case *call.UpdateTopic:
		err = s.updateTopic(r)
	case *call.DeleteTopic:
		err = s.deleteTopic(r)
	case *call.CreateSubscription:
		err = s.createSubscription(r)
	case *call.UpdateSubscription:
		err = s.updateSubscription(r)
	case *call.DeleteSubscription:
		err = s.deleteSubscription(r)
	case *call.OpenProducer:
		return s.openProducer(r)
	case *call.JoinNode:
		err = s.joinNode(r)
	case *call.DrainNode:
		err = s.drainNode(r)
	case *call.RemoveNode:
		err = s.removeNode(r)
	case *call.RebuildNode:
		err = s.rebuildNode(r)
	case *call.MovePartition:
		err = s.movePartition(r)
	case *call.ReportChange:
		err = s.reportChange(r)
	default:
		panic(fmt.Sprintf("meta: %T passed as a change", req))
	}
	if err != nil {
		return nil, err
	}
	return &call.Done{MapVersion: s.version}, nil
}

func full(what string, limit int, then string) *model.Error {
	return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, retryAfter,
		"the cluster holds %d %s, its limit; %s", limit, what, then)
}

func (s *state) createTopic(r *call.CreateTopic) *model.Error {
	partitions, settings := r.Partitions, topicDefaults(r.Settings)
	if partitions == 0 {
		partitions = model.DefaultPartitions
	}
	if t, ok := s.Topic(r.Name); ok {
		return sameTopic(t, r.Owner, partitions, settings)
	}
	if err := s.enoughNodes(settings.Replicas); err != nil {
		return err
	}
	if len(s.topics) >= maxTopics {
		return full("topics", maxTopics, "delete some, or use fewer topics with more keys")
	}
	if err := s.enoughPartitions(partitions); err != nil {
		return err
	}
	t := &model.Topic{
		ID: s.nextTopic, Name: r.Name, Owner: r.Owner, Settings: settings, MapVersion: 1, Created: s.clock,
	}
	s.nextTopic++
	s.addPartitions(t, partitions)
	s.putTopic(t)
	return nil
}

// addPartitions raises a topic that nobody else holds yet to the given count.
func (s *state) addPartitions(t *model.Topic, to uint32) {
	groups := s.place(t.ID, uint32(len(t.Partitions)), to, t.Settings.Replicas)
	s.addGroups(groups)
	all := make([]model.GroupID, 0, to)
	all = append(all, t.Partitions...)
	for _, g := range groups {
		all = append(all, g.ID)
	}
	t.Partitions = all
}

func (s *state) enoughPartitions(more uint32) *model.Error {
	if s.partitionCount()+int(more) > maxAllPartitions {
		return full("partitions", maxAllPartitions, "delete topics, or ask for fewer partitions")
	}
	return nil
}

func (s *state) enoughNodes(replicas uint32) *model.Error {
	n := 0
	for _, node := range s.nodes {
		if !node.Draining && !node.Leaving {
			n++
		}
	}
	if int(replicas) <= n {
		return nil
	}
	most := 1
	if n >= 3 {
		most = 3
	}
	nodes := "nodes"
	if n == 1 {
		nodes = "node"
	}
	return model.Errorf(model.FailedPrecondition,
		"replicas: the topic would have %d replicas, but the cluster has %d %s; "+
			"pass replicas %d, or use a cluster of %d nodes",
		replicas, n, nodes, most, replicas)
}

// differences collects what an existing definition has and a request has not.
type differences []string

func differs[T comparable](d *differences, field string, there, asked T) {
	if there != asked {
		*d = append(*d, fmt.Sprintf("%s is %v, not %v", field, there, asked))
	}
}

func (d differences) err(what, name string) *model.Error {
	if len(d) == 0 {
		return nil
	}
	return model.Errorf(model.AlreadyExists, "%s %q exists with other settings: %s", what, name, strings.Join(d, ", "))
}

func sameTopic(t *model.Topic, owner string, partitions uint32, asked model.TopicSettings) *model.Error {
	var d differences
	there := t.Settings
	differs(&d, "partitions", uint32(len(t.Partitions)), partitions)
	differs(&d, "replicas", there.Replicas, asked.Replicas)
	differs(&d, "retention_time", there.RetentionTime, asked.RetentionTime)
	differs(&d, "retention_bytes", there.RetentionBytes, asked.RetentionBytes)
	differs(&d, "local_retention_time", there.LocalRetentionTime, asked.LocalRetentionTime)
	differs(&d, "max_message_bytes", there.MaxMessageBytes, asked.MaxMessageBytes)
	differs(&d, "owner", fmt.Sprintf("%q", t.Owner), fmt.Sprintf("%q", owner))
	return d.err("topic", t.Name)
}

// updateTopic changes the settings that are not zero in the request.
func (s *state) updateTopic(r *call.UpdateTopic) *model.Error {
	old, ok := s.Topic(r.Name)
	if !ok {
		return model.TopicNotFound(s, r.Name)
	}
	t := *old
	set := &t.Settings
	if n := r.Settings.Replicas; n != 0 && n != set.Replicas {
		return model.Errorf(model.Unimplemented,
			"replicas: topic %q has %d, which cannot be changed; make a new topic", r.Name, set.Replicas)
	}
	update(&set.RetentionTime, r.Settings.RetentionTime)
	update(&set.RetentionBytes, r.Settings.RetentionBytes)
	update(&set.LocalRetentionTime, r.Settings.LocalRetentionTime)
	update(&set.MaxMessageBytes, r.Settings.MaxMessageBytes)
	if set.RetentionBytes == math.MaxUint64 {
		set.RetentionBytes = 0
	}
	if err := validateRetentions(*set); err != nil {
		return err
	}
	have := uint32(len(t.Partitions))
	switch {
	case r.Partitions != 0 && r.Partitions < have:
		return model.Errorf(model.FailedPrecondition,
			"partitions: topic %q has %d; the number can be raised but not lowered", r.Name, have)
	case r.Partitions > have:
		if err := s.enoughNodes(t.Settings.Replicas); err != nil {
			return err
		}
		if err := s.enoughPartitions(r.Partitions - have); err != nil {
			return err
		}
		t.MapVersion++
		s.addPartitions(&t, r.Partitions)
	}
	s.putTopic(&t)
	return nil
}

// update sets a field to what was asked for; zero leaves it as it is.
func update[T comparable](field *T, asked T) {
	var zero T
	if asked != zero {
		*field = asked
	}
}

func (s *state) deleteTopic(r *call.DeleteTopic) *model.Error {
	t, ok := s.Topic(r.Name)
	if !ok {
		return model.TopicNotFound(s, r.Name)
	}
	subscriptions := s.subscriptionsOf(t)
	if why := s.heldBy(t, subscriptions); why != "" && !r.Force {
		return model.Errorf(model.FailedPrecondition, "topic %q %s", r.Name, why)
	}
	for _, d := range subscriptions {
		s.dropSubscription(d)
	}
	s.dropTopic(t)
	return nil
}

// heldBy says why a topic is deleted by force only; empty: there is no reason.
func (s *state) heldBy(t *model.Topic, own []*model.Subscription) string {
	var why []string
	if len(own) > 0 {
		why = append(why, fmt.Sprintf("has %s; delete them first, or pass force to delete them along with it",
			someNames(own)))
	}
	var from []*model.Subscription
	for _, d := range s.subscriptions {
		if d.Settings.DeadLetterTopic == t.Name {
			from = append(from, d)
		}
	}
	if len(from) > 0 {
		why = append(why, fmt.Sprintf("is the dead-letter topic of %s; update them to name another first, or pass force: "+
			"what they may not deliver any more then waits until there is one", someNames(from)))
	}
	return strings.Join(why, "; and it ")
}

// someNames lists subscriptions for people, at most ten by name.
func someNames(subscriptions []*model.Subscription) string {
	const most = 10
	var names []string
	for _, d := range subscriptions[:min(most, len(subscriptions))] {
		names = append(names, d.Ref())
	}
	if more := len(subscriptions) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	noun := "subscriptions"
	if len(subscriptions) == 1 {
		noun = "the subscription"
	}
	return noun + " " + strings.Join(names, ", ")
}

// openProducer gives a name its id, once and for all, and the next epoch.
func (s *state) openProducer(r *call.OpenProducer) (call.Response, *model.Error) {
	i, ok := s.index.producer[r.Name]
	if !ok {
		if len(s.producers) >= maxProducers {
			return nil, full("producer names", maxProducers, "open producers under names that are used again")
		}
		i = len(s.producers)
		s.producers = append(s.producers, producer{name: r.Name})
		s.index.producer[r.Name] = i
	}
	p := &s.producers[i]
	p.epoch++
	return &call.ProducerOpened{ID: model.ProducerID(i + 1), Epoch: p.epoch}, nil
}
