package client

import (
	"context"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/session"
)

// FetchRequest says what to read without a subscription.
type FetchRequest struct {
	Topic       string
	Partition   uint32
	Offset      uint64
	MaxMessages uint32        // 0: as many as MaxBytes allows
	MaxBytes    uint32        // 0: 1 MiB
	Wait        time.Duration // for a first message; 0: not at all
}

// FetchResult is what was read.
type FetchResult struct {
	Messages      []*Message
	Next          uint64 // where to read on
	HighWatermark uint64 // exclusive end of what can be read
	LogStart      uint64
}

// Fetch reads a partition from an offset on.
func (c *Client) Fetch(ctx context.Context, r FetchRequest) (*FetchResult, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Wait+c.cfg.CallTimeout)
		defer cancel()
	}
	resp, err := do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.FetchResponse, error) {
		return n.pubsub.Fetch(ctx, &tapedeckv1.FetchRequest{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, MaxMessages: r.MaxMessages,
			MaxBytes: r.MaxBytes, Wait: duration(r.Wait), RawBatches: true,
		})
	})
	if err != nil {
		return nil, err
	}
	out := &FetchResult{Next: resp.GetNextOffset(), HighWatermark: resp.GetHighWatermark(), LogStart: resp.GetLogStart()}
	for _, x := range resp.GetRanges() {
		views, err := checkedRun(x.GetRun())
		if err != nil {
			return nil, wrap(err)
		}
		for _, v := range views {
			messages, err := v.Messages(unpack)
			if err != nil {
				return nil, wrap(err)
			}
			for i := range messages {
				at := uint64(v.Base()) + uint64(i)
				if at < x.GetFrom() || at >= x.GetTo() {
					continue // batches are whole, what was asked for need not be
				}
				m := decode(r.Topic, &messages[i])
				m.Partition, m.Offset, m.AppendTime = r.Partition, at, time.Unix(0, int64(v.AppendTime()))
				out.Messages = append(out.Messages, m)
			}
		}
	}
	return out, nil
}

// CreateTopic defines a topic. The same again succeeds.
func (c *Client) CreateTopic(ctx context.Context, r *tapedeckv1.CreateTopicRequest,
) (*tapedeckv1.CreateTopicResponse, error) {
	return do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.CreateTopicResponse, error) {
		return n.admin.CreateTopic(ctx, r)
	})
}

// GetTopic describes a topic and its partitions.
func (c *Client) GetTopic(ctx context.Context, r *tapedeckv1.GetTopicRequest) (*tapedeckv1.GetTopicResponse, error) {
	resp, err := do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.GetTopicResponse, error) {
		return n.admin.GetTopic(ctx, r)
	})
	if err == nil {
		c.nodes.learnTopic(r.GetTopic(), resp.GetPartitions())
	}
	return resp, err
}

// ListTopics lists topics by name.
func (c *Client) ListTopics(ctx context.Context) ([]*tapedeckv1.Topic, error) {
	resp, err := do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.ListTopicsResponse, error) {
		return n.admin.ListTopics(ctx, &tapedeckv1.ListTopicsRequest{})
	})
	return resp.GetTopics(), err
}

// UpdateTopic changes what the request holds and leaves the rest as it is.
func (c *Client) UpdateTopic(ctx context.Context, r *tapedeckv1.UpdateTopicRequest,
) (*tapedeckv1.UpdateTopicResponse, error) {
	return do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.UpdateTopicResponse, error) {
		return n.admin.UpdateTopic(ctx, r)
	})
}

// DeleteTopic deletes a topic and its messages for good.
func (c *Client) DeleteTopic(ctx context.Context, r *tapedeckv1.DeleteTopicRequest,
) (*tapedeckv1.DeleteTopicResponse, error) {
	return do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.DeleteTopicResponse, error) {
		return n.admin.DeleteTopic(ctx, r)
	})
}

// CreateSubscription defines a subscription. The same again succeeds.
func (c *Client) CreateSubscription(ctx context.Context, r *tapedeckv1.CreateSubscriptionRequest,
) (*tapedeckv1.CreateSubscriptionResponse, error) {
	return do(ctx, c, session.Route{},
		func(ctx context.Context, n *node) (*tapedeckv1.CreateSubscriptionResponse, error) {
			return n.admin.CreateSubscription(ctx, r)
		})
}

// GetSubscription describes a subscription: settings, members, cursors, lag.
func (c *Client) GetSubscription(ctx context.Context, r *tapedeckv1.GetSubscriptionRequest,
) (*tapedeckv1.GetSubscriptionResponse, error) {
	return do(ctx, c, session.Route{},
		func(ctx context.Context, n *node) (*tapedeckv1.GetSubscriptionResponse, error) {
			return n.admin.GetSubscription(ctx, r)
		})
}

// ListSubscriptions lists subscriptions, of one topic or, without a name, of all.
func (c *Client) ListSubscriptions(ctx context.Context, topic string) ([]*tapedeckv1.Subscription, error) {
	resp, err := do(ctx, c, session.Route{},
		func(ctx context.Context, n *node) (*tapedeckv1.ListSubscriptionsResponse, error) {
			return n.admin.ListSubscriptions(ctx, &tapedeckv1.ListSubscriptionsRequest{Topic: topic})
		})
	return resp.GetSubscriptions(), err
}

// UpdateSubscription changes what the request holds and leaves the rest as it is.
func (c *Client) UpdateSubscription(ctx context.Context, r *tapedeckv1.UpdateSubscriptionRequest,
) (*tapedeckv1.UpdateSubscriptionResponse, error) {
	return do(ctx, c, session.Route{},
		func(ctx context.Context, n *node) (*tapedeckv1.UpdateSubscriptionResponse, error) {
			return n.admin.UpdateSubscription(ctx, r)
		})
}

// DeleteSubscription deletes a subscription and its cursors for good.
func (c *Client) DeleteSubscription(ctx context.Context, subscription string) error {
	_, err := do(ctx, c, session.Route{},
		func(ctx context.Context, n *node) (*tapedeckv1.DeleteSubscriptionResponse, error) {
			return n.admin.DeleteSubscription(ctx, &tapedeckv1.DeleteSubscriptionRequest{Subscription: subscription})
		})
	return err
}

// Seek moves a subscription's cursors; what was delivered before is void.
func (c *Client) Seek(ctx context.Context, r *tapedeckv1.SeekRequest) (*tapedeckv1.SeekResponse, error) {
	return do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.SeekResponse, error) {
		return n.pubsub.Seek(ctx, r)
	})
}

// CreateSnapshot keeps a subscription's cursors under a name, to seek to.
func (c *Client) CreateSnapshot(ctx context.Context, subscription, name string) (*tapedeckv1.Snapshot, error) {
	resp, err := do(ctx, c, session.Route{},
		func(ctx context.Context, n *node) (*tapedeckv1.CreateSnapshotResponse, error) {
			return n.admin.CreateSnapshot(ctx, &tapedeckv1.CreateSnapshotRequest{Subscription: subscription, Name: name})
		})
	return resp.GetSnapshot(), err
}

// ListSnapshots lists a subscription's snapshots by name.
func (c *Client) ListSnapshots(ctx context.Context, subscription string) ([]*tapedeckv1.Snapshot, error) {
	resp, err := do(ctx, c, session.Route{},
		func(ctx context.Context, n *node) (*tapedeckv1.ListSnapshotsResponse, error) {
			return n.admin.ListSnapshots(ctx, &tapedeckv1.ListSnapshotsRequest{Subscription: subscription})
		})
	return resp.GetSnapshots(), err
}

// DeleteSnapshot forgets a snapshot.
func (c *Client) DeleteSnapshot(ctx context.Context, subscription, name string) error {
	_, err := do(ctx, c, session.Route{},
		func(ctx context.Context, n *node) (*tapedeckv1.DeleteSnapshotResponse, error) {
			return n.admin.DeleteSnapshot(ctx, &tapedeckv1.DeleteSnapshotRequest{Subscription: subscription, Name: name})
		})
	return err
}

// GetCluster describes nodes and groups as the node asked knows them.
func (c *Client) GetCluster(ctx context.Context) (*tapedeckv1.GetClusterResponse, error) {
	return do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.GetClusterResponse, error) {
		return n.admin.GetCluster(ctx, &tapedeckv1.GetClusterRequest{})
	})
}
