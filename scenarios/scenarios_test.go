package scenarios

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/sim"
)

var rewrite = flag.Bool("rewrite", false, "write the output seen into the scenario files")

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("*.txt")
	if err != nil || len(files) < 12 {
		t.Fatalf("found %d scenario files (%v), want at least a dozen", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".txt"), func(t *testing.T) { replay(t, file) })
	}
}

func replay(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "# ") || !strings.Contains(string(text), "Claim: ") {
		t.Errorf("%s does not begin with a comment that says what it claims", file)
	}
	r, err := sim.RunScenario(string(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(r.Rewritten), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, d := range r.Differences {
		t.Errorf("%s: %s", file, d)
	}
	if r.Exit != sim.Passed {
		t.Errorf("%s: %s", file, sim.ExitName(r.Exit))
	}
	if len(r.Differences) == 0 && r.Rewritten != string(text) {
		t.Errorf("%s is not as -rewrite would write it", file)
	}
	again, err := sim.RunScenario(string(text), nil)
	if err != nil || again.Hash != r.Hash {
		t.Errorf("%s: a second replay has the trace %016x, the first %016x (%v)", file, again.Hash, r.Hash, err)
	}
}

// Whatever a file cannot mean is refused, with its line.
func TestMistakesAreRefused(t *testing.T) {
	const head = "cluster seed=1\n----\n\n"
	for text, want := range map[string]string{
		"publish orders\n----\n":                         "line 1",
		"cluster nodes=3\n----\n":                        "line 1, column 1: cluster: lacks seed=",
		head + "dance\n----\n":                           `line 4, column 1: "dance" is not a command`,
		head + "run 2\n----\n":                           `line 4, column 5: run: "2" is not a duration with a unit`,
		head + "run 2s 3s\n----\n":                       `line 4, column 8: run: does not take "3s"`,
		head + "crash n1 unsinced=keep\n----\n":          "line 4, column 10: crash: does not take unsinced=",
		head + "crash n1 unsynced=some\n----\n":          "line 4, column 10: crash: unsynced=some is none of",
		head + "crash n9\n----\n":                        `line 4, column 7: crash: there is no node "n9"`,
		head + "restart n1\n----\n":                      "line 4, column 9: restart: n1 is running",
		head + "run 1s\n":                                "lack their ----",
		head + "----\n":                                  "line 4: ---- without a command",
		head + "cluster seed=2\n----\n":                  "line 4, column 1: cluster: is there already",
		head + "strike crash n1\n----\n":                 "line 4, column 1: strike: goes with a swarm only",
		"swarm seed=1\ncrash n1\n----\n":                 "line 2, column 1: crash: does not go with a swarm",
		"swarm seed=1\nstrike quake n1\n----\n":          `line 2, column 8: strike: "quake" is none of`,
		"swarm seed=1\nload producers=x\n----\n":         "line 2, column 6: load: producers=",
		"swarm seed=1\nverdict\n----\n":                  "line 2, column 1: verdict: needs a topic",
		head + "pull orders/x member=a member=b\n----\n": "line 4, column 24: member is given twice",
	} {
		_, err := sim.RunScenario(text, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want an error with %q", text, err, want)
		}
	}
}
