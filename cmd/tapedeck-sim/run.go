package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/sim"
)

// runCommand runs one seed.
type runCommand struct {
	engineFlag
	Seed    uint64 `required:"" help:"The seed."`
	Trace   bool   `help:"Print a line per interesting event."`
	Quiet   bool   `help:"Print the verdict only."`
	History string `type:"path" help:"Write what the clients called and got into this file, as JSON lines."`
	Picture string `type:"path" help:"Write porcupine's picture of what is not linearizable into this HTML file."`
}

// Run implements the command.
func (c *runCommand) Run(out *output) error {
	if !c.Quiet {
		o, _ := c.prepare(c.Seed)
		fmt.Fprint(out, o)
	}
	var line func(string)
	if c.Trace {
		line = func(s string) { fmt.Fprintln(out, s) }
	}
	began := time.Now()
	_, r := c.run(c.Seed, line)
	took := time.Since(began)
	if !c.Quiet {
		printProbes(out, r.Probes)
	}
	printVerdict(out, c.Seed, r)
	printOperations(out, r)
	fmt.Fprintf(out, "cost      %d events, %d calls, %d messages, %.1f virtual seconds in %v\n", r.Events, r.Operations,
		r.Acked, r.Virtual.Seconds(), took.Round(time.Millisecond))
	fmt.Fprintf(out, "trace     %016x\n", r.Hash)
	fmt.Fprintf(out, "version   %s\n", version())
	out.worsen(r.Exit)
	if c.History != "" {
		if err := writeHistory(c.History, r); err != nil {
			return err
		}
	}
	if v := r.Linear.Verdict(); c.Picture != "" && v.Result == checker.Failed {
		return writePicture(c.Picture, r)
	}
	return nil
}

// writeHistory keeps the calls and the final state; line n is the verdicts' call n-1.
func writeHistory(path string, r sim.Result) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := checker.Write(f, r.History, r.Final); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

func printProbes(out *output, probes map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(probes)) {
		if probes[name] > 0 {
			fmt.Fprintf(out, "probe     %6d %s\n", probes[name], name)
		}
	}
}

func printVerdict(out *output, seed uint64, r sim.Result) {
	fmt.Fprintf(out, "verdict   seed %d %s", seed, sim.ExitName(r.Exit))
	if r.Why != "" {
		fmt.Fprintf(out, ": %s", r.Why)
	}
	fmt.Fprintln(out)
	if len(r.Report.Verdicts) > 0 {
		fmt.Fprintf(out, "          %s\n", r.Report)
	}
	if r.Stack != "" {
		fmt.Fprintln(out, r.Stack)
	}
}

// printOperations shows the calls that the first failed verdict rests on.
func printOperations(out *output, r sim.Result) {
	for _, f := range r.Report.Failures() {
		for _, i := range f.Ops {
			printOperation(out, r.History, i)
		}
	}
}

// printOperation shows call i, as a history file has it on line i+1.
func printOperation(out *output, h *checker.History, i int) {
	if b, err := json.Marshal(&h.Ops[i]); err == nil {
		fmt.Fprintf(out, "call      %d %s\n", i, b)
	}
}

// writePicture draws the first window that no order explains, and the faults.
func writePicture(path string, r sim.Result) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.Linear.Visualize(f, r.Faults), f.Close())
}
