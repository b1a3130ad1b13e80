// Command suite runs the standard table: three serve processes on this machine,
// the physical reference and, where it was built, NATS JetStream, one after the
// other in one run. What it says of others are ratios to what it saw here.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tapedeck/tapedeck/bench"
)

type options struct {
	tapedeck, physical, peers string // binaries; no peers: they are left out
	dir, out                  string
	quick                     bool
	only                      string
	warmup, duration          time.Duration
	rounds, losses            int
}

func main() {
	var o options
	flag.StringVar(&o.tapedeck, "tapedeck", "bin/tapedeck", "the broker's binary")
	flag.StringVar(&o.physical, "physical", "bin/physical", "the physical reference's binary; empty: none")
	flag.StringVar(&o.peers, "peers", "", "the binary that measures NATS; empty: none")
	flag.StringVar(&o.dir, "dir", "", "folder for data, on the disk to measure; by default a temporary one")
	flag.StringVar(&o.out, "out", "bench/out", "folder for the results")
	flag.StringVar(&o.only, "only", "", "run only the lines whose names this regular expression matches")
	flag.BoolVar(&o.quick, "quick", false, "fewer lines, and shorter: under a minute")
	flag.Parse()
	o.warmup, o.duration, o.rounds, o.losses = 2*time.Second, 5*time.Second, 5, 20
	if o.quick {
		o.warmup, o.duration, o.rounds, o.losses = 400*time.Millisecond, time.Second, 1, 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	dir, err := os.MkdirTemp(o.dir, "tapedeck-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	report := bench.NewReport()
	var physical, always, usual *bench.Report
	if o.physical != "" {
		if physical, err = o.other(ctx, dir, "the physical reference", o.physical, "physical"); err != nil {
			return err
		}
	}
	if err := ours(ctx, o, filepath.Join(dir, "tapedeck"), report); err != nil {
		return err
	}
	if o.peers != "" {
		if always, err = o.other(ctx, dir, "NATS, sync always", o.peers, "nats-always", "--sync", "always"); err != nil {
			return err
		}
		if usual, err = o.other(ctx, dir, "NATS, default sync", o.peers, "nats-default", "--sync", "default"); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(os.Stderr, "NATS is left out: build it with make bench-peers")
	}
	compare(report, physical, always)
	return o.present(report, physical, always, usual)
}

// present writes everything to files and the table to people.
func (o *options) present(report, physical, always, usual *bench.Report) error {
	name := "full"
	if o.quick {
		name = "quick"
	}
	whole := struct {
		*bench.Report
		Physical    *bench.Report `json:"physical,omitempty"`
		NATSAlways  *bench.Report `json:"nats_always,omitempty"`
		NATSDefault *bench.Report `json:"nats_default,omitempty"`
	}{report, physical, always, usual}
	if err := bench.WriteJSON(filepath.Join(o.out, name+".json"), whole); err != nil {
		return err
	}
	if err := report.WritePage(filepath.Join(o.out, name+".html")); err != nil {
		return err
	}
	if err := report.Table(os.Stdout); err != nil {
		return err
	}
	latencies(os.Stdout, report, map[string]*bench.Report{
		"physical": physical, "NATS always": always, "NATS default": usual,
	})
	fmt.Printf("written: %s.json and .html\n", filepath.Join(o.out, name))
	return nil
}
