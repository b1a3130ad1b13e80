package meta

import (
	"math"
	"time"
	"unicode/utf8"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/filter"
	"github.com/tapedeck/tapedeck/core/model"
)

// Bounds of settings.
const (
	minRetention = time.Second
	// Below it a topic could not take what a dead letter says of itself.
	minMessageBytes = 1 << 10
	maxRetention    = 30 * 24 * time.Hour
	minPatience     = time.Second // of ack deadline and session timeout
	maxPatience     = 10 * time.Minute
	maxBackoff      = time.Hour
	maxAttempts     = 1000
	maxInFlight     = 1_000_000
	minExpiry       = time.Minute
)

// validate refuses what no state could make right.
func validate(req call.Request) *model.Error {
	switch r := req.(type) {
	case *call.CreateTopic:
		if err := model.ValidateName("name", r.Name); err != nil {
			return err
		}
		if len(r.Owner) > model.MaxNameBytes || !utf8.ValidString(r.Owner) {
			return model.Invalid("owner", "must be text of at most %d bytes", model.MaxNameBytes)
		}
		if err := validateTopic(r.Partitions, r.Settings); err != nil {
			return err
		}
		return validateRetentions(topicDefaults(r.Settings))
	case *call.UpdateTopic:
		if err := model.ValidateName("topic", r.Name); err != nil {
			return err
		}
		return validateTopic(r.Partitions, r.Settings)
	case *call.DeleteTopic:
		return model.ValidateName("topic", r.Name)
	case *call.CreateSubscription:
		return validateNewSubscription(r)
	case *call.UpdateSubscription:
		if _, _, err := model.SplitRef("subscription", r.Subscription); err != nil {
			return err
		}
		return validateSettings(r.Settings)
	case *call.DeleteSubscription:
		_, _, err := model.SplitRef("subscription", r.Subscription)
		return err
	case *call.OpenProducer:
		return model.ValidateName("name", r.Name)
	}
	return nil
}

func validateTopic(partitions uint32, s model.TopicSettings) *model.Error {
	switch {
	case partitions > model.MaxPartitions:
		return model.Invalid("partitions", "is %d; at most %d are allowed", partitions, model.MaxPartitions)
	case s.Replicas != 0 && s.Replicas != 1 && s.Replicas != 3 && s.Replicas != 5:
		return model.Invalid("replicas", "is %d; use 1, 3 or 5", s.Replicas)
	case s.MaxMessageBytes != 0 && s.MaxMessageBytes < minMessageBytes || s.MaxMessageBytes > model.MaxMessageBytes:
		return model.Invalid("max_message_bytes", "is %d; it may be %d to %d: a message counts with its key, its "+
			"attributes and 18 bytes of its own", s.MaxMessageBytes, minMessageBytes, model.MaxMessageBytes)
	}
	if err := within("retention_time", s.RetentionTime, minRetention, maxRetention); err != nil {
		return err
	}
	if err := within("local_retention_time", s.LocalRetentionTime, minRetention, maxRetention); err != nil {
		return err
	}
	return nil
}

// validateRetentions looks at a topic's settings with the defaults filled in.
func validateRetentions(s model.TopicSettings) *model.Error {
	if s.LocalRetentionTime > s.RetentionTime {
		return model.Invalid("local_retention_time", "is %v, more than the retention_time of %v",
			s.LocalRetentionTime, s.RetentionTime)
	}
	return nil
}

// within refuses a duration outside [least, most]; zero means "not given".
func within(field string, d, least, most time.Duration) *model.Error {
	if d != 0 && (d < least || d > most) {
		return model.Invalid(field, "is %v; use %v to %v, or nothing for the default", d, least, most)
	}
	return nil
}

// topicDefaults fills what was not given, so that what is stored says itself
// what holds, and equal requests compare equal.
func topicDefaults(s model.TopicSettings) model.TopicSettings {
	fill(&s.Replicas, model.DefaultReplicas)
	fill(&s.RetentionTime, model.DefaultRetention)
	fill(&s.MaxMessageBytes, model.MaxMessageBytes)
	if s.RetentionBytes == math.MaxUint64 {
		s.RetentionBytes = 0
	}
	return s
}

func subscriptionDefaults(s model.SubscriptionSettings) model.SubscriptionSettings {
	fill(&s.AckDeadline, model.DefaultAckDeadline)
	fill(&s.SessionTimeout, model.DefaultSessionTimeout)
	return s
}

func fill[T comparable](field *T, with T) {
	var zero T
	if *field == zero {
		*field = with
	}
}

func validateNewSubscription(r *call.CreateSubscription) *model.Error {
	if err := model.ValidateName("topic", r.Topic); err != nil {
		return err
	}
	if err := model.ValidateName("name", r.Name); err != nil {
		return err
	}
	switch r.Start.Kind {
	case model.StartEarliest, model.StartLatest, model.StartTime:
	default:
		return model.Invalid("start", "kind %d is unknown; start at earliest, latest or a time", r.Start.Kind)
	}
	if len(r.StartsAt) > model.MaxPartitions {
		return model.Invalid("start", "has %d partitions; at most %d are allowed",
			len(r.StartsAt), model.MaxPartitions)
	}
	if err := validateSettings(r.Settings); err != nil {
		return err
	}
	return validateTogether(r.Settings)
}

// validateSettings looks at each field for itself.
func validateSettings(s model.SubscriptionSettings) *model.Error {
	if s.Mode != model.ModeOrdered && s.Mode != model.ModeShared {
		return model.Invalid("mode", "%d is unknown; use ordered or shared", s.Mode)
	}
	for _, d := range []struct {
		field              string
		value, least, most time.Duration
	}{
		{"ack_deadline", s.AckDeadline, minPatience, maxPatience},
		{"session_timeout", s.SessionTimeout, minPatience, maxPatience},
		{"min_backoff", s.MinBackoff, time.Millisecond, maxBackoff},
		{"max_backoff", s.MaxBackoff, time.Millisecond, maxBackoff},
		{"expire_when_unused_in", s.ExpireWhenUnusedIn, minExpiry, math.MaxInt64},
	} {
		if err := within(d.field, d.value, d.least, d.most); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		field       string
		value, most uint32
	}{
		{"max_delivery_attempts", s.MaxAttempts, maxAttempts},
		{"max_in_flight_per_member", s.MaxInFlightMember, maxInFlight},
		{"max_in_flight", s.MaxInFlight, maxInFlight},
	} {
		if n.value > n.most {
			return model.Invalid(n.field, "is %d; at most %d is allowed", n.value, n.most)
		}
	}
	if s.Filter != "" {
		if _, err := filter.Parse(s.Filter); err != nil {
			return model.Invalid("filter", "%v", err)
		}
	}
	if s.DeadLetterTopic != "" {
		return model.ValidateName("dead_letter_topic", s.DeadLetterTopic)
	}
	return nil
}

// validateTogether looks at what fields mean to each other.
func validateTogether(s model.SubscriptionSettings) *model.Error {
	switch {
	case s.MaxAttempts > 0 && s.DeadLetterTopic == "":
		return model.Invalid("max_delivery_attempts",
			"needs a dead_letter_topic: a message that used its attempts up is never dropped")
	case s.MaxAttempts == 0 && s.DeadLetterTopic != "":
		return model.Invalid("dead_letter_topic", "needs max_delivery_attempts to say when messages go there")
	case s.MinBackoff > s.MaxBackoff && s.MaxBackoff != 0:
		return model.Invalid("min_backoff", "is %v, more than the max_backoff of %v", s.MinBackoff, s.MaxBackoff)
	case s.KeyOrdered && s.Mode != model.ModeShared:
		return model.Invalid("key_ordered", "is for mode shared; mode ordered keeps the order of keys anyway")
	}
	return nil
}

// supported refuses what this version can define but not do yet.
func supported(s model.SubscriptionSettings) *model.Error {
	refuse := func(field, what string) *model.Error {
		return model.Errorf(model.Unimplemented, "%s: %s not offered by this version; leave it out", field, what)
	}
	switch {
	case s.ExpireWhenUnusedIn != 0:
		return refuse("expire_when_unused_in", "subscriptions that expire are")
	}
	return nil
}
