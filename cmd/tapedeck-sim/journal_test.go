package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/sim"
)

const childVariable = "TAPEDECK_SIM_TEST_ENGINE_SEED"

// TestMain lets the test binary run one seed in another process.
func TestMain(m *testing.M) {
	var seed uint64
	if _, err := fmt.Sscan(os.Getenv(childVariable), &seed); err == nil {
		_, r := new(engineFlag).run(seed, nil)
		removeScratch()
		fmt.Printf("%d %016x %x\n", r.Exit, r.Hash, r.Points)
		os.Exit(0)
	}
	exit := m.Run()
	removeScratch()
	os.Exit(exit)
}

// TestOneSeedInTwentyOnEachEngine, and the options say which.
func TestOneSeedInTwentyOnEachEngine(t *testing.T) {
	count := map[string]int{}
	for seed := uint64(1); seed <= 2000; seed++ {
		count[new(engineFlag).engineOf(seed)]++
	}
	if count["tidwall"] != 100 || count["own"] != 100 || count["simulated"] != 1800 {
		t.Errorf("of 2,000 seeds: %v", count)
	}
	for seed, want := range map[uint64]string{7: "tidwall", 17: "own", 1: "simulated"} {
		if o, _ := new(engineFlag).prepare(seed); !strings.Contains(o.String(), "journal   "+want+"\n") {
			t.Errorf("seed %d: %s", seed, o)
		}
	}
	if o, _ := (&engineFlag{Journal: "own"}).prepare(7); o.Journal.Name != "own" {
		t.Errorf("told own, it takes %q", o.Journal.Name)
	}
}

// TestSeedsOnEnginesThatWriteFiles: a seed on such an engine passes, gives the
// same trace here, again here, and in another process, and leaves no folder.
func TestSeedsOnEnginesThatWriteFiles(t *testing.T) {
	for _, seed := range []uint64{7, 17, 27} {
		_, first := new(engineFlag).run(seed, nil)
		if first.Exit != sim.Passed || first.Acked == 0 {
			t.Errorf("seed %d %s: %s; %d messages", seed, sim.ExitName(first.Exit), first.Why, first.Acked)
		}
		want := fmt.Sprintf("%d %016x %x", first.Exit, first.Hash, first.Points)
		_, again := new(engineFlag).run(seed, nil)
		if got := fmt.Sprintf("%d %016x %x", again.Exit, again.Hash, again.Points); got != want {
			t.Errorf("seed %d again:\n%.100s\nat first:\n%.100s", seed, got, want)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", childVariable, seed), "GOMAXPROCS=1", "GOGC=30")
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("seed %d in another process: %v\n%.100s\nhere:\n%.100s", seed, err, got, want)
		}
	}
	// A full disk at the end of a file: the failed journal closes its file once; and
	// a crash during a write that begins a file, which leaves the one before whole.
	for _, seed := range []uint64{20097, 1107} {
		if _, r := new(engineFlag).run(seed, nil); r.Exit != sim.Passed {
			t.Errorf("seed %d %s: %s", seed, sim.ExitName(r.Exit), r.Why)
		}
	}
	left, err := os.ReadDir(scratchFolder())
	if err != nil || len(left) > 0 {
		t.Errorf("left in the scratch folder: %v, %v", left, err)
	}
}
