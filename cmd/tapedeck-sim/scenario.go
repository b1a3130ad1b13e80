package main

import (
	"fmt"
	"os"

	"github.com/tapedeck/tapedeck/sim"
)

// scenarioCommand replays files.
type scenarioCommand struct {
	Files   []string `arg:"" type:"existingfile" help:"Scenario files."`
	Rewrite bool     `help:"Write the output seen into the files."`
	Trace   bool     `help:"Print a line per interesting event."`
}

// Run implements the command. A file whose output differs counts as broken
// safety, unless its own check says otherwise.
func (c *scenarioCommand) Run(out *output) error {
	for _, file := range c.Files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var line func(string)
		if c.Trace {
			line = func(s string) { fmt.Fprintln(out, s) }
		}
		r, err := sim.RunScenario(string(text), line)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		switch {
		case c.Rewrite:
			if r.Rewritten != string(text) {
				if err := os.WriteFile(file, []byte(r.Rewritten), 0o644); err != nil {
					return err
				}
				fmt.Fprintf(out, "rewritten %s\n", file)
			}
		case len(r.Differences) > 0:
			for _, d := range r.Differences {
				fmt.Fprintf(out, "%s: %s\n", file, d)
			}
			out.worsen(max(r.Exit, sim.SafetyBroken))
		default:
			fmt.Fprintf(out, "ok        %s %016x\n", file, r.Hash)
			out.worsen(r.Exit)
		}
	}
	return nil
}
