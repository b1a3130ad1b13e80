package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/tapedeck/tapedeck/client"
)

// clientCommands are the commands that speak to a running cluster.
type clientCommands struct {
	Topic        topicCommands        `cmd:"" help:"Create, look at, change and delete topics."`
	Pub          pubCmd               `cmd:"" help:"Publish lines from standard input."`
	Sub          subCmd               `cmd:"" help:"Read a subscription: print messages and acknowledge them."`
	Fetch        fetchCmd             `cmd:"" help:"Read a partition from an offset on, without a subscription."`
	Subscription subscriptionCommands `cmd:"" help:"Create, look at, change, rewind and delete subscriptions."`
	Dlq          dlqCommands          `cmd:"" name:"dlq" help:"Look at dead letters, and send them back."`
	Cluster      clusterCommands      `cmd:"" help:"Look at the cluster."`
	Partition    partitionCommands    `cmd:"" help:"Move partitions between nodes, or their leadership."`
	Node         nodeCommands         `cmd:"" help:"List, drain, remove and rebuild nodes."`
	Bench        benchCommands        `cmd:"" help:"Load a running cluster and say how fast it is."`
}

// clientFlags are every client command's.
type clientFlags struct {
	Server  []string      `help:"Nodes to ask, as host:port or URL." default:"http://127.0.0.1:7070" placeholder:"ADDRESS"`
	JSON    bool          `name:"json" help:"Print JSON for scripts."`
	Timeout time.Duration `help:"How long to wait for an answer." default:"10s"`
}

// connect makes the client. It is closed by the process's end.
func (f *clientFlags) connect() (*client.Client, error) {
	c, err := client.New(client.Config{Addresses: f.Server, CallTimeout: f.Timeout})
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	return c, nil
}

// with runs one command against the cluster and makes its error say what to do.
func (f *clientFlags) with(ctx context.Context, std *stdio,
	do func(context.Context, *client.Client, *printer) error) error {
	c, err := f.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return f.explain(do(ctx, c, newPrinter(std.Out, f.JSON)))
}

// explain adds to an error what a person can do about it.
func (f *clientFlags) explain(err error) error {
	var e *client.Error
	if !errors.As(err, &e) {
		return err
	}
	hint := ""
	switch {
	case e.Reason == client.ReasonNotSent:
		return fmt.Errorf("no node answers at %s (%w)\n  start a cluster with: tapedeck dev\n"+
			"  or name a node of a running one with --server or TAPEDECK_SERVER", strings.Join(f.Server, ", "), err)
	case e.Reason == client.ReasonNoLeader:
		hint = "see which nodes are there with: tapedeck cluster status"
	case e.Reason == client.ReasonFenced:
		hint = "somebody else goes on under this name; choose another"
	case e.Reason == client.ReasonOffsetTooOld, e.Reason == client.ReasonOffsetTooNew:
		hint = fmt.Sprintf("offsets %d up to %d can be read", e.Start, e.End)
	case e.Code == connect.CodeNotFound && strings.Contains(e.Message, "subscription"):
		hint = "create it with: tapedeck subscription create TOPIC/NAME"
	case e.Code == connect.CodeNotFound && strings.Contains(e.Message, "topic"):
		hint = "see what is there with: tapedeck topic list; create one with: tapedeck topic create NAME"
	case e.Code == connect.CodeDeadlineExceeded:
		hint = "wait longer with --timeout, or see which nodes are there with: tapedeck cluster status"
	case e.RetryAfter > 0:
		hint = fmt.Sprintf("try again in %v", e.RetryAfter)
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w\n  %s", err, hint)
}
