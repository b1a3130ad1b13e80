package main

import (
	"context"
	"fmt"
	"time"

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
	Timeout time.Duration `help:"How long to wait for an answer." default:"10s" least:"1ms"`
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
