package main

import (
	"context"
	"fmt"
	"strings"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

type snapshotCommands struct {
	Create snapshotCreateCmd `cmd:"" help:"Keep the cursors as they are under a name."`
	List   snapshotListCmd   `cmd:"" help:"List what is kept."`
	Delete snapshotDeleteCmd `cmd:"" help:"Forget a snapshot."`
}

type snapshotCreateCmd struct {
	clientFlags
	Ref  string `arg:"" name:"topic/name" help:"The subscription."`
	Name string `arg:"" help:"The snapshot's name."`
}

// Run keeps the cursors.
func (c *snapshotCreateCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		s, err := cl.CreateSnapshot(ctx, c.Ref, c.Name)
		if err != nil {
			return err
		}
		return p.proto(s, func() error {
			return p.value(nil, "snapshot %s of %s: %s", s.GetName(), c.Ref, placesOf(s))
		})
	})
}

// placesOf is a snapshot as subscription seek takes offsets.
func placesOf(s *tapedeckv1.Snapshot) string {
	var places []string
	for _, x := range s.GetCursors() {
		places = append(places, fmt.Sprintf("%d:%d", x.GetPartition(), x.GetCursor()))
	}
	return strings.Join(places, ",")
}

type snapshotListCmd struct {
	clientFlags
	Ref string `arg:"" name:"topic/name" help:"The subscription."`
}

// Run lists the snapshots.
func (c *snapshotListCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		list, err := cl.ListSnapshots(ctx, c.Ref)
		if err != nil {
			return err
		}
		return p.proto(&tapedeckv1.ListSnapshotsResponse{Snapshots: list}, func() error {
			rows := make([][]any, 0, len(list))
			for _, s := range list {
				rows = append(rows, []any{s.GetName(), moment(s.GetCreateTime()), placesOf(s)})
			}
			return p.table("SNAPSHOT CREATED CURSORS", rows)
		})
	})
}

type snapshotDeleteCmd struct {
	clientFlags
	Ref  string `arg:"" name:"topic/name" help:"The subscription."`
	Name string `arg:"" help:"The snapshot's name."`
}

// Run forgets the snapshot.
func (c *snapshotDeleteCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		if err := cl.DeleteSnapshot(ctx, c.Ref, c.Name); err != nil {
			return err
		}
		return p.value(struct{}{}, "snapshot %s of %s deleted", c.Name, c.Ref)
	})
}
