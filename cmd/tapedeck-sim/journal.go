package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/tapedeck/tapedeck/disk/journal"
	"github.com/tapedeck/tapedeck/disk/scratch"
	"github.com/tapedeck/tapedeck/sim"
)

// engineEvery is the number of seeds of which one runs on each of the journal
// engines that write real files; the others run on the simulator's own.
const engineEvery = 20

// simulated names the simulator's own engine.
const simulated = "simulated"

// engineFlag chooses the journal engine of the nodes.
type engineFlag struct {
	Journal string `help:"${journal_help}" enum:"seed,simulated,own,tidwall" default:"seed"`
}

// engineOf names the journal engine of a seed.
func (c *engineFlag) engineOf(seed uint64) string {
	if c.Journal != "seed" && c.Journal != "" {
		return c.Journal
	}
	switch seed % engineEvery {
	case 7:
		return journal.Tidwall
	case 17:
		return journal.Own
	}
	return simulated
}

// prepare draws a seed's options, with its journal engine. done removes the
// engine's scratch folders; call it after the run.
func (c *engineFlag) prepare(seed uint64) (o sim.Options, done func() error) {
	o = sim.FromSeed(seed)
	name := c.engineOf(seed)
	if name == simulated {
		return o, func() error { return nil }
	}
	f := scratch.New(name)
	f.Parent = scratchFolder()
	o.Journal = sim.JournalOptions{Name: name, New: f.Engine}
	return o, f.Close
}

// run runs one seed on its journal engine.
func (c *engineFlag) run(seed uint64, line func(string)) (o sim.Options, r sim.Result) {
	o, done := c.prepare(seed)
	r = sim.Run(o, line)
	if err := done(); err != nil && r.Exit == sim.Passed {
		r.Exit, r.Why = sim.Crashed, "the journal engine's scratch folder stays: "+err.Error()
	}
	return o, r
}

// scratchFolder holds the scratch folders of all runs of this process. It is
// removed by removeScratch, and when the process is told to end.
var scratchFolder = sync.OnceValue(func() string {
	folder, err := os.MkdirTemp(scratch.Parent(), "tapedeck-sim-")
	if err != nil {
		return scratch.Parent() // each run removes its own
	}
	scratchMade = folder
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-told
		_ = os.RemoveAll(folder)
		os.Exit(interruptedExit)
	}()
	return folder
})

// scratchMade is what scratchFolder made, for removeScratch after all runs.
var scratchMade string

func removeScratch() {
	if scratchMade != "" {
		_ = os.RemoveAll(scratchMade)
	}
}
