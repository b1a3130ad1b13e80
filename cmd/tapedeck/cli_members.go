package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

type partitionCommands struct {
	Move     partitionMoveCmd     `cmd:"" help:"Move one replica of a partition to another node."`
	Transfer partitionTransferCmd `cmd:"" help:"Hand a partition's leadership to another of its replicas."`
}

type nodeCommands struct {
	List    nodeListCmd    `cmd:"" help:"List nodes with what they hold and lead."`
	Drain   nodeDrainCmd   `cmd:"" help:"Move everything away from a node, which then can be removed."`
	Remove  nodeRemoveCmd  `cmd:"" help:"Take a drained node out of the cluster."`
	Rebuild nodeRebuildCmd `cmd:"" help:"Make a node's replicas anew; with --data, those of a refused folder."`
}

// waitFlags are those of commands that begin what takes its time.
type waitFlags struct {
	NoWait bool          `help:"Do not wait until it is done."`
	Within time.Duration `help:"How long to wait until it is done." default:"10m" least:"1ms"`
}

// watchEvery spaces the looks at a change under way.
const watchEvery = 200 * time.Millisecond

// until waits until a look at the cluster says that all is done.
func (f *waitFlags) until(ctx context.Context, cl *client.Client, what string,
	done func(*tapedeckv1.GetClusterResponse) bool) error {
	if f.NoWait {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.Within)
	defer cancel()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if s, err := cl.GetCluster(ctx); err == nil && done(s) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is still under way; look at it with: tapedeck cluster status --groups", what)
		}
	}
}

type partitionMoveCmd struct {
	clientFlags
	waitFlags
	Topic     string `arg:"" help:"The topic."`
	Partition uint32 `arg:"" help:"The partition's number."`
	From      string `help:"Node whose replica goes." required:"" placeholder:"NODE"`
	To        string `help:"Node that gets one." required:"" placeholder:"NODE"`
}

// Run moves the replica.
func (c *partitionMoveCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		err := cl.MovePartition(ctx, &tapedeckv1.MovePartitionRequest{
			Topic: c.Topic, Partition: c.Partition, FromNode: c.From, ToNode: c.To,
		})
		if err != nil {
			return err
		}
		err = c.until(ctx, cl, "the move", func(s *tapedeckv1.GetClusterResponse) bool {
			for _, g := range s.GetGroups() {
				if g.GetTopic() == c.Topic && g.GetPartition() == c.Partition && g.GetKind() == partitionKind {
					return !g.GetChanging() && !on(g, c.From) && on(g, c.To)
				}
			}
			return false
		})
		if err != nil {
			return err
		}
		return p.value(map[string]any{"topic": c.Topic, "partition": c.Partition, "from": c.From, "to": c.To},
			"partition %d of %s: %s from %s to %s", c.Partition, c.Topic, c.done("moving", "moved"), c.From, c.To)
	})
}

const partitionKind = tapedeckv1.GroupKind_GROUP_KIND_PARTITION

// done chooses between what is under way and what was waited for.
func (f *waitFlags) done(pending, done string) string {
	if f.NoWait {
		return pending
	}
	return done
}

// on says whether a group has a replica on a node.
func on(g *tapedeckv1.GroupInfo, node string) bool {
	for _, r := range g.GetReplicas() {
		if r.GetNode() == node {
			return true
		}
	}
	return false
}

type partitionTransferCmd struct {
	clientFlags
	Topic     string `arg:"" help:"The topic."`
	Partition uint32 `arg:"" help:"The partition's number."`
	To        string `help:"Node whose replica is to lead." required:"" placeholder:"NODE"`
}

// Run asks the leader to hand over.
func (c *partitionTransferCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		err := cl.TransferLeader(ctx, &tapedeckv1.TransferLeaderRequest{Topic: c.Topic, Partition: c.Partition, ToNode: c.To})
		if err != nil {
			return err
		}
		return p.value(map[string]any{"topic": c.Topic, "partition": c.Partition, "to": c.To},
			"partition %d of %s: handed over to %s", c.Partition, c.Topic, c.To)
	})
}

type nodeListCmd struct{ clientFlags }

// nodeLine is a node in JSON.
type nodeLine struct {
	Node      string `json:"node"`
	Address   string `json:"address"`
	State     string `json:"state"`
	Replicas  int    `json:"replicas"`
	Leads     int    `json:"leads"`
	Changing  int    `json:"changing"`
	DataIDHex string `json:"dataId"`
}

// Run lists the nodes.
func (c *nodeListCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		s, err := cl.GetCluster(ctx)
		if err != nil {
			return err
		}
		lines := nodeLines(s)
		if p.json {
			return p.value(lines, "")
		}
		rows := make([][]any, 0, len(lines))
		for _, l := range lines {
			rows = append(rows, []any{l.Node, l.Address, l.State, l.Replicas, l.Leads, l.Changing, l.DataIDHex})
		}
		return p.table("NODE ADDRESS STATE REPLICAS LEADS CHANGING DATA", rows)
	})
}

// nodeLines sums the groups up by node.
func nodeLines(s *tapedeckv1.GetClusterResponse) []nodeLine {
	lines := make([]nodeLine, 0, len(s.GetNodes()))
	for _, n := range s.GetNodes() {
		l := nodeLine{Node: n.GetId(), Address: n.GetAddress(), State: "reachable",
			DataIDHex: fmt.Sprintf("%016x", n.GetDisk())}
		switch {
		case n.GetLeaving():
			l.State = "leaving"
		case n.GetDraining():
			l.State = "draining"
		}
		if !n.GetReachable() && n.GetId() != s.GetSelf() {
			l.State += ", NOT REACHABLE"
			if !n.GetLeaving() && !n.GetDraining() {
				l.State = "NOT REACHABLE"
			}
		}
		for _, g := range s.GetGroups() {
			if g.GetLeader() == n.GetId() {
				l.Leads++
			}
			if on(g, n.GetId()) {
				l.Replicas++
				if g.GetChanging() {
					l.Changing++
				}
			}
		}
		lines = append(lines, l)
	}
	return lines
}

type nodeDrainCmd struct {
	clientFlags
	waitFlags
	Node string `arg:"" help:"The node."`
	Undo bool   `help:"Let replicas come to the node again."`
}

// Run drains the node.
func (c *nodeDrainCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		if err := cl.DrainNode(ctx, c.Node, c.Undo); err != nil {
			return err
		}
		if c.Undo {
			return p.value(map[string]any{"node": c.Node}, "node %s takes replicas again", c.Node)
		}
		// Of the meta group every node has a replica until it is removed.
		err := c.until(ctx, cl, "draining "+c.Node, func(s *tapedeckv1.GetClusterResponse) bool {
			for _, g := range s.GetGroups() {
				if g.GetKind() != tapedeckv1.GroupKind_GROUP_KIND_META && on(g, c.Node) {
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		return p.value(map[string]any{"node": c.Node}, "node %s: %s", c.Node, c.done("draining", "empty; it can be removed"))
	})
}

type nodeRemoveCmd struct {
	clientFlags
	waitFlags
	Node string `arg:"" help:"The node."`
}

// Run removes the node.
func (c *nodeRemoveCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		if err := cl.RemoveNode(ctx, c.Node); err != nil {
			return err
		}
		err := c.until(ctx, cl, "removing "+c.Node, func(s *tapedeckv1.GetClusterResponse) bool {
			for _, n := range s.GetNodes() {
				if n.GetId() == c.Node {
					return s.GetSelf() == c.Node // the one removed may never hear of it
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		return p.value(map[string]any{"node": c.Node}, "node %s: %s", c.Node,
			c.done("being removed", "removed; stop its process and delete its data"))
	})
}

type nodeRebuildCmd struct {
	clientFlags
	waitFlags
	Node string `arg:"" optional:"" help:"The node, if it is running."`
	asideFlags
}

// Run rebuilds the node.
func (c *nodeRebuildCmd) Run(ctx context.Context, std *stdio) error {
	switch {
	case (c.Node == "") == (c.Data == ""):
		return errors.New("name a running node, or give --data with the folder of one that does not start")
	case c.Data != "":
		return c.setAside(ctx, std)
	}
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		if err := cl.RebuildNode(ctx, c.Node); err != nil {
			return err
		}
		err := c.until(ctx, cl, "rebuilding "+c.Node, func(s *tapedeckv1.GetClusterResponse) bool {
			for _, g := range s.GetGroups() {
				if on(g, c.Node) && g.GetChanging() {
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		return p.value(map[string]any{"node": c.Node}, "node %s: %s", c.Node,
			c.done("being rebuilt", "every replica is a fresh copy"))
	})
}
