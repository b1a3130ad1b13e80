package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/journal"
	"github.com/tapedeck/tapedeck/disk/osdisk"
	"github.com/tapedeck/tapedeck/node/live"
)

// nodeFlags are common to the commands that run nodes.
type nodeFlags struct {
	AllowedOrigin []string      `help:"${origin_help}" placeholder:"URL"`
	LogLevel      string        `help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"${log_level}"`
	LogFormat     string        `help:"text or json." enum:"text,json" default:"text"`
	DrainTimeout  time.Duration `help:"How long calls under way may take to end at a stop." default:"10s"`
	Journal       string        `help:"${journal_help}" enum:"own,tidwall" default:"own"`
}

// logger writes to w as the flags say.
func (f *nodeFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// serveCmd runs one node as a process.
type serveCmd struct {
	nodeFlags `set:"log_level=info"`
	ID        string   `help:"This node's name." required:""`
	Data      string   `help:"This node's data folder; made if it is not there." required:"" placeholder:"DIR"`
	Listen    string   `help:"Address to serve clients and peers at." default:"127.0.0.1:7070"`
	Peers     peerList `help:"${peers_help}" required:"" placeholder:"n1=HOST:PORT,n2=…"`
	Bootstrap bool     `help:"${bootstrap_help}"`
	Pprof     string   `help:"Address to serve Go's profiles at." placeholder:"HOST:PORT"`
	DiskLow   byteSize `help:"${disk_low_help}" default:"256MiB" placeholder:"SIZE"`
	DiskHigh  byteSize `help:"${disk_high_help}" default:"384MiB" placeholder:"SIZE"`
	Segment   byteSize `name:"segment-size" help:"${segment_help}" default:"64MiB" placeholder:"SIZE"`
}

// Run serves until ctx ends or the node fails.
func (c *serveCmd) Run(ctx context.Context, std *stdio) error {
	tuneMemory()
	log := c.logger(std.Err)
	if c.DiskHigh < c.DiskLow {
		return errors.New("--disk-high must not be below --disk-low")
	}
	if c.Segment < 1<<20 || c.Segment > 1<<30 {
		return errors.New("--segment-size must be between 1MiB and 1GiB")
	}
	if err := fitForNode(c.Data); err != nil {
		return err
	}
	self, err := c.Peers.find(c.ID)
	if err != nil {
		return err
	}
	if doubt := elsewhere(c.Listen, self.Address); doubt != "" {
		log.Warn(doubt, "node", c.ID)
	}
	if c.Pprof != "" {
		stop, err := serveProfiles(c.Pprof)
		if err != nil {
			return fmt.Errorf("--pprof: %w", err)
		}
		defer stop()
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	n, err := startNode(live.Config{
		ID: model.NodeID(c.ID), Peers: c.Peers, Bootstrap: c.Bootstrap, Listener: l,
		AllowedOrigins: c.AllowedOrigin, Log: log,
		Limits: core.Limits{
			FreeLow: uint64(c.DiskLow), FreeHigh: uint64(c.DiskHigh), SegmentBytes: int64(c.Segment),
		},
	}, c.Data, c.Journal)
	if err != nil {
		_ = l.Close()
		return err
	}
	go func() {
		if n.WaitReady(ctx) == nil {
			fmt.Fprintln(std.Out, "ready", n.URL())
		}
	}()
	select {
	case <-ctx.Done():
		log.Info("stopping", "node", c.ID)
		return n.shutdown(c.DrainTimeout)
	case <-n.Failed():
		n.kill()
		return fmt.Errorf("node %s stopped: %w", c.ID, explainRefused(n.Failure(), c.Data))
	}
}

// localNode is a node and the data folder opened for it.
type localNode struct {
	*live.Node
	fs *osdisk.FS
}

// startNode opens the data folder dir and starts a node on it, with the journal
// engine of the given name. On an error the caller still owns the listener.
func startNode(cfg live.Config, dir, engine string) (*localNode, error) {
	written, err := journal.Named(engine, filepath.Join(dir, "journal"))
	if err != nil {
		return nil, fmt.Errorf("--journal: %w", err)
	}
	fs, err := osdisk.Open(dir)
	if err != nil {
		return nil, err
	}
	cfg.FS, cfg.Journal = fs, written
	if cfg.Log != nil {
		cfg.Log.Info("opening", "node", cfg.ID, "data", dir, "journal", engine)
	}
	n, err := live.Start(cfg)
	if err != nil {
		_ = fs.Close()
		return nil, fmt.Errorf("node %s: %w", cfg.ID, explainRefused(err, dir))
	}
	return &localNode{n, fs}, nil
}

// shutdown stops gracefully within the given time.
func (n *localNode) shutdown(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := n.Stop(ctx)
	if closeErr := n.fs.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("unlock the data folder: %w", closeErr)
	}
	return err
}

// kill ends the node at once and unlocks its folder.
func (n *localNode) kill() {
	n.Kill()
	_ = n.fs.Close()
}

// tuneMemory lets the garbage collector run less often than by default, within
// a bound: a broker's live heap is small beside what passes through. What the
// environment sets wins.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit())
	}
}

// memoryLimit is three quarters of the machine's memory, at least 512 MiB. It is
// a soft limit: beyond it the collector works harder.
func memoryLimit() int64 {
	const least = 512 << 20
	total, ok := machineMemory()
	if !ok {
		return 2 << 30
	}
	return max(least, total/4*3)
}
