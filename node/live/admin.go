package live

import (
	"context"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// admin serves AdminService.
type admin struct{ *Node }

// change asks meta for a change and returns the map version that knows it.
func (n admin) change(ctx context.Context, req call.Request) (uint64, error) {
	done, err := askFor[*call.Done](ctx, n.Node, &call.Admin{Request: req}, 0)
	if err != nil {
		return 0, err
	}
	return done.MapVersion, nil
}

// CreateTopic implements AdminService.
func (n admin) CreateTopic(
	ctx context.Context, req *tapedeckv1.CreateTopicRequest,
) (*tapedeckv1.CreateTopicResponse, error) {
	c, failure := toCreateTopic(req)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	version, err := n.change(ctx, c)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.CreateTopicResponse{MapVersion: version}, nil
}

// GetTopic implements AdminService.
func (n admin) GetTopic(ctx context.Context, req *tapedeckv1.GetTopicRequest) (*tapedeckv1.GetTopicResponse, error) {
	r, err := askFor[*call.GetTopicResult](ctx, n.Node, &call.GetTopic{Name: req.GetTopic()}, 0)
	if err != nil {
		return nil, err
	}
	return n.fromGetTopic(r), nil
}

// ListTopics implements AdminService.
func (n admin) ListTopics(
	ctx context.Context, _ *tapedeckv1.ListTopicsRequest,
) (*tapedeckv1.ListTopicsResponse, error) {
	r, err := askFor[*call.ListTopicsResult](ctx, n.Node, &call.ListTopics{}, 0)
	if err != nil {
		return nil, err
	}
	out := &tapedeckv1.ListTopicsResponse{}
	for i := range r.Topics {
		out.Topics = append(out.Topics, fromTopic(&r.Topics[i]))
	}
	return out, nil
}

// UpdateTopic implements AdminService.
func (n admin) UpdateTopic(
	ctx context.Context, req *tapedeckv1.UpdateTopicRequest,
) (*tapedeckv1.UpdateTopicResponse, error) {
	c, failure := toUpdateTopic(req)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	version, err := n.change(ctx, c)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.UpdateTopicResponse{MapVersion: version}, nil
}

// DeleteTopic implements AdminService.
func (n admin) DeleteTopic(
	ctx context.Context, req *tapedeckv1.DeleteTopicRequest,
) (*tapedeckv1.DeleteTopicResponse, error) {
	version, err := n.change(ctx, &call.DeleteTopic{Name: req.GetTopic(), Force: req.GetForce()})
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.DeleteTopicResponse{MapVersion: version}, nil
}

// CreateSubscription implements AdminService.
func (n admin) CreateSubscription(
	ctx context.Context, req *tapedeckv1.CreateSubscriptionRequest,
) (*tapedeckv1.CreateSubscriptionResponse, error) {
	c, failure := toCreateSubscription(req)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	r, err := askFor[*call.CreateSubscriptionCallResult](ctx, n.Node, c, 0)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.CreateSubscriptionResponse{SubscriptionId: uint64(r.Subscription.ID)}, nil
}

// GetSubscription implements AdminService.
func (n admin) GetSubscription(
	ctx context.Context, req *tapedeckv1.GetSubscriptionRequest,
) (*tapedeckv1.GetSubscriptionResponse, error) {
	r, err := askFor[*call.GetSubscriptionResult](ctx, n.Node,
		&call.GetSubscription{Subscription: req.GetSubscription()}, 0)
	if err != nil {
		return nil, err
	}
	keep, err := n.retentionOf(ctx, r)
	if err != nil {
		return nil, err
	}
	return n.fromGetSubscription(r, keep, time.Now()), nil
}

// retentionOf is the retention time of a subscription's topic; 0 if nobody needs it.
func (n admin) retentionOf(ctx context.Context, r *call.GetSubscriptionResult) (time.Duration, error) {
	unacked := false
	for i := range r.Partitions {
		unacked = unacked || r.Partitions[i].OldestTime != 0
	}
	if !unacked {
		return 0, nil
	}
	topics, err := askFor[*call.ListTopicsResult](ctx, n.Node, &call.ListTopics{}, 0)
	if err != nil {
		return 0, err
	}
	for i := range topics.Topics {
		if t := &topics.Topics[i]; t.ID == r.Subscription.Topic {
			return retention(t), nil
		}
	}
	return 0, nil
}

// ListSubscriptions implements AdminService.
func (n admin) ListSubscriptions(
	ctx context.Context, req *tapedeckv1.ListSubscriptionsRequest,
) (*tapedeckv1.ListSubscriptionsResponse, error) {
	r, err := askFor[*call.ListSubscriptionsResult](ctx, n.Node, &call.ListSubscriptions{Topic: req.GetTopic()}, 0)
	if err != nil {
		return nil, err
	}
	out := &tapedeckv1.ListSubscriptionsResponse{}
	for i := range r.Subscriptions {
		out.Subscriptions = append(out.Subscriptions, fromSubscription(&r.Subscriptions[i]))
	}
	return out, nil
}

// UpdateSubscription implements AdminService.
func (n admin) UpdateSubscription(
	ctx context.Context, req *tapedeckv1.UpdateSubscriptionRequest,
) (*tapedeckv1.UpdateSubscriptionResponse, error) {
	c, failure := toUpdateSubscription(req)
	if failure != nil {
		return nil, n.wireError(failure)
	}
	version, err := n.change(ctx, c)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.UpdateSubscriptionResponse{MapVersion: version}, nil
}

// DeleteSubscription implements AdminService.
func (n admin) DeleteSubscription(
	ctx context.Context, req *tapedeckv1.DeleteSubscriptionRequest,
) (*tapedeckv1.DeleteSubscriptionResponse, error) {
	version, err := n.change(ctx, &call.DeleteSubscription{Subscription: req.GetSubscription()})
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.DeleteSubscriptionResponse{MapVersion: version}, nil
}

// GetCluster implements AdminService.
func (n admin) GetCluster(
	ctx context.Context, _ *tapedeckv1.GetClusterRequest,
) (*tapedeckv1.GetClusterResponse, error) {
	r, err := askFor[*call.GetClusterResult](ctx, n.Node, &call.GetCluster{}, 0)
	if err != nil {
		return nil, err
	}
	topics := map[model.TopicID]string{}
	for i := range r.Groups {
		if r.Groups[i].Kind != model.GroupPartition {
			continue
		}
		list, err := askFor[*call.ListTopicsResult](ctx, n.Node, &call.ListTopics{}, 0)
		if err != nil {
			// The description must be had without a leader, too: then topics go by number.
			break
		}
		for k := range list.Topics {
			topics[list.Topics[k].ID] = list.Topics[k].Name
		}
		break
	}
	return fromCluster(r, topics), nil
}

// CreateSnapshot implements AdminService.
func (n admin) CreateSnapshot(
	ctx context.Context, req *tapedeckv1.CreateSnapshotRequest,
) (*tapedeckv1.CreateSnapshotResponse, error) {
	r, err := askFor[*call.SnapshotsResult](ctx, n.Node,
		&call.Snapshot{Subscription: req.GetSubscription(), Name: req.GetName()}, 0)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.CreateSnapshotResponse{Snapshot: fromSnapshots(r.Snapshots)[0]}, nil
}

// ListSnapshots implements AdminService.
func (n admin) ListSnapshots(
	ctx context.Context, req *tapedeckv1.ListSnapshotsRequest,
) (*tapedeckv1.ListSnapshotsResponse, error) {
	r, err := askFor[*call.SnapshotsResult](ctx, n.Node, &call.ListSnapshots{Subscription: req.GetSubscription()}, 0)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.ListSnapshotsResponse{Snapshots: fromSnapshots(r.Snapshots)}, nil
}

// DeleteSnapshot implements AdminService.
func (n admin) DeleteSnapshot(
	ctx context.Context, req *tapedeckv1.DeleteSnapshotRequest,
) (*tapedeckv1.DeleteSnapshotResponse, error) {
	_, err := askFor[*call.SnapshotsResult](ctx, n.Node,
		&call.Snapshot{Subscription: req.GetSubscription(), Name: req.GetName(), Forget: true}, 0)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.DeleteSnapshotResponse{}, nil
}

func fromSnapshots(list []call.CursorSnapshot) (out []*tapedeckv1.Snapshot) {
	for i := range list {
		s := &tapedeckv1.Snapshot{Name: list[i].Name, CreateTime: wall(list[i].Created)}
		for _, c := range list[i].Cursors {
			s.Cursors = append(s.Cursors, &tapedeckv1.SeekCursor{Partition: uint32(c.Partition), Cursor: uint64(c.Offset)})
		}
		out = append(out, s)
	}
	return out
}

// MovePartition implements AdminService.
func (n admin) MovePartition(
	ctx context.Context, req *tapedeckv1.MovePartitionRequest,
) (*tapedeckv1.MovePartitionResponse, error) {
	_, err := n.change(ctx, &call.MovePartition{
		Topic: req.GetTopic(), Partition: model.Partition(req.GetPartition()),
		From: model.NodeID(req.GetFromNode()), To: model.NodeID(req.GetToNode()),
	})
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.MovePartitionResponse{}, nil
}

// TransferLeader implements AdminService.
func (n admin) TransferLeader(
	ctx context.Context, req *tapedeckv1.TransferLeaderRequest,
) (*tapedeckv1.TransferLeaderResponse, error) {
	_, err := askFor[*call.Empty](ctx, n.Node, &call.TransferPartition{
		Topic: req.GetTopic(), Partition: model.Partition(req.GetPartition()), To: model.NodeID(req.GetToNode()),
	}, 0)
	if err != nil {
		return nil, err
	}
	return &tapedeckv1.TransferLeaderResponse{}, nil
}

// DrainNode implements AdminService.
func (n admin) DrainNode(ctx context.Context, req *tapedeckv1.DrainNodeRequest) (*tapedeckv1.DrainNodeResponse, error) {
	if _, err := n.change(ctx, &call.DrainNode{Node: model.NodeID(req.GetNode()), Undo: req.GetUndo()}); err != nil {
		return nil, err
	}
	return &tapedeckv1.DrainNodeResponse{}, nil
}

// RemoveNode implements AdminService.
func (n admin) RemoveNode(
	ctx context.Context, req *tapedeckv1.RemoveNodeRequest,
) (*tapedeckv1.RemoveNodeResponse, error) {
	if _, err := n.change(ctx, &call.RemoveNode{Node: model.NodeID(req.GetNode())}); err != nil {
		return nil, err
	}
	return &tapedeckv1.RemoveNodeResponse{}, nil
}

// RebuildNode implements AdminService.
func (n admin) RebuildNode(
	ctx context.Context, req *tapedeckv1.RebuildNodeRequest,
) (*tapedeckv1.RebuildNodeResponse, error) {
	if _, err := n.change(ctx, &call.RebuildNode{Node: model.NodeID(req.GetNode())}); err != nil {
		return nil, err
	}
	return &tapedeckv1.RebuildNodeResponse{}, nil
}
