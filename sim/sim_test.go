package sim_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/sim"
)

var (
	oneSeed = flag.Uint64("seed", 0, "replay this seed, with its trace, instead of the share")
	share   = flag.Uint64("seeds", 20, "run seeds 1 to this")
)

// understood are seeds that failed once; CHANGELOG.md says of each what it was.
var understood = []uint64{5, 23, 197, 210, 219, 1077, 5085,
	1171, 2603,
	100024, 102030, 102088, 103034, 104157, 596, 718, 1127, 1329, 1514, 1920, 20002, 19, 710052, 22, 33, 1710, 2665, 307}

// replay runs a seed and reports what it came to.
func replay(t *testing.T, seed uint64, line func(string)) sim.Result {
	t.Helper()
	r := sim.Run(sim.FromSeed(seed), line)
	if r.Exit != sim.Passed {
		t.Errorf("seed %d %s: %s\n%s%s\ngo test ./sim -seed=%d replays it", seed, sim.ExitName(r.Exit), r.Why, r.Report,
			r.Stack, seed)
	}
	return r
}

func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		t.Logf("options\n%s", sim.FromSeed(*oneSeed))
		r := replay(t, *oneSeed, func(s string) { t.Log(s) })
		t.Logf("trace %016x, %d events", r.Hash, r.Events)
		return
	}
	acked := 0
	for seed := uint64(1); seed <= *share; seed++ {
		acked += replay(t, seed, nil).Acked
	}
	for _, seed := range understood {
		replay(t, seed, nil)
	}
	if acked == 0 {
		t.Error("no message was acknowledged in any seed: nothing was tested")
	}
}

const childVariable = "TAPEDECK_SIM_TEST_SEED"

// TestMain lets the test binary run one seed in another process.
func TestMain(m *testing.M) {
	var seed uint64
	if _, err := fmt.Sscan(os.Getenv(childVariable), &seed); err == nil {
		r := sim.Run(sim.FromSeed(seed), nil)
		fmt.Printf("%016x %d %x\n", r.Hash, r.Exit, r.Points)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// elsewhere runs a seed in another process, with other settings of the runtime.
func elsewhere(t *testing.T, seed uint64, env ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", childVariable, seed))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("seed %d in another process: %v", seed, err)
	}
	return strings.TrimSpace(string(out))
}

// TestDeterminism: a seed gives the same trace in this process, again in this
// process, and in others with other settings.
func TestDeterminism(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		first, second := sim.Run(sim.FromSeed(seed), nil), sim.Run(sim.FromSeed(seed), nil)
		if first.Hash != second.Hash {
			t.Fatalf("seed %d twice: the runs part within the 1,024 events after event %d", seed,
				1024*parting(first.Points, second.Points))
		}
		want := fmt.Sprintf("%016x %d %x", first.Hash, first.Exit, first.Points)
		for _, env := range [][]string{{"GOMAXPROCS=1", "GOGC=20"}, {"GOMAXPROCS=7", "GOGC=off"}} {
			if got := elsewhere(t, seed, env...); got != want {
				t.Errorf("seed %d with %v differs:\n%.200s\nhere:\n%.200s", seed, env, got, want)
			}
		}
	}
	if a, b := sim.Run(sim.FromSeed(1), nil), sim.Run(sim.FromSeed(2), nil); a.Hash == b.Hash {
		t.Error("seeds 1 and 2 have one hash: it hashes nothing")
	}
}

// parting is the number of points two runs have in common.
func parting(a, b []uint64) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
