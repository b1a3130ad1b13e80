package live

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func duration(field string, d *durationpb.Duration) (time.Duration, *model.Error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, model.Invalid(field, "is not a duration: %v", err)
	}
	if d.AsDuration() < 0 {
		return 0, model.Invalid(field, "is negative: %v", d.AsDuration())
	}
	return d.AsDuration(), nil
}

func moment(field string, t *timestamppb.Timestamp) (model.Wall, *model.Error) {
	if t == nil {
		return 0, nil
	}
	if err := t.CheckValid(); err != nil {
		return 0, model.Invalid(field, "is not a moment: %v", err)
	}
	if s := t.GetSeconds(); s < -1<<33 || s > 1<<33 {
		return 0, model.Invalid(field, "%v is not between the years 1698 and 2242", t.AsTime())
	}
	return model.Wall(t.AsTime().UnixNano()), nil
}

func toPublish(req *tapedeckv1.PublishRequest) (*call.Publish, *model.Error) {
	c := &call.Publish{
		Topic:        req.GetTopic(),
		Messages:     make([]batch.Message, len(req.GetMessages())),
		HasPartition: req.Partition != nil,
		Partition:    model.Partition(req.GetPartition()),
	}
	if p := req.GetProducer(); p != nil {
		if p.GetId() == 0 || p.GetEpoch() == 0 {
			return nil, model.Invalid("producer", "has id %d and epoch %d; both start at 1 and come from OpenProducer",
				p.GetId(), p.GetEpoch())
		}
		c.Producer, c.Epoch = model.ProducerID(p.GetId()), model.Epoch(p.GetEpoch())
		c.Sequence, c.Start = model.Sequence(p.GetSequence()), p.GetStart()
	}
	for i, m := range req.GetMessages() {
		at, err := moment(fmt.Sprintf("messages[%d].event_time", i), m.GetEventTime())
		if err != nil {
			return nil, err
		}
		c.Messages[i] = batch.Message{
			Key: m.GetKey(), Payload: m.GetPayload(), Attributes: attributes(m.GetAttributes()), EventTime: at,
		}
	}
	return c, nil
}

func attributes(m map[string]string) []batch.Attribute {
	if len(m) == 0 {
		return nil
	}
	out := make([]batch.Attribute, 0, len(m))
	for name, value := range m {
		out = append(out, batch.Attribute{Name: name, Value: value})
	}
	slices.SortFunc(out, func(a, b batch.Attribute) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func toPublishBatch(req *tapedeckv1.PublishBatchRequest) *call.PublishBatch {
	return &call.PublishBatch{
		Topic: req.GetTopic(), Partition: model.Partition(req.GetPartition()), Batch: req.GetBatch(), Start: req.GetStart(),
	}
}

// toAck keeps one entry per offset; partitions are in the order named.
func toAck(req *tapedeckv1.AckRequest) *call.Ack {
	c := &call.Ack{
		Subscription: req.GetSubscription(), Member: model.MemberID(req.GetMember()),
		Generation: model.Generation(req.GetGeneration()),
	}
	for _, u := range req.GetUpTo() {
		c.UpTo = append(c.UpTo, call.PartitionOffset{
			Partition: model.Partition(u.GetPartition()), Offset: model.Offset(u.GetNextOffset()),
		})
	}
	for _, s := range req.GetOffsets() {
		for _, o := range s.GetOffsets() {
			c.Offsets = append(c.Offsets, call.PartitionOffset{
				Partition: model.Partition(s.GetPartition()), Offset: model.Offset(o),
			})
		}
	}
	return c
}

func toExtendLease(req *tapedeckv1.ExtendLeaseRequest) (*call.ExtendLease, *model.Error) {
	extension, offsets, deliveries, err := timed("extension", req.GetExtension(), req.GetOffsets())
	if err != nil {
		return nil, err
	}
	return &call.ExtendLease{
		Subscription: req.GetSubscription(), Member: model.MemberID(req.GetMember()),
		Generation: model.Generation(req.GetGeneration()),
		Offsets:    offsets, Deliveries: deliveries, Extension: extension,
	}, nil
}

func toNack(req *tapedeckv1.NackRequest) (*call.Nack, *model.Error) {
	delay, offsets, deliveries, err := timed("delay", req.GetDelay(), req.GetOffsets())
	if err != nil {
		return nil, err
	}
	return &call.Nack{
		Subscription: req.GetSubscription(), Member: model.MemberID(req.GetMember()),
		Generation: model.Generation(req.GetGeneration()),
		Offsets:    offsets, Deliveries: deliveries, Delay: delay,
	}, nil
}

// timed reads what was delivered, and for how long it is held or held back.
func timed(field string, d *durationpb.Duration, sets []*tapedeckv1.DeliveredOffsets) (
	span time.Duration, offsets []call.PartitionOffset, deliveries []uint64, err *model.Error) {
	if span, err = duration(field, d); err == nil {
		offsets, deliveries, err = delivered(sets)
	}
	return span, offsets, deliveries, err
}

func delivered(
	sets []*tapedeckv1.DeliveredOffsets,
) (out []call.PartitionOffset, deliveries []uint64, err *model.Error) {
	for i, s := range sets {
		if d := len(s.GetDeliveries()); d != 0 && d != len(s.GetOffsets()) {
			return nil, nil, model.Invalid(fmt.Sprintf("offsets[%d].deliveries", i),
				"has %d entries for %d offsets; give none or one for each", d, len(s.GetOffsets()))
		}
		for _, o := range s.GetOffsets() {
			out = append(out, call.PartitionOffset{
				Partition: model.Partition(s.GetPartition()), Offset: model.Offset(o),
			})
		}
		deliveries = append(deliveries, s.GetDeliveries()...)
	}
	return out, deliveries, nil
}

func toSeek(req *tapedeckv1.SeekRequest) (*call.Seek, *model.Error) {
	c := &call.Seek{Subscription: req.GetSubscription()}
	for _, p := range req.GetPartitions() {
		c.Partitions = append(c.Partitions, model.Partition(p))
	}
	switch t := req.GetTarget().(type) {
	case *tapedeckv1.SeekRequest_Earliest:
		c.To.Kind = model.StartEarliest
	case *tapedeckv1.SeekRequest_Latest:
		c.To.Kind = model.StartLatest
	case *tapedeckv1.SeekRequest_Time:
		at, err := moment("time", t.Time)
		if err != nil {
			return nil, err
		}
		c.To = model.Start{Kind: model.StartTime, Time: at}
	case *tapedeckv1.SeekRequest_Offsets:
		c.To.Kind = model.StartOffsets
		for _, o := range t.Offsets.GetOffsets() {
			c.Offsets = append(c.Offsets, call.PartitionOffset{
				Partition: model.Partition(o.GetPartition()), Offset: model.Offset(o.GetOffset()),
			})
		}
		if len(c.Offsets) == 0 {
			return nil, model.Invalid("offsets", "is empty; name a partition and an offset")
		}
	case *tapedeckv1.SeekRequest_Snapshot:
		c.To.Kind, c.Snapshot = model.StartSnapshot, t.Snapshot
	default:
		return nil, model.Invalid("target", "is missing; give one of earliest, latest, time, offsets, snapshot")
	}
	return c, nil
}

// durations decodes several at once: field names and where they go.
func durations(fields ...durationField) *model.Error {
	for _, f := range fields {
		d, err := duration(f.name, f.from)
		if err != nil {
			return err
		}
		if f.from != nil {
			*f.to = d
		}
	}
	return nil
}

type durationField struct {
	name string
	from *durationpb.Duration
	to   *time.Duration
}

func toCreateTopic(req *tapedeckv1.CreateTopicRequest) (*call.CreateTopic, *model.Error) {
	c := &call.CreateTopic{
		Name: req.GetName(), Owner: req.GetOwner(), Partitions: req.GetPartitions(),
		Settings: model.TopicSettings{
			Replicas: req.GetReplicas(), RetentionBytes: req.GetRetentionBytes(), MaxMessageBytes: req.GetMaxMessageBytes(),
		},
	}
	err := durations(
		durationField{"retention_time", req.GetRetentionTime(), &c.Settings.RetentionTime},
		durationField{"local_retention_time", req.GetLocalRetentionTime(), &c.Settings.LocalRetentionTime},
	)
	return c, err
}

func toCreateSubscription(req *tapedeckv1.CreateSubscriptionRequest) (*call.CreateSubscriptionCall, *model.Error) {
	c := &call.CreateSubscriptionCall{Topic: req.GetTopic(), Name: req.GetName()}
	switch s := req.GetStart().(type) {
	case *tapedeckv1.CreateSubscriptionRequest_Latest:
		c.Start.Kind = model.StartLatest
	case *tapedeckv1.CreateSubscriptionRequest_Time:
		at, err := moment("time", s.Time)
		if err != nil {
			return nil, err
		}
		c.Start = model.Start{Kind: model.StartTime, Time: at}
	}
	switch req.GetMode() {
	case tapedeckv1.Mode_MODE_UNSPECIFIED, tapedeckv1.Mode_MODE_ORDERED:
	case tapedeckv1.Mode_MODE_SHARED:
		c.Settings.Mode = model.ModeShared
	default:
		return nil, model.Invalid("mode", "%d is not known; use MODE_ORDERED or MODE_SHARED", req.GetMode())
	}
	s := &c.Settings
	s.KeyOrdered, s.MaxAttempts = req.GetKeyOrdered(), req.GetMaxDeliveryAttempts()
	s.DeadLetterTopic = req.GetDeadLetterTopic()
	s.MaxInFlightMember, s.MaxInFlight = req.GetMaxInFlightPerMember(), req.GetMaxInFlight()
	s.Filter = req.GetFilter()
	err := durations(
		durationField{"ack_deadline", req.GetAckDeadline(), &s.AckDeadline},
		durationField{"session_timeout", req.GetSessionTimeout(), &s.SessionTimeout},
		durationField{"min_backoff", req.GetMinBackoff(), &s.MinBackoff},
		durationField{"max_backoff", req.GetMaxBackoff(), &s.MaxBackoff},
		durationField{"expire_when_unused_in", req.GetExpireWhenUnusedIn(), &s.ExpireWhenUnusedIn},
	)
	return c, err
}

// toUpdateTopic: what the request does not hold is zero, which meta leaves as it is.
func toUpdateTopic(req *tapedeckv1.UpdateTopicRequest) (*call.UpdateTopic, *model.Error) {
	c := &call.UpdateTopic{Name: req.GetTopic(), Partitions: req.GetPartitions()}
	if req.Partitions != nil && req.GetPartitions() == 0 {
		return nil, model.Invalid("partitions", "is 0; a topic has at least one, and their number only grows")
	}
	s := &c.Settings
	if s.RetentionBytes = req.GetRetentionBytes(); req.RetentionBytes != nil && s.RetentionBytes == 0 {
		s.RetentionBytes = 1<<64 - 1 // lifts the bound
	}
	if s.MaxMessageBytes = req.GetMaxMessageBytes(); req.MaxMessageBytes != nil && s.MaxMessageBytes == 0 {
		s.MaxMessageBytes = model.MaxMessageBytes
	}
	err := durations(
		durationField{"retention_time", req.GetRetentionTime(), &s.RetentionTime},
		durationField{"local_retention_time", req.GetLocalRetentionTime(), &s.LocalRetentionTime},
	)
	return c, err
}

// toUpdateSubscription: what the request does not hold is zero, which meta leaves as it is.
func toUpdateSubscription(req *tapedeckv1.UpdateSubscriptionRequest) (*call.UpdateSubscription, *model.Error) {
	c := &call.UpdateSubscription{Subscription: req.GetSubscription()}
	s := &c.Settings
	s.MaxAttempts, s.DeadLetterTopic, s.Filter = req.GetMaxDeliveryAttempts(), req.GetDeadLetterTopic(), req.GetFilter()
	s.MaxInFlightMember, s.MaxInFlight = req.GetMaxInFlightPerMember(), req.GetMaxInFlight()
	for _, f := range []struct {
		name      string
		set, zero bool
	}{
		{"max_delivery_attempts", req.MaxDeliveryAttempts != nil, s.MaxAttempts == 0},
		{"dead_letter_topic", req.DeadLetterTopic != nil, s.DeadLetterTopic == ""},
		{"filter", req.Filter != nil, s.Filter == ""},
		{"max_in_flight_per_member", req.MaxInFlightPerMember != nil, s.MaxInFlightMember == 0},
		{"max_in_flight", req.MaxInFlight != nil, s.MaxInFlight == 0},
	} {
		if f.set && f.zero && f.name == "filter" {
			return nil, model.Invalid(f.name, "is empty; true takes everything, and left out it stays as it is")
		}
		if f.set && f.zero {
			return nil, model.Invalid(f.name, "cannot be taken away again in this version: leave it out to keep it")
		}
	}
	err := durations(
		durationField{"ack_deadline", req.GetAckDeadline(), &s.AckDeadline},
		durationField{"session_timeout", req.GetSessionTimeout(), &s.SessionTimeout},
		durationField{"min_backoff", req.GetMinBackoff(), &s.MinBackoff},
		durationField{"max_backoff", req.GetMaxBackoff(), &s.MaxBackoff},
		durationField{"expire_when_unused_in", req.GetExpireWhenUnusedIn(), &s.ExpireWhenUnusedIn},
	)
	return c, err
}
