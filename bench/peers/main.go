// Command peers runs the suite's lines against NATS JetStream: three nodes, each
// a process, file storage, three replicas, and either a sync for each write
// ("always") or the default, which syncs every two minutes. It is a module of
// its own so that the broker's stays light.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/tapedeck/tapedeck/bench"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "node" {
		fail(serve(os.Args[2:]))
		return
	}
	o := options{}
	flag.StringVar(&o.sync, "sync", "always", "always or default")
	flag.StringVar(&o.dir, "dir", "", "folder for data, on the disk to measure; by default a temporary one")
	flag.StringVar(&o.file, "json", "", "write the figures to this file")
	flag.BoolVar(&o.quick, "quick", false, "fewer lines, and shorter")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "of a round")
	flag.DurationVar(&o.warmup, "warmup", time.Second, "not counted")
	flag.IntVar(&o.rounds, "rounds", 5, "the result is their median")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fail(o.run(ctx))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

type options struct {
	sync, dir, file  string
	quick            bool
	duration, warmup time.Duration
	rounds           int
}

func (o *options) run(ctx context.Context) error {
	dir, err := os.MkdirTemp(o.dir, "peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &cluster{dir: filepath.Join(dir, "nats"), sync: o.sync}
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return err
	}
	report := bench.NewReport()
	for _, l := range lines(o.quick) {
		r, err := l.run(ctx, o, c)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		r.Name = l.name
		report.Results = append(report.Results, r)
	}
	if o.file != "" {
		if err := report.WriteJSON(o.file); err != nil {
			return err
		}
	}
	return report.Table(os.Stdout)
}
