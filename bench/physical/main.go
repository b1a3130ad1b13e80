//go:build linux

// Command physical measures what this machine can do at all: three processes
// that replicate frames over TCP and fdatasync them, with group commit, before
// the client is told that two of three have them. No checksum, no index, no
// HTTP, no consumer. And the raw disk.
//
// The first process is leader: it forwards each frame to the two others, which
// append and sync like itself. A frame is its length, log and number (16 bytes)
// and its body; an answer is log and number.
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

// line is one line of the table.
type line struct {
	name    string
	logs    int // files
	parts   int // frames go to logs in turn, as many at a time as there are parts
	frame   int // bytes
	window  int // frames
	rate    float64
	unquick bool // left out of a quick run
}

const message = 1024

var lines = []line{
	{name: "one-partition", logs: 1, parts: 1, frame: 64 << 10, window: 16},
	{name: "eight-partitions", logs: 8, parts: 8, frame: 64 << 10, window: 128},
	{name: "eight-partitions-one-log", logs: 1, parts: 8, frame: 64 << 10, window: 128, unquick: true},
	{name: "one-at-a-time", logs: 1, parts: 1, frame: message, window: 1},
	{name: "256-in-flight", logs: 1, parts: 1, frame: message, window: 256},
	{name: "4096-in-flight", logs: 1, parts: 1, frame: message, window: 4096, unquick: true},
	{name: "steady-5000", logs: 1, parts: 1, frame: message, window: 4096, rate: 5000},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "node" {
		fail(serve(os.Args[2:]))
		return
	}
	quick := flag.Bool("quick", false, "fewer lines, and shorter")
	duration := flag.Duration("duration", 5*time.Second, "of a round")
	rounds := flag.Int("rounds", 5, "the result is their median")
	warmup := flag.Duration("warmup", time.Second, "not counted")
	file := flag.String("json", "", "write the figures to this file")
	dir := flag.String("dir", "", "folder for data, on the disk to measure; by default a temporary one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fail(run(ctx, *dir, *file, *quick, *warmup, *duration, *rounds))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "physical:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, file string, quick bool, warmup, duration time.Duration, rounds int) error {
	made, err := os.MkdirTemp(dir, "physical-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	report := bench.NewReport()
	raw, err := rawDisk(made, quick)
	if err != nil {
		return fmt.Errorf("raw disk: %w", err)
	}
	report.Results = append(report.Results, raw...)
	for _, l := range lines {
		if quick && l.unquick {
			continue
		}
		r, err := l.run(ctx, filepath.Join(made, l.name), warmup, duration, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		report.Results = append(report.Results, r)
	}
	if file != "" {
		if err := report.WriteJSON(file); err != nil {
			return err
		}
	}
	return report.Table(os.Stdout)
}
