package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tapedeck/tapedeck/sim"
)

// sweepCommand runs a range of seeds.
type sweepCommand struct {
	engineFlag
	Seeds   string `required:"" placeholder:"FROM..TO" help:"Seeds to run, both ends included."`
	Workers int    `help:"Runs at a time; the number of cores by default."`
	Corpus  string `type:"path" help:"A folder to keep failing seeds in."`
	First   bool   `help:"Stop at the first seed that fails."`
	Probes  bool   `help:"Print how often each probe was hit."`
	NoCold  bool   `help:"Fail, as undecided, if some probe was never hit: what it stands for was not tested."`
}

// tally is what a sweep adds up.
type tally struct {
	seeds, events, calls, acked uint64
	virtual                     time.Duration
	failed                      map[uint64]sim.Result
	probes                      map[string]int
}

// parseSeeds reads FROM..TO, or one seed.
func parseSeeds(s string) (from, to uint64, err error) {
	a, b, isRange := strings.Cut(s, "..")
	if !isRange {
		b = a
	}
	from, err1 := strconv.ParseUint(a, 10, 64)
	to, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil || to < from {
		return 0, 0, fmt.Errorf("--seeds=%s is not of the form 1..2000", s)
	}
	return from, to, nil
}

// Run implements the command.
func (c *sweepCommand) Run(out *output) error {
	from, to, err := parseSeeds(c.Seeds)
	if err != nil {
		return err
	}
	began, cpu := time.Now(), cpuTime()
	t := c.sweep(out, from, to)
	wall, core := time.Since(began), cpuTime()-cpu
	for _, seed := range slices.Sorted(maps.Keys(t.failed)) {
		out.worsen(t.failed[seed].Exit)
		if c.Corpus != "" {
			if err := c.keep(seed, t.failed[seed]); err != nil {
				return err
			}
		}
	}
	if c.Probes || c.NoCold {
		printProbes(out, t.probes)
	}
	if cold := printCold(out, t.probes); cold > 0 && c.NoCold {
		out.worsen(sim.Undecided)
	}
	fmt.Fprintf(out, "swept     %d seeds, %d failed: %s\n", t.seeds, len(t.failed), sim.ExitName(out.exit))
	fmt.Fprintf(out, "cost      %d events, %d calls, %d messages; %.0f events per core-second, %.2f core-seconds a seed\n",
		t.events, t.calls, t.acked, float64(t.events)/core.Seconds(), core.Seconds()/float64(max(t.seeds, 1)))
	fmt.Fprintf(out, "time      %.0f virtual seconds in %.1f s: %.0f times wall time\n", t.virtual.Seconds(),
		wall.Seconds(), t.virtual.Seconds()/wall.Seconds())
	fmt.Fprintf(out, "version   %s\n", version())
	return nil
}

// sweep runs the seeds on workers. With First no seed above a failed one is
// begun, so that the lowest failing seed is found whatever the workers' pace.
func (c *sweepCommand) sweep(out *output, from, to uint64) tally {
	t := tally{failed: map[uint64]sim.Result{}, probes: map[string]int{}}
	workers := c.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := from
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next > to || c.First && len(t.failed) > 0 {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range workers {
		wg.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				_, r := c.run(seed, nil)
				mu.Lock()
				t.add(seed, r)
				if r.Exit != sim.Passed {
					printVerdict(out, seed, r)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return t
}

// printCold says how many probes were hit and which were not.
func printCold(out *output, probes map[string]int) (cold int) {
	all := sim.Probes()
	for _, name := range all {
		if probes[name] == 0 {
			cold++
			fmt.Fprintf(out, "cold      %s\n", name)
		}
	}
	fmt.Fprintf(out, "probes    %d of %d hit\n", len(all)-cold, len(all))
	return cold
}

func (t *tally) add(seed uint64, r sim.Result) {
	t.seeds++
	t.events += r.Events
	t.calls += uint64(r.Operations)
	t.acked += uint64(r.Acked)
	t.virtual += r.Virtual
	for name, n := range r.Probes {
		t.probes[name] += n
	}
	if r.Exit != sim.Passed {
		t.failed[seed] = r
	}
}

// keep writes a failing seed, with what it expanded to, into the corpus.
func (c *sweepCommand) keep(seed uint64, r sim.Result) error {
	if err := os.MkdirAll(c.Corpus, 0o755); err != nil {
		return err
	}
	o, _ := c.prepare(seed)
	text := fmt.Sprintf("%sverdict   %s: %s\ntrace     %016x\nversion   %s\n%s", o, sim.ExitName(r.Exit),
		r.Why, r.Hash, version(), r.Stack)
	return os.WriteFile(filepath.Join(c.Corpus, fmt.Sprintf("seed-%d.txt", seed)), []byte(text), 0o644)
}
