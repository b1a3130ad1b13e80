package client

import (
	"context"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/session"
)

// MovePartition begins to move one replica of a partition to another node. It
// returns before the copy is made: GetCluster tells which groups are changing.
func (c *Client) MovePartition(ctx context.Context, r *tapedeckv1.MovePartitionRequest) error {
	_, err := do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.MovePartitionResponse, error) {
		return n.admin.MovePartition(ctx, r)
	})
	return err
}

// TransferLeader asks a partition's leader to hand over to the replica on a node.
func (c *Client) TransferLeader(ctx context.Context, r *tapedeckv1.TransferLeaderRequest) error {
	_, err := do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.TransferLeaderResponse, error) {
		return n.admin.TransferLeader(ctx, r)
	})
	return err
}

// DrainNode begins to move every replica of a node elsewhere and keeps new ones
// away from it; undo lets them come again.
func (c *Client) DrainNode(ctx context.Context, nodeID string, undo bool) error {
	_, err := do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.DrainNodeResponse, error) {
		return n.admin.DrainNode(ctx, &tapedeckv1.DrainNodeRequest{Node: nodeID, Undo: undo})
	})
	return err
}

// RemoveNode takes a drained node out of the cluster.
func (c *Client) RemoveNode(ctx context.Context, nodeID string) error {
	_, err := do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.RemoveNodeResponse, error) {
		return n.admin.RemoveNode(ctx, &tapedeckv1.RemoveNodeRequest{Node: nodeID})
	})
	return err
}

// RebuildNode begins to replace every replica of a node by a fresh copy on the
// same node, while it runs.
func (c *Client) RebuildNode(ctx context.Context, nodeID string) error {
	_, err := do(ctx, c, session.Route{}, func(ctx context.Context, n *node) (*tapedeckv1.RebuildNodeResponse, error) {
		return n.admin.RebuildNode(ctx, &tapedeckv1.RebuildNodeRequest{Node: nodeID})
	})
	return err
}
