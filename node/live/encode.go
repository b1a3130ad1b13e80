package live

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// wall is a moment on the wire; 0 is none.
func wall(w model.Wall) *timestamppb.Timestamp {
	if w == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, int64(w)))
}

// span is a duration on the wire; 0 is none.
func span(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// numbers changes the type of each element.
func numbers[To, From ~uint32](in []From) []To {
	out := make([]To, len(in))
	for i := range in {
		out[i] = To(in[i])
	}
	return out
}

func nodeNames(in []model.NodeID) []string {
	out := make([]string, len(in))
	for i := range in {
		out[i] = string(in[i])
	}
	return out
}

// received is one message between storage and the wire.
type received struct {
	*batch.Message
	offset     model.Offset
	attributes map[string]string
	eventTime  *timestamppb.Timestamp
	appendTime *timestamppb.Timestamp
}

// eachMessage calls f for the messages of [from, to) in batches.
func eachMessage(batches []batch.View, from, to model.Offset, f func(m received)) *model.Error {
	for _, b := range batches {
		if b.Next() <= from || b.Base() >= to {
			continue
		}
		messages, err := b.Messages(unpack)
		if err != nil {
			return model.Errorf(model.DataLoss, "messages at offset %d cannot be decoded: %v", b.Base(), err)
		}
		appended := wall(b.AppendTime())
		for i := range messages {
			offset := b.Base() + model.Offset(i)
			if offset < from || offset >= to {
				continue
			}
			m := received{Message: &messages[i], offset: offset, eventTime: wall(messages[i].EventTime), appendTime: appended}
			if n := len(messages[i].Attributes); n > 0 {
				m.attributes = make(map[string]string, n)
				for _, a := range messages[i].Attributes {
					m.attributes[a.Name] = a.Value
				}
			}
			f(m)
		}
	}
	return nil
}

// run lays batches end to end.
func run(batches []batch.View) []byte {
	size := 0
	for _, b := range batches {
		size += len(b)
	}
	out := make([]byte, 0, size)
	for _, b := range batches {
		out = append(out, b...)
	}
	return out
}

func (n *Node) fromPublish(r *call.PublishResult) *tapedeckv1.PublishResponse {
	out := &tapedeckv1.PublishResponse{Results: make([]*tapedeckv1.PublishResult, len(r.Results))}
	for i := range r.Results {
		m := &r.Results[i]
		if m.Err != nil {
			out.Results[i] = &tapedeckv1.PublishResult{Partition: uint32(m.Partition), Error: n.wireStatus(m.Err)}
			continue
		}
		out.Results[i] = &tapedeckv1.PublishResult{
			Partition: uint32(m.Partition), Offset: uint64(m.Offset), Duplicate: m.Duplicate,
		}
	}
	return out
}

// commonError is the error of a publish none of whose messages arrived, when all
// have the same one; the call itself fails then.
func commonError(r *call.PublishResult) *model.Error {
	if len(r.Results) == 0 || r.Results[0].Err == nil {
		return nil
	}
	first := r.Results[0].Err
	for i := range r.Results {
		if e := r.Results[i].Err; e == nil || *e != *first {
			return nil
		}
	}
	return first
}

func fromFetch(req *tapedeckv1.FetchRequest, r *call.FetchResult) (*tapedeckv1.FetchResponse, *model.Error) {
	out := &tapedeckv1.FetchResponse{
		NextOffset: uint64(r.Next), HighWatermark: uint64(r.HighWatermark), LogStart: uint64(r.LogStart),
	}
	if req.GetRawBatches() {
		if len(r.Batches) > 0 {
			out.Ranges = []*tapedeckv1.BatchRange{{
				Partition: req.GetPartition(), From: uint64(r.Offset), To: uint64(r.Next), Run: run(r.Batches),
			}}
		}
		return out, nil
	}
	err := eachMessage(r.Batches, r.Offset, r.Next, func(m received) {
		out.Messages = append(out.Messages, &tapedeckv1.FetchedMessage{
			Partition: req.GetPartition(), Offset: uint64(m.offset), Key: m.Key, Payload: m.Payload,
			Attributes: m.attributes, EventTime: m.eventTime, AppendTime: m.appendTime,
		})
	})
	return out, err
}

func fromPull(raw bool, r *call.PullResult) (*tapedeckv1.PullResponse, *model.Error) {
	out := &tapedeckv1.PullResponse{Member: string(r.Member), Generation: uint64(r.Generation)}
	for _, s := range r.Skipped {
		out.Skipped = append(out.Skipped, &tapedeckv1.SkippedRange{
			Partition: uint32(s.Partition), From: uint64(s.From), To: uint64(s.To),
		})
	}
	for i := range r.Ranges {
		p := &r.Ranges[i]
		if raw {
			out.Ranges = append(out.Ranges, &tapedeckv1.BatchRange{
				Partition: uint32(p.Partition), From: uint64(p.From), To: uint64(p.To),
				Attempt: p.Attempt, Delivery: r.Delivery, Run: run(p.Batches),
			})
			continue
		}
		err := eachMessage(p.Batches, p.From, p.To, func(m received) {
			attempt := uint32(1)
			if m.offset == p.From {
				attempt = max(1, p.Attempt)
			}
			out.Messages = append(out.Messages, &tapedeckv1.PulledMessage{
				Partition: uint32(p.Partition), Offset: uint64(m.offset), Key: m.Key, Payload: m.Payload,
				Attributes: m.attributes, EventTime: m.eventTime, AppendTime: m.appendTime, Attempt: attempt,
				Delivery: r.Delivery,
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (n *Node) fromAck(r *call.AckCallResult) *tapedeckv1.AckResponse {
	out := &tapedeckv1.AckResponse{}
	for i := range r.Results {
		a := &r.Results[i]
		out.Results = append(out.Results, &tapedeckv1.AckResult{
			Partition: uint32(a.Partition), Cursor: uint64(a.Cursor), Error: n.wireStatus(a.Err),
		})
	}
	return out
}

func fromSeek(r *call.SeekResult) *tapedeckv1.SeekResponse {
	out := &tapedeckv1.SeekResponse{Generation: uint64(r.Generation)}
	for _, c := range r.Cursors {
		out.Cursors = append(out.Cursors, &tapedeckv1.SeekCursor{Partition: uint32(c.Partition), Cursor: uint64(c.Offset)})
	}
	return out
}

func fromTopic(t *model.Topic) *tapedeckv1.Topic {
	return &tapedeckv1.Topic{
		Name: t.Name, TopicId: uint64(t.ID), Partitions: uint32(len(t.Partitions)), Replicas: t.Settings.Replicas,
		RetentionTime: span(retention(t)), RetentionBytes: t.Settings.RetentionBytes,
		LocalRetentionTime: span(t.Settings.LocalRetentionTime), MaxMessageBytes: maxMessageBytes(t),
		Owner: t.Owner, CreateTime: wall(t.Created),
	}
}

func retention(t *model.Topic) time.Duration {
	if t.Settings.RetentionTime == 0 {
		return model.DefaultRetention
	}
	return t.Settings.RetentionTime
}

func maxMessageBytes(t *model.Topic) uint32 {
	if t.Settings.MaxMessageBytes == 0 {
		return model.MaxMessageBytes
	}
	return t.Settings.MaxMessageBytes
}

func (n *Node) fromGetTopic(r *call.GetTopicResult) *tapedeckv1.GetTopicResponse {
	t := fromTopic(&r.Topic)
	survived := t.Replicas / 2
	out := &tapedeckv1.GetTopicResponse{
		Name: t.Name, TopicId: t.TopicId, Replicas: t.Replicas, RetentionTime: t.RetentionTime,
		RetentionBytes: t.RetentionBytes, LocalRetentionTime: t.LocalRetentionTime,
		MaxMessageBytes: t.MaxMessageBytes, Owner: t.Owner, CreateTime: t.CreateTime,
		MapVersion: r.Topic.MapVersion,
		Durability: &tapedeckv1.Durability{
			CopiesAtAck: survived + 1, LossesSurvived: survived, LossesWhileAvailable: survived,
		},
	}
	for i := range r.Partitions {
		p := &r.Partitions[i]
		out.Durability.AtRisk = out.Durability.AtRisk || p.AtRisk || p.Err != nil
		out.Partitions = append(out.Partitions, &tapedeckv1.PartitionInfo{
			Partition: uint32(p.Partition), Leader: string(p.Leader), LeaderAddress: n.book.address(p.Leader),
			Replicas: nodeNames(p.Replicas), LogStart: uint64(p.LogStart), HighWatermark: uint64(p.HighWatermark),
			Bytes: p.Bytes, AtRisk: p.AtRisk, Error: n.wireStatus(p.Err),
		})
	}
	return out
}

func mode(m model.Mode) tapedeckv1.Mode {
	if m == model.ModeShared {
		return tapedeckv1.Mode_MODE_SHARED
	}
	return tapedeckv1.Mode_MODE_ORDERED
}

func orDefault(d, otherwise time.Duration) *durationpb.Duration {
	if d == 0 {
		d = otherwise
	}
	return span(d)
}

func fromSubscription(s *model.Subscription) *tapedeckv1.Subscription {
	v := &s.Settings
	out := &tapedeckv1.Subscription{
		Topic: s.TopicName, Name: s.Name, Mode: mode(v.Mode), KeyOrdered: v.KeyOrdered,
		AckDeadline:         orDefault(v.AckDeadline, model.DefaultAckDeadline),
		SessionTimeout:      orDefault(v.SessionTimeout, model.DefaultSessionTimeout),
		MaxDeliveryAttempts: v.MaxAttempts, DeadLetterTopic: v.DeadLetterTopic,
		MinBackoff: span(v.MinBackoff), MaxBackoff: span(v.MaxBackoff),
		MaxInFlightPerMember: v.MaxInFlightMember, MaxInFlight: v.MaxInFlight, Filter: v.Filter,
		ExpireWhenUnusedIn: span(v.ExpireWhenUnusedIn),
		SubscriptionId:     uint64(s.ID), CreateTime: wall(s.Created),
	}
	switch s.Start.Kind {
	case model.StartLatest:
		out.Start = &tapedeckv1.Subscription_Latest{Latest: &emptypb.Empty{}}
	case model.StartTime:
		out.Start = &tapedeckv1.Subscription_Time{Time: timestamppb.New(time.Unix(0, int64(s.Start.Time)))}
	default:
		out.Start = &tapedeckv1.Subscription_Earliest{Earliest: &emptypb.Empty{}}
	}
	return out
}

// fromGetSubscription; keep is the topic's retention, now this node's wall clock.
func (n *Node) fromGetSubscription(
	r *call.GetSubscriptionResult, keep time.Duration, now time.Time,
) *tapedeckv1.GetSubscriptionResponse {
	s := fromSubscription(&r.Subscription)
	out := &tapedeckv1.GetSubscriptionResponse{
		Topic: s.Topic, Name: s.Name, Mode: s.Mode, KeyOrdered: s.KeyOrdered, AckDeadline: s.AckDeadline,
		SessionTimeout: s.SessionTimeout, MaxDeliveryAttempts: s.MaxDeliveryAttempts,
		DeadLetterTopic: s.DeadLetterTopic, MinBackoff: s.MinBackoff, MaxBackoff: s.MaxBackoff,
		MaxInFlightPerMember: s.MaxInFlightPerMember, MaxInFlight: s.MaxInFlight, Filter: s.Filter,
		ExpireWhenUnusedIn: s.ExpireWhenUnusedIn, SubscriptionId: s.SubscriptionId, CreateTime: s.CreateTime,
		Generation: uint64(r.Description.Generation),
	}
	switch at := s.Start.(type) {
	case *tapedeckv1.Subscription_Latest:
		out.Start = &tapedeckv1.GetSubscriptionResponse_Latest{Latest: at.Latest}
	case *tapedeckv1.Subscription_Time:
		out.Start = &tapedeckv1.GetSubscriptionResponse_Time{Time: at.Time}
	case *tapedeckv1.Subscription_Earliest:
		out.Start = &tapedeckv1.GetSubscriptionResponse_Earliest{Earliest: at.Earliest}
	}
	for i := range r.Description.Members {
		m := &r.Description.Members[i]
		out.Members = append(out.Members, &tapedeckv1.MemberInfo{
			Id: string(m.ID), Static: m.Static, Partitions: numbers[uint32](m.Partitions),
			LastSeen: timestamppb.New(now.Add(-time.Duration(m.IdleFor))),
		})
	}
	for i := range r.Partitions {
		p := &r.Partitions[i]
		sp := &tapedeckv1.SubscriptionPartition{
			Partition: uint32(p.Partition), Cursor: uint64(p.Cursor), HighWatermark: uint64(p.HighWatermark),
			LogStart: uint64(p.LogStart), Lag: p.Lag, Leased: p.Leased, Owner: string(p.Owner), Error: n.wireStatus(p.Err),
		}
		if p.Err == nil && p.Waits != "" {
			sp.Error = n.wireStatus(model.Errorf(model.FailedPrecondition, "%s", p.Waits))
		}
		if p.OldestTime != 0 {
			age := max(0, now.Sub(time.Unix(0, int64(p.OldestTime))))
			sp.OldestUnackedAge = durationpb.New(age)
			sp.RetentionLeft = durationpb.New(max(0, keep-age))
		}
		out.Partitions = append(out.Partitions, sp)
	}
	return out
}

func fromCluster(r *call.GetClusterResult, topics map[model.TopicID]string) *tapedeckv1.GetClusterResponse {
	out := &tapedeckv1.GetClusterResponse{Self: string(r.Self), MapVersion: r.MapVersion}
	for i := range r.Nodes {
		v := &r.Nodes[i]
		out.Nodes = append(out.Nodes, &tapedeckv1.NodeInfo{
			Id: string(v.ID), Address: v.Address, Disk: uint64(v.Disk), Reachable: v.Reachable,
			Draining: v.Draining, Leaving: v.Leaving,
		})
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		v := &tapedeckv1.GroupInfo{
			Id: uint64(g.ID), Kind: tapedeckv1.GroupKind(g.Kind), Leader: string(g.Leader), Term: g.Term,
			Partition: uint32(g.Partition), Changing: g.Change.ID != 0,
		}
		if g.Kind == model.GroupPartition {
			if v.Topic = topics[g.Topic]; v.Topic == "" {
				v.Topic = fmt.Sprintf("(topic %d)", g.Topic)
			}
		}
		for _, m := range g.Replicas {
			v.Replicas = append(v.Replicas, &tapedeckv1.ReplicaInfo{Id: uint64(m.ID), Node: string(m.Node), Learner: m.Learner})
		}
		out.Groups = append(out.Groups, v)
	}
	return out
}
