// Command chaos runs real nodes as processes, loads them through the Go client,
// breaks them, and holds what the clients saw against what is there in the end.
//
// It owns a temporary folder with the nodes' data, their logs and the clients'
// history, and every process it starts: all are gone when it ends, by ^C, too,
// but for the folder of a run that failed. Its verdicts are those of package
// checker, the same as for simulated histories; beside them it counts by itself
// what producers were told and what is there.
//
// Invariants: at most one node at a time is without what it had on disk, and the
// next fault waits until it is whole again; every fault is healed when a run
// ends; moments are chosen by the seed, and how the processes run between them
// is the machine's affair.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line's.
type options struct {
	time     time.Duration
	nodes    int
	seed     uint64
	rate     int
	scenario string
	bin      string
	keep     bool
	tmpfs    bool
	bytes    int64
	pprof    bool
	faults   string
}

func main() {
	var o options
	var gib float64
	flag.DurationVar(&o.time, "time", 30*time.Second, "how long to break things")
	flag.IntVar(&o.nodes, "nodes", 3, "number of nodes; with 5 the topic has 5 replicas")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano())%100_000, "seed of what happens when")
	flag.IntVar(&o.rate, "rate", 1200, "messages published per second")
	flag.StringVar(&o.scenario, "scenario", "random", "one of: "+strings.Join(scenarioNames(), ", "))
	flag.StringVar(&o.bin, "bin", "", "the tapedeck to run; empty: it is built")
	flag.BoolVar(&o.keep, "keep", false, "keep the folder of a run that passed, too")
	flag.BoolVar(&o.tmpfs, "tmpfs", os.Geteuid() == 0, "put one node on a small file system and fill it (needs root)")
	flag.Float64Var(&gib, "gib", 1, "size of the partition of the scenario big-reopen, in GiB")
	flag.BoolVar(&o.pprof, "pprof", false, "nodes serve Go's profiles at their port plus 10000")
	flag.StringVar(&o.faults, "faults", "", "kinds of faults of a random run, such as kill,full; empty: all")
	flag.Parse()
	o.bytes = int64(gib * (1 << 30))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// stage is what every scenario plays on.
type stage struct {
	options
	dir   string
	rng   *rand.Rand
	began time.Time
	undo  []func()
	// history writes what clients saw so far, for a run that fails before it is judged.
	history func() error
}

func (s *stage) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// scenarios by name.
var scenarios = map[string]func(*stage, context.Context) error{
	"random":       (*stage).random,
	"two-of-five":  func(s *stage, ctx context.Context) error { return s.loseMachines(ctx, 5, 2) },
	"one-of-three": func(s *stage, ctx context.Context) error { return s.loseMachines(ctx, 3, 1) },
	"kill-leader":  (*stage).killLeader,
	"dev-restart":  (*stage).devRestart,
	"flood":        (*stage).flood,
	"big-reopen":   (*stage).bigReopen,
	"disk-full":    (*stage).diskFull,
}

func scenarioNames() []string {
	return []string{"random", "two-of-five", "one-of-three", "kill-leader", "dev-restart", "flood", "big-reopen",
		"disk-full"}
}

func run(ctx context.Context, o options) (err error) {
	if !slices.Contains(scenarioNames(), o.scenario) {
		return fmt.Errorf("-scenario: there is no %q; it is one of %s", o.scenario, strings.Join(scenarioNames(), ", "))
	}
	if o.nodes != 3 && o.nodes != 5 {
		return errors.New("-nodes: 3 or 5")
	}
	s := &stage{options: o, rng: rand.New(rand.NewPCG(o.seed, 1)), began: time.Now()}
	if s.dir, err = os.MkdirTemp("", "tapedeck-chaos-"); err != nil {
		return err
	}
	defer func() {
		for _, undo := range slices.Backward(s.undo) {
			undo()
		}
		if err == nil && !o.keep || ctx.Err() != nil {
			err = errors.Join(err, os.RemoveAll(s.dir))
			return
		}
		if err != nil && s.history != nil {
			err = errors.Join(err, s.history())
		}
		fmt.Println("data, logs and history are kept in", s.dir)
	}()
	if s.bin == "" {
		s.bin = filepath.Join(s.dir, "tapedeck")
		build := exec.CommandContext(ctx, "go", "build", "-o", s.bin, "./cmd/tapedeck")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build tapedeck (run this in its folder): %w\n%s", err, out)
		}
	}
	fmt.Printf("scenario %s, seed %d, folder %s\n", o.scenario, o.seed, s.dir)
	if err = scenarios[o.scenario](s, ctx); ctx.Err() != nil {
		err = errors.New("interrupted; everything is stopped and removed")
	}
	return err
}

// cluster starts nodes that are stopped with the stage.
func (s *stage) cluster(ctx context.Context, count int, flags ...string) (*cluster, error) {
	c, err := newCluster(s.bin, s.dir, count, s.rng, flags...) // the ports are drawn, too
	if err != nil {
		return nil, err
	}
	c.profiles = s.pprof
	s.undo = append(s.undo, c.stop)
	return c, nil
}

// nemesis is one for this stage.
func (s *stage) nemesis(l *load, c *cluster) *nemesis {
	n := &nemesis{l: l, c: c, rng: s.rng, say: s.say, counts: map[string]int{}, faults: faults}
	if s.faults != "" {
		chosen := strings.Split(s.faults, ",")
		n.faults = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !slices.Contains(chosen, f.name) })
	}
	return n
}
