package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/checker/drawn"
	"github.com/tapedeck/tapedeck/sim"
)

// check runs the command on a file and returns what it printed, and its exit code.
func check(t *testing.T, path string, window int) (string, int) {
	t.Helper()
	var b strings.Builder
	out := &output{Writer: &b}
	if err := (&checkCommand{File: path, Window: window, Steps: 2000}).Run(out); err != nil {
		t.Fatal(err)
	}
	return b.String(), out.exit
}

func TestCheckJudgesFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	var b strings.Builder
	if err := (&drawCommand{File: path, Operations: 3000, Partitions: 4, Seed: 1}).Run(&output{Writer: &b}); err != nil {
		t.Fatal(err)
	}
	if printed, exit := check(t, path, 200); exit != sim.Passed || !strings.Contains(printed, "history   ok: durable ok") {
		t.Errorf("a right history: exit %d\n%s", exit, printed)
	}
	history, final := drawn.History(1, 3000, 4)
	l := &final.Logs[1]
	l.Messages, l.HighWatermark = l.Messages[:len(l.Messages)-1], l.HighWatermark-1
	if err := writeHistory(path, sim.Result{History: history, Final: final}); err != nil {
		t.Fatal(err)
	}
	printed, exit := check(t, path, 200)
	for _, want := range []string{"FAILED    lost write", "history   FAILED: durable FAILED", "\ncall      "} {
		if exit != sim.SafetyBroken || !strings.Contains(printed, want) {
			t.Errorf("a lost write: exit %d, want %q in\n%s", exit, want, printed)
		}
	}
	// Without a final state, what was acknowledged cannot be found lost.
	if err := writeHistory(path, sim.Result{History: history}); err != nil {
		t.Fatal(err)
	}
	if printed, exit := check(t, path, 200); exit != sim.Undecided {
		t.Errorf("no final state: exit %d\n%s", exit, printed)
	}
	if err := os.WriteFile(path, []byte("{\"call\":1}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := (&checkCommand{File: path, Window: 1, Steps: 1}).Run(&output{Writer: &b})
	if err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("not a history: %v", err)
	}
	if exitOf(checker.Undecided) != sim.Undecided {
		t.Error("undecided passes")
	}
}
