package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// invoke makes one request of a session at one node.
func (c *Client) invoke(ctx context.Context, n *node, r call.Client) (call.ClientResult, error) {
	switch r := r.(type) {
	case *call.PublishBatch:
		resp, err := n.pubsub.PublishBatch(ctx, &tapedeckv1.PublishBatchRequest{
			Topic: r.Topic, Partition: uint32(r.Partition), Batch: r.Batch, Start: r.Start,
		})
		if err != nil {
			return nil, err
		}
		return &call.PublishBatchResult{
			Base: model.Offset(resp.GetBase()), AppendTime: wall(resp.GetAppendTime()), Duplicate: resp.GetDuplicate(),
		}, nil
	case *call.OpenProducerCall:
		resp, err := n.pubsub.OpenProducer(ctx, &tapedeckv1.OpenProducerRequest{Name: r.Name})
		if err != nil {
			return nil, err
		}
		return &call.OpenProducerCallResult{ID: model.ProducerID(resp.GetId()), Epoch: model.Epoch(resp.GetEpoch())}, nil
	case *call.GetTopic:
		return c.invokeGetTopic(ctx, n, r)
	case *call.Pull:
		return invokePull(ctx, n, r)
	case *call.Ack:
		return invokeAck(ctx, n, r)
	case *call.ExtendLease:
		_, err := n.pubsub.ExtendLease(ctx, &tapedeckv1.ExtendLeaseRequest{
			Subscription: r.Subscription, Member: string(r.Member), Generation: uint64(r.Generation),
			Offsets: deliveredOffsets(r.Offsets, r.Deliveries), Extension: duration(r.Extension),
		})
		return &call.Empty{}, err
	case *call.Nack:
		_, err := n.pubsub.Nack(ctx, &tapedeckv1.NackRequest{
			Subscription: r.Subscription, Member: string(r.Member), Generation: uint64(r.Generation),
			Offsets: deliveredOffsets(r.Offsets, r.Deliveries), Delay: duration(r.Delay),
		})
		return &call.Empty{}, err
	case *call.LeaveSubscription:
		_, err := n.pubsub.LeaveSubscription(ctx, &tapedeckv1.LeaveSubscriptionRequest{
			Subscription: r.Subscription, Member: string(r.Member),
		})
		return &call.Empty{}, err
	}
	panic(fmt.Sprintf("a session asked for %T, which it never does", r))
}

// deliveredOffsets joins what follows each other in one partition.
func deliveredOffsets(list []call.PartitionOffset, deliveries []uint64) (out []*tapedeckv1.DeliveredOffsets) {
	for i, p := range list {
		if i == 0 || list[i-1].Partition != p.Partition {
			out = append(out, &tapedeckv1.DeliveredOffsets{Partition: uint32(p.Partition)})
		}
		set := out[len(out)-1]
		set.Offsets = append(set.Offsets, uint64(p.Offset))
		if len(deliveries) == len(list) {
			set.Deliveries = append(set.Deliveries, deliveries[i])
		}
	}
	return out
}

func (c *Client) invokeGetTopic(ctx context.Context, n *node, r *call.GetTopic) (call.ClientResult, error) {
	resp, err := n.admin.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: r.Name})
	if err != nil {
		return nil, err
	}
	c.nodes.learnTopic(r.Name, resp.GetPartitions())
	t := model.Topic{
		ID: model.TopicID(resp.GetTopicId()), Name: resp.GetName(), MapVersion: resp.GetMapVersion(),
		Partitions: make([]model.GroupID, len(resp.GetPartitions())),
	}
	t.Settings.MaxMessageBytes = resp.GetMaxMessageBytes()
	return &call.GetTopicResult{Topic: t}, nil
}

func invokePull(ctx context.Context, n *node, r *call.Pull) (call.ClientResult, error) {
	resp, err := n.pubsub.Pull(ctx, &tapedeckv1.PullRequest{
		Subscription: r.Subscription, Member: string(r.Member), Static: r.Static, PullSequence: r.PullSequence,
		MaxMessages: r.MaxMessages, MaxBytes: r.MaxBytes, Wait: duration(r.Wait), RawBatches: true,
	})
	if err != nil {
		return nil, err
	}
	out := &call.PullResult{Member: model.MemberID(resp.GetMember()), Generation: model.Generation(resp.GetGeneration())}
	for _, s := range resp.GetSkipped() {
		out.Skipped = append(out.Skipped, call.Range{
			Partition: model.Partition(s.GetPartition()), From: model.Offset(s.GetFrom()), To: model.Offset(s.GetTo()),
		})
	}
	for _, x := range resp.GetRanges() {
		out.Delivery = x.GetDelivery()
		views, err := checkedRun(x.GetRun())
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", x.GetPartition(), err)
		}
		out.Ranges = append(out.Ranges, call.PulledRange{Batches: views, Range: call.Range{
			Partition: model.Partition(x.GetPartition()), From: model.Offset(x.GetFrom()), To: model.Offset(x.GetTo()),
			Attempt: x.GetAttempt(),
		}})
	}
	return out, nil
}

// checkedRun cuts batches laid end to end and checks their checksums: the last
// place where damage on the way can be seen.
func checkedRun(run []byte) (views []batch.View, err error) {
	for len(run) > 0 {
		v, err := batch.Parse(run)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
		run = run[len(v):]
	}
	return views, nil
}

func invokeAck(ctx context.Context, n *node, r *call.Ack) (call.ClientResult, error) {
	req := &tapedeckv1.AckRequest{
		Subscription: r.Subscription, Member: string(r.Member), Generation: uint64(r.Generation),
	}
	for _, u := range r.UpTo {
		req.UpTo = append(req.UpTo, &tapedeckv1.AckUpTo{Partition: uint32(u.Partition), NextOffset: uint64(u.Offset)})
	}
	for _, s := range deliveredOffsets(r.Offsets, nil) {
		req.Offsets = append(req.Offsets, &tapedeckv1.AckOffsets{Partition: s.GetPartition(), Offsets: s.GetOffsets()})
	}
	resp, err := n.pubsub.Ack(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &call.AckCallResult{}
	for _, x := range resp.GetResults() {
		out.Results = append(out.Results, call.AckResult{
			Partition: model.Partition(x.GetPartition()), Cursor: model.Offset(x.GetCursor()), Err: modelStatus(x.GetError()),
		})
	}
	return out, nil
}

// duration leaves zero out: the schema's defaults are what is absent.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func wall(t *timestamppb.Timestamp) model.Wall {
	if t == nil {
		return 0
	}
	return model.Wall(t.AsTime().UnixNano())
}
