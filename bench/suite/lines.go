package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/tapedeck/tapedeck/bench"
	"github.com/tapedeck/tapedeck/client"
)

// line is one line of the table. Its name is the others' for the same load.
type line struct {
	name    string
	unquick bool // left out of a quick run
	run     func(context.Context, *client.Client, bench.Load, bench.Meter) (*bench.Result, error)
	load    bench.Load
}

const messageBytes = 1024

// fast is a load as fast as possible, with the client's own batches.
func fast(partitions uint32, window int) bench.Load {
	l := bench.Load{
		Partitions: partitions, MessageBytes: messageBytes, Window: window, Linger: -1,
	}
	if partitions > 1 {
		l.Keys = 10_000
	}
	return l
}

func publish(ctx context.Context, c *client.Client, l bench.Load, m bench.Meter) (*bench.Result, error) {
	return bench.Publish(ctx, c, l, m)
}

func endToEnd(ctx context.Context, c *client.Client, l bench.Load, m bench.Meter) (*bench.Result, error) {
	return bench.EndToEnd(ctx, c, l, bench.Readers{Members: 1}, m)
}

func consume(messages int) func(context.Context, *client.Client, bench.Load, bench.Meter) (*bench.Result, error) {
	return func(ctx context.Context, c *client.Client, l bench.Load, m bench.Meter) (*bench.Result, error) {
		return bench.Consume(ctx, c, bench.Consumption{Load: l, Messages: messages,
			Readers: bench.Readers{Members: 1, Concurrency: 1, Buffer: 20_000}}, m)
	}
}

// hotMessages of each partition fit into the memory a leader keeps for readers.
const hotMessages = 3000

func (o *options) lines() []line {
	steady := bench.Load{Partitions: 1, MessageBytes: messageBytes, Linger: -1, Rate: 5000, Window: 100_000}
	single := bench.Load{Partitions: 1, MessageBytes: messageBytes, Linger: -1, Window: 1}
	some := bench.Load{Partitions: 1, MessageBytes: messageBytes, Linger: -1, Window: 256}
	cold := 400_000
	if o.quick {
		cold = 100_000
	}
	zipf := fast(8, 32_768)
	zipf.Zipf = 1.2
	hundred := fast(8, 32_768)
	hundred.Publishers, hundred.Producers = 100, 4
	return []line{
		{name: "one-partition", run: publish, load: fast(1, 8192)},
		{name: "eight-partitions", run: publish, load: fast(8, 32_768)},
		{name: "eight-partitions-zipf", run: publish, load: zipf, unquick: true},
		{name: "100-publishers", run: publish, load: hundred, unquick: true},
		{name: "256-in-flight", run: publish, load: some},
		{name: "one-at-a-time", run: publish, load: single},
		{name: "steady-5000", run: publish, load: steady, unquick: o.quick},
		{name: "end-to-end-5000", run: endToEnd, load: steady},
		{name: "consume-memory", run: consume(8 * hotMessages), load: fast(8, 32_768)},
		{name: "consume-segments", run: consume(cold), load: fast(8, 32_768)},
		{name: "128-partitions", run: publish, load: fast(128, 65_536), unquick: true},
		{name: "1000-partitions", run: publish, load: fast(1000, 131_072), unquick: true},
	}
}

// ours runs the lines against three nodes.
func ours(ctx context.Context, o *options, dir string, report *bench.Report) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	cl, err := startCluster(ctx, o.tapedeck, dir)
	if err != nil {
		return err
	}
	defer cl.stop()
	c, err := client.New(client.Config{Addresses: cl.addresses[:]})
	if err != nil {
		return err
	}
	defer c.Close()
	meter := bench.ProcessMeter(cl.pids)
	for _, l := range o.lines() {
		if l.unquick && o.quick || !only.MatchString(l.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", l.name)
		l.load.Topic, l.load.Replicas = "bench-"+l.name, 3
		l.load.Warmup, l.load.Duration, l.load.Rounds = o.warmup, o.duration, o.rounds
		r, err := l.run(ctx, c, l.load, meter)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		bench.RemoveTopic(ctx, c, l.load.Topic)
		r.Name = l.name
		report.Results = append(report.Results, r)
	}
	if o.losses == 0 || !only.MatchString("failover") {
		return nil
	}
	return failover(ctx, o, cl, c, report)
}

func failover(ctx context.Context, o *options, cl *cluster, c *client.Client, report *bench.Report) error {
	fmt.Fprintln(os.Stderr, "failover …")
	r, err := bench.Failover{
		Load: bench.Load{Topic: "bench-failover", Replicas: 3, MessageBytes: messageBytes, Linger: -1, Rate: 2000,
			Window: 100_000, Warmup: o.warmup},
		Times: o.losses, Settle: 3 * time.Second, Kill: cl.kill, Restore: cl.restore,
	}.Run(ctx, c)
	if r != nil && len(r.Rounds) > 0 {
		r.Name = "failover"
		report.Results = append(report.Results, r)
	}
	if err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	return nil
}
