package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/tapedeck/tapedeck/bench"
	"github.com/tapedeck/tapedeck/client"
)

type benchCommands struct {
	Publish  benchPublishCmd  `cmd:"" help:"Publish, and say how fast and how late messages are acknowledged."`
	Consume  benchConsumeCmd  `cmd:"" help:"Fill a topic and read all of it, acknowledged, again and again."`
	E2e      benchE2eCmd      `cmd:"" name:"e2e" help:"Publish and read at once, and time messages from end to end."`
	Failover benchFailoverCmd `cmd:"" help:"Publish while leaders are killed, and read back what was acknowledged."`
}

// benchFlags are every load's.
type benchFlags struct {
	Server  []string      `help:"Nodes to ask, as host:port or URL." default:"http://127.0.0.1:7070" placeholder:"ADDRESS"`
	Timeout time.Duration `help:"How long to wait for an answer." default:"10s"`
	Name    string        `help:"What the line is called." placeholder:"TEXT"`
	JSON    string        `name:"json" env:"TAPEDECK_BENCH_JSON" help:"Write the figures to this file." placeholder:"FILE"`
	Plot    string        `help:"Draw them as a page in this file." placeholder:"FILE.html"`
	Profile string        `help:"Write this process's CPU profile to this file." placeholder:"FILE"`

	Topic      string `help:"Topic to use; without it one is made, and removed at the end." placeholder:"NAME"`
	Partitions uint32 `help:"Of a topic that is made." default:"1"`
	Replicas   uint32 `help:"Of a topic that is made." default:"3"`

	MessageSize   int           `help:"Bytes of a message's payload." default:"1024"`
	BatchBytes    int           `help:"Size at which a batch leaves; 0: the client's default."`
	BatchMessages int           `help:"Messages with which a batch leaves; 0: the client's default."`
	Linger        time.Duration `help:"How long a batch waits for more messages; -1ns: not at all." default:"2ms"`
	InFlight      int           `help:"Requests under way per partition and producer; 0: the client's default."`
	Window        int           `help:"Messages without a result, all publishers together." default:"4096"`
	Compression   string        `help:"none, zstd or s2." enum:"none,zstd,s2" default:"none"`
	Publishers    int           `help:"How many hand messages over." default:"1"`
	Producers     int           `help:"Producers of the client that they share." default:"1"`
	Keys          int           `help:"Different keys; 0: messages without a key."`
	Zipf          float64       `help:"Draw keys unevenly, with this exponent above 1." placeholder:"S"`
	Rate          float64       `help:"Messages per second, whatever becomes of them; 0: as fast as possible."`

	Warmup   time.Duration `help:"Not counted." default:"2s"`
	Duration time.Duration `help:"Of a round." default:"5s"`
	Rounds   int           `help:"The result is their median." default:"5"`
}

func (f *benchFlags) load() bench.Load {
	return bench.Load{
		Topic: f.Topic, Partitions: f.Partitions, Replicas: f.Replicas, MessageBytes: f.MessageSize,
		BatchBytes: f.BatchBytes, BatchMessages: f.BatchMessages, Linger: f.Linger, InFlight: f.InFlight,
		Window: f.Window, Compression: f.Compression, Publishers: f.Publishers, Producers: f.Producers,
		Keys: f.Keys, Zipf: f.Zipf, Rate: f.Rate, Warmup: f.Warmup, Duration: f.Duration, Rounds: f.Rounds,
	}
}

// with runs one load and reports it.
func (f *benchFlags) with(ctx context.Context, std *stdio, do func(*client.Client, bench.Load, bench.Meter) (
	*bench.Result, error)) error {
	flags := clientFlags{Server: f.Server, Timeout: f.Timeout}
	c, err := flags.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	l := f.load()
	if l.Topic == "" {
		l.Topic = fmt.Sprintf("bench-%d", time.Now().UnixNano())
		defer bench.RemoveTopic(ctx, c, l.Topic)
	}
	tuneMemory()
	report := bench.NewReport()
	if f.Profile != "" {
		stop, err := profileCPU(f.Profile)
		if err != nil {
			return fmt.Errorf("--profile: %w", err)
		}
		defer stop()
	}
	r, err := do(c, l, bench.MetricsMeter(c))
	if r != nil && len(r.Rounds) > 0 {
		if r.Name = f.Name; r.Name == "" {
			r.Name = r.Kind
		}
		report.Results = append(report.Results, r)
		err = errors.Join(err, f.write(report, std.Out))
	}
	return flags.explain(err)
}

func (f *benchFlags) write(report *bench.Report, out io.Writer) error {
	err := report.Table(out)
	if f.JSON != "" {
		err = errors.Join(err, report.WriteJSON(f.JSON))
	}
	if f.Plot != "" {
		err = errors.Join(err, report.WritePage(f.Plot))
	}
	return err
}

type benchPublishCmd struct{ benchFlags }

// Run publishes.
func (b *benchPublishCmd) Run(ctx context.Context, std *stdio) error {
	return b.with(ctx, std, func(c *client.Client, l bench.Load, m bench.Meter) (*bench.Result, error) {
		return bench.Publish(ctx, c, l, m)
	})
}

// readerFlags say how a subscription is read.
type readerFlags struct {
	Members     int           `help:"Of the subscription." default:"1"`
	Concurrency int           `help:"Handlers of each member." default:"1"`
	Buffer      int           `help:"Messages a member holds; 0: the client's default."`
	AckInterval time.Duration `help:"How long acks are gathered; 0: the client's default."`
}

func (f *readerFlags) readers() bench.Readers {
	return bench.Readers{
		Members: f.Members, Concurrency: f.Concurrency, Buffer: f.Buffer, AckInterval: f.AckInterval,
	}
}

type benchConsumeCmd struct {
	benchFlags
	readerFlags
	Messages int `help:"The topic is filled until it holds as many." default:"200000"`
}

// Run reads.
func (b *benchConsumeCmd) Run(ctx context.Context, std *stdio) error {
	return b.with(ctx, std, func(c *client.Client, l bench.Load, m bench.Meter) (*bench.Result, error) {
		return bench.Consume(ctx, c, bench.Consumption{Load: l, Readers: b.readers(), Messages: b.Messages}, m)
	})
}

type benchE2eCmd struct {
	benchFlags
	readerFlags
}

// Run publishes and reads.
func (b *benchE2eCmd) Run(ctx context.Context, std *stdio) error {
	return b.with(ctx, std, func(c *client.Client, l bench.Load, m bench.Meter) (*bench.Result, error) {
		return bench.EndToEnd(ctx, c, l, b.readers(), m)
	})
}

type benchFailoverCmd struct {
	benchFlags
	Times   int           `help:"How often a leader is lost." default:"5"`
	Settle  time.Duration `help:"From a loss to the return, and from that to the next loss." default:"3s"`
	Kill    string        `help:"Shell command that kills the node named by $$NODE." required:"" placeholder:"COMMAND"`
	Restore string        `help:"Shell command that starts it again." required:"" placeholder:"COMMAND"`
}

// Run publishes and has leaders killed.
func (b *benchFailoverCmd) Run(ctx context.Context, std *stdio) error {
	return b.with(ctx, std, func(c *client.Client, l bench.Load, _ bench.Meter) (*bench.Result, error) {
		return bench.Failover{
			Load: l, Times: b.Times, Settle: b.Settle, Kill: nodeCommand(std, b.Kill), Restore: nodeCommand(std, b.Restore),
		}.Run(ctx, c)
	})
}

// nodeCommand runs a command for a node.
func nodeCommand(std *stdio, command string) func(context.Context, string) error {
	return func(ctx context.Context, node string) error {
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Env = append(os.Environ(), "NODE="+node)
		cmd.Stdout, cmd.Stderr = std.Err, std.Err
		return cmd.Run()
	}
}
