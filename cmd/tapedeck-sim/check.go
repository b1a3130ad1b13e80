package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/checker/drawn"
	"github.com/tapedeck/tapedeck/sim"
)

// checkMemory is what the collector holds a check to, in bytes, as far as the
// history allows: main lets the heap grow to several times what is live.
const checkMemory = 900 << 20

// checkCommand judges a history, whatever system it is of.
type checkCommand struct {
	File    string `arg:"" type:"path" help:"A history as JSON lines (docs/histories.md); - for standard input."`
	Picture string `type:"path" help:"Write porcupine's picture of what is not linearizable into this HTML file."`
	Window  int    `default:"200" help:"Operations that the search for a linear order takes at once."`
	Steps   int    `default:"200000" help:"Steps of the search per window; a window that needs more is undecided."`
}

// Run implements the command.
func (c *checkCommand) Run(out *output) error {
	if c.Window < 1 || c.Steps < 1 {
		return errors.New("--window and --steps must be at least 1")
	}
	debug.SetMemoryLimit(checkMemory)
	var in io.Reader = os.Stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	began := time.Now()
	history, final, err := checker.Read(bufio.NewReaderSize(in, 1<<20))
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	read := time.Since(began)
	budget := checker.Budget{Window: c.Window, Steps: c.Steps, Total: checker.DefaultBudget.Total}
	began = time.Now()
	report, linear := checker.CheckAll(history, final, budget)
	judged := time.Since(began)
	printReport(out, history, report)
	fmt.Fprintf(out, "cost      %d operations; read in %.1f s, judged in %.1f s (%.1f core-seconds in all); "+
		"%d MB of memory at most\n",
		len(history.Ops), read.Seconds(), judged.Seconds(), cpuTime().Seconds(), peakMemory()>>20)
	fmt.Fprintf(out, "version   %s\n", version())
	out.worsen(exitOf(report.Result()))
	if linear.Verdict().Result == checker.Failed && c.Picture != "" {
		return writePicture(c.Picture, sim.Result{Linear: linear})
	}
	return nil
}

// exitOf is the exit code of a history's result.
func exitOf(r checker.Result) int {
	switch r {
	case checker.OK:
		return sim.Passed
	case checker.Failed:
		return sim.SafetyBroken
	}
	return sim.Undecided
}

// printReport prints a line per verdict, and under one that is not ok what was
// found and the operations it rests on.
func printReport(out *output, history *checker.History, report checker.Report) {
	fmt.Fprintf(out, "%-9s %-26s %10s %10s\n", "verdict", "kind of error", "judged", "found")
	for _, v := range report.Verdicts {
		result := v.Result.String()
		if v.Result == checker.OK && v.Checked == 0 {
			result = "no case"
		}
		fmt.Fprintf(out, "%-9s %-26s %10d %10d\n", result, v.Name, v.Checked, v.Count)
		if v.Result == checker.OK {
			continue
		}
		fmt.Fprintf(out, "          %s\n", v.Detail)
		for _, i := range v.Ops {
			printOperation(out, history, i)
		}
	}
	fmt.Fprintf(out, "history   %s: %s\n", report.Result(), report.Line())
}

// drawCommand writes a history to try check on.
type drawCommand struct {
	File       string `arg:"" type:"path" help:"The file to write."`
	Operations int    `default:"1000000" help:"How many operations, about."`
	Partitions int    `default:"16" help:"How many partitions the topic has."`
	Seed       uint64 `default:"7" help:"What it is drawn from."`
}

// Run implements the command.
func (c *drawCommand) Run(out *output) error {
	if c.Operations < 0 || c.Operations > checker.MaxOps || c.Partitions < 1 || c.Partitions > 10_000 {
		return errors.New("--operations must be 0 to 268435456 and --partitions 1 to 10000")
	}
	history, final := drawn.History(c.Seed, c.Operations, c.Partitions)
	if err := writeHistory(c.File, sim.Result{History: history, Final: final}); err != nil {
		return err
	}
	fmt.Fprintf(out, "drawn     %d operations into %s\n", len(history.Ops), c.File)
	return nil
}
