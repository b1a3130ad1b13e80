package meta

import (
	"slices"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func (s *state) createSubscription(r *call.CreateSubscription) *model.Error {
	t, ok := s.Topic(r.Topic)
	if !ok {
		return model.TopicNotFound(s, r.Topic)
	}
	ref, settings := r.Topic+"/"+r.Name, subscriptionDefaults(r.Settings)
	if d, ok := s.Subscription(ref); ok {
		return sameSubscription(d, r.Start, settings)
	}
	if err := s.validateDeadLetters(t.Name, settings); err != nil {
		return err
	}
	if err := supported(settings); err != nil {
		return err
	}
	if r.TopicID != 0 && r.TopicID != t.ID || len(r.StartsAt) > len(t.Partitions) {
		return model.Reasoned(model.Unavailable, model.ReasonStaleMap, retryAfter,
			"topic %q was deleted and made anew while the subscription's start was looked up; try again", r.Topic)
	}
	if len(s.subscriptions) >= maxSubscriptions {
		return full("subscriptions", maxSubscriptions, "delete some")
	}
	s.putSubscription(&model.Subscription{
		ID: s.nextSubscription, Topic: t.ID, TopicName: t.Name, Name: r.Name,
		Start: r.Start, StartsAt: slices.Clone(r.StartsAt), Settings: settings,
		Coordinator: s.coordinatorOf(ref), Created: s.clock,
	})
	s.nextSubscription++
	return nil
}

func sameSubscription(d *model.Subscription, start model.Start, asked model.SubscriptionSettings) *model.Error {
	var diff differences
	there := d.Settings
	differs(&diff, "start", describeStart(d.Start), describeStart(start))
	differs(&diff, "mode", describeMode(there.Mode), describeMode(asked.Mode))
	differs(&diff, "key_ordered", there.KeyOrdered, asked.KeyOrdered)
	differs(&diff, "ack_deadline", there.AckDeadline, asked.AckDeadline)
	differs(&diff, "session_timeout", there.SessionTimeout, asked.SessionTimeout)
	differs(&diff, "max_delivery_attempts", there.MaxAttempts, asked.MaxAttempts)
	differs(&diff, "dead_letter_topic", there.DeadLetterTopic, asked.DeadLetterTopic)
	differs(&diff, "min_backoff", there.MinBackoff, asked.MinBackoff)
	differs(&diff, "max_backoff", there.MaxBackoff, asked.MaxBackoff)
	differs(&diff, "max_in_flight_per_member", there.MaxInFlightMember, asked.MaxInFlightMember)
	differs(&diff, "max_in_flight", there.MaxInFlight, asked.MaxInFlight)
	differs(&diff, "filter", there.Filter, asked.Filter)
	differs(&diff, "expire_when_unused_in", there.ExpireWhenUnusedIn, asked.ExpireWhenUnusedIn)
	return diff.err("subscription", d.Ref())
}

func describeStart(s model.Start) string {
	switch s.Kind {
	case model.StartEarliest:
		return "earliest"
	case model.StartLatest:
		return "latest"
	}
	return time.Unix(0, int64(s.Time)).UTC().Format(time.RFC3339Nano)
}

func describeMode(m model.Mode) string {
	if m == model.ModeShared {
		return "shared"
	}
	return "ordered"
}

// updateSubscription changes the settings that are not zero in the request.
func (s *state) updateSubscription(r *call.UpdateSubscription) *model.Error {
	old, ok := s.Subscription(r.Subscription)
	if !ok {
		return model.SubscriptionNotFound(s, r.Subscription)
	}
	if m := r.Settings.Mode; m != model.ModeOrdered && m != old.Settings.Mode {
		return model.Errorf(model.FailedPrecondition,
			"mode: subscription %q is %s, which cannot be changed; make another subscription",
			r.Subscription, describeMode(old.Settings.Mode))
	}
	if r.Settings.KeyOrdered && !old.Settings.KeyOrdered {
		return model.Errorf(model.FailedPrecondition,
			"key_ordered: cannot be changed; make another subscription beside %q", r.Subscription)
	}
	d := *old
	set, asked := &d.Settings, r.Settings
	update(&set.AckDeadline, asked.AckDeadline)
	update(&set.SessionTimeout, asked.SessionTimeout)
	update(&set.MaxAttempts, asked.MaxAttempts)
	update(&set.DeadLetterTopic, asked.DeadLetterTopic)
	update(&set.MinBackoff, asked.MinBackoff)
	update(&set.MaxBackoff, asked.MaxBackoff)
	update(&set.MaxInFlightMember, asked.MaxInFlightMember)
	update(&set.MaxInFlight, asked.MaxInFlight)
	update(&set.Filter, asked.Filter)
	update(&set.ExpireWhenUnusedIn, asked.ExpireWhenUnusedIn)
	if err := validateTogether(*set); err != nil {
		return err
	}
	if err := s.validateDeadLetters(d.TopicName, *set); err != nil {
		return err
	}
	if err := supported(*set); err != nil {
		return err
	}
	s.putSubscription(&d)
	return nil
}

func (s *state) deleteSubscription(r *call.DeleteSubscription) *model.Error {
	d, ok := s.Subscription(r.Subscription)
	if !ok {
		return model.SubscriptionNotFound(s, r.Subscription)
	}
	s.dropSubscription(d)
	return nil
}

// validateDeadLetters refuses a dead-letter topic that is not there, and one
// whose own subscriptions would send a message back to where it came from.
func (s *state) validateDeadLetters(topic string, settings model.SubscriptionSettings) *model.Error {
	to := settings.DeadLetterTopic
	if to == "" {
		return nil
	}
	if _, ok := s.Topic(to); !ok {
		return model.TopicNotFound(s, to)
	}
	// edges are the dead-letter topics of each topic's subscriptions, in order.
	edges := map[string][]string{}
	for _, d := range s.subscriptions {
		if next := d.Settings.DeadLetterTopic; next != "" {
			edges[d.TopicName] = append(edges[d.TopicName], next)
		}
	}
	seen := map[string]bool{}
	paths := [][]string{{topic, to}}
	for len(paths) > 0 {
		path := paths[0]
		paths = paths[1:]
		at := path[len(path)-1]
		if at == topic {
			return model.Invalid("dead_letter_topic", "messages would go round in a circle: %s",
				strings.Join(path, " → "))
		}
		if seen[at] {
			continue
		}
		seen[at] = true
		for _, next := range edges[at] {
			paths = append(paths, append(slices.Clone(path), next))
		}
	}
	return nil
}
