package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

type clusterCommands struct {
	Status clusterStatusCmd `cmd:"" default:"withargs" help:"Show nodes, and who leads what, as the node asked knows it."`
}

type clusterStatusCmd struct {
	clientFlags
	Groups bool `help:"Show every raft group, too."`
}

// Run shows the cluster.
func (c *clusterStatusCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		s, err := cl.GetCluster(ctx)
		if err != nil {
			return err
		}
		return p.proto(s, func() error { return c.show(p, s) })
	})
}

func (c *clusterStatusCmd) show(p *printer, s *tapedeckv1.GetClusterResponse) error {
	leads, without := map[string]int{}, 0
	for _, g := range s.GetGroups() {
		if g.GetLeader() == "" {
			without++
			continue
		}
		leads[g.GetLeader()]++
	}
	rows := make([][]any, 0, len(s.GetNodes()))
	for _, n := range s.GetNodes() {
		state := "reachable"
		switch {
		case n.GetId() == s.GetSelf():
			state = "asked"
		case !n.GetReachable():
			state = "NOT REACHABLE"
		}
		rows = append(rows, []any{n.GetId(), n.GetAddress(), state, leads[n.GetId()]})
	}
	if err := p.table("NODE ADDRESS STATE LEADS", rows); err != nil {
		return err
	}
	if without > 0 {
		p.facts("groups without a known leader", without)
	}
	if !c.Groups {
		return nil
	}
	fmt.Fprintln(p.out)
	rows = rows[:0]
	for _, g := range s.GetGroups() {
		var replicas []string
		for _, r := range g.GetReplicas() {
			name := r.GetNode()
			if r.GetLearner() {
				name += " (learner)"
			}
			replicas = append(replicas, name)
		}
		slices.Sort(replicas)
		what := strings.ToLower(strings.TrimPrefix(g.GetKind().String(), "GROUP_KIND_"))
		if g.GetKind() == tapedeckv1.GroupKind_GROUP_KIND_PARTITION {
			what = fmt.Sprintf("%s/%d", g.GetTopic(), g.GetPartition())
		}
		rows = append(rows, []any{g.GetId(), what, g.GetLeader(), g.GetTerm(), strings.Join(replicas, ",")})
	}
	return p.table("GROUP WHAT LEADER TERM REPLICAS", rows)
}
