package live

import (
	"context"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// pubsub serves PubSubService: each call is decoded, taken through the shard and
// its answer encoded.
type pubsub struct{ *Node }

// Publish implements PubSubService.
func (n pubsub) Publish(ctx context.Context, req *tapedeckv1.PublishRequest) (*tapedeckv1.PublishResponse, error) {
	c, failure := toPublish(req)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	r, err := askFor[*call.PublishResult](ctx, n.Node, c, 0)
	if err != nil {
		return nil, err
	}
	if failure := commonError(r); failure != nil {
		return nil, n.wireError(failure)
	}
	return n.fromPublish(r), nil
}

// PublishBatch implements PubSubService.
func (n pubsub) PublishBatch(
	ctx context.Context, req *tapedeckv1.PublishBatchRequest,
) (*tapedeckv1.PublishBatchResponse, error) {
	r, err := askFor[*call.PublishBatchResult](ctx, n.Node, toPublishBatch(req), 0)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.PublishBatchResponse{
		Base: uint64(r.Base), AppendTime: wall(r.AppendTime), Duplicate: r.Duplicate,
	}, nil
}

// Fetch implements PubSubService.
func (n pubsub) Fetch(ctx context.Context, req *tapedeckv1.FetchRequest) (*tapedeckv1.FetchResponse, error) {
	wait, failure := duration("wait", req.GetWait())
	if failure != nil {
		return nil, n.wireError(failure)
	}
	wait = boundWait(ctx, wait)
	r, err := askFor[*call.FetchResult](ctx, n.Node, &call.Fetch{
		Topic: req.GetTopic(), Partition: model.Partition(req.GetPartition()), Offset: model.Offset(req.GetOffset()),
		MaxMessages: req.GetMaxMessages(), MaxBytes: req.GetMaxBytes(), Wait: wait,
	}, wait)
	if err != nil {
		return nil, err
	}
	res, failure := fromFetch(req, r)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	return res, nil
}

// Pull implements PubSubService.
func (n pubsub) Pull(ctx context.Context, req *tapedeckv1.PullRequest) (*tapedeckv1.PullResponse, error) {
	wait, failure := duration("wait", req.GetWait())
	if failure != nil {
		return nil, n.wireError(failure)
	}
	wait = boundWait(ctx, wait)
	r, err := askFor[*call.PullResult](ctx, n.Node, &call.Pull{
		Subscription: req.GetSubscription(), Member: model.MemberID(req.GetMember()), Static: req.GetStatic(),
		PullSequence: req.GetPullSequence(), MaxMessages: req.GetMaxMessages(), MaxBytes: req.GetMaxBytes(), Wait: wait,
	}, wait)
	if err != nil {
		return nil, err
	}
	res, failure := fromPull(req.GetRawBatches(), r)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	return res, nil
}

// Ack implements PubSubService.
func (n pubsub) Ack(ctx context.Context, req *tapedeckv1.AckRequest) (*tapedeckv1.AckResponse, error) {
	r, err := askFor[*call.AckCallResult](ctx, n.Node, toAck(req), 0)
	if err != nil {
		return nil, err
	}
	return n.fromAck(r), nil
}

// Nack implements PubSubService.
func (n pubsub) Nack(ctx context.Context, req *tapedeckv1.NackRequest) (*tapedeckv1.NackResponse, error) {
	c, failure := toNack(req)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	if _, err := askFor[*call.Empty](ctx, n.Node, c, 0); err != nil {
		return nil, err
	}
	return &tapedeckv1.NackResponse{}, nil
}

// ExtendLease implements PubSubService.
func (n pubsub) ExtendLease(
	ctx context.Context, req *tapedeckv1.ExtendLeaseRequest,
) (*tapedeckv1.ExtendLeaseResponse, error) {
	c, failure := toExtendLease(req)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	if _, err := askFor[*call.Empty](ctx, n.Node, c, 0); err != nil {
		return nil, err
	}
	return &tapedeckv1.ExtendLeaseResponse{}, nil
}

// Seek implements PubSubService.
func (n pubsub) Seek(ctx context.Context, req *tapedeckv1.SeekRequest) (*tapedeckv1.SeekResponse, error) {
	c, failure := toSeek(req)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	r, err := askFor[*call.SeekResult](ctx, n.Node, c, 0)
	if err != nil {
		return nil, err
	}
	return fromSeek(r), nil
}

// LeaveSubscription implements PubSubService.
func (n pubsub) LeaveSubscription(
	ctx context.Context, req *tapedeckv1.LeaveSubscriptionRequest,
) (*tapedeckv1.LeaveSubscriptionResponse, error) {
	_, err := askFor[*call.Empty](ctx, n.Node, &call.LeaveSubscription{
		Subscription: req.GetSubscription(), Member: model.MemberID(req.GetMember()),
	}, 0)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.LeaveSubscriptionResponse{}, nil
}

// OpenProducer implements PubSubService.
func (n pubsub) OpenProducer(
	ctx context.Context, req *tapedeckv1.OpenProducerRequest,
) (*tapedeckv1.OpenProducerResponse, error) {
	r, err := askFor[*call.OpenProducerCallResult](ctx, n.Node, &call.OpenProducerCall{
		Name: req.GetName(), Fence: req.GetFence(), Topic: req.GetTopic(),
		Partitions: numbers[model.Partition](req.GetPartitions()),
	}, 0)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.OpenProducerResponse{Id: uint64(r.ID), Epoch: uint64(r.Epoch)}, nil
}
