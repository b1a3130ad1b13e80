// Command tapedeck-sim runs the broker's core in the simulator: one seed, a
// sweep of seeds, scenario files, and the board of planted bugs. It judges
// histories of other systems, too.
//
// Exit codes: 0 passed, 10 safety broken, 11 liveness broken, 12 crashed,
// 13 undecided, 64 usage; of several runs the worst, in the order 12, 10, 11, 13.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tapedeck/tapedeck/sim"
)

const (
	usageExit       = 64
	interruptedExit = 130
)

// cli is the command line.
type cli struct {
	Run      runCommand      `cmd:"" help:"Run one seed and print what happened."`
	Sweep    sweepCommand    `cmd:"" help:"Run a range of seeds."`
	Scenario scenarioCommand `cmd:"" help:"Replay scenario files."`
	Bugs     bugsCommand     `cmd:"" help:"Plant each known bug and print how soon it is caught."`
	Shrink   shrinkCommand   `cmd:"" help:"Make a failing seed into a scenario that a person can read."`
	Check    checkCommand    `cmd:"" help:"Judge a history of clients' calls, of whatever system."`
	Draw     drawCommand     `cmd:"" help:"Write a correct history, to try check on."`
}

// output is where a command writes, and its exit code when it is done.
type output struct {
	io.Writer
	exit int
}

// worsen keeps the worst exit class.
func (o *output) worsen(exit int) {
	if rank(exit) > rank(o.exit) {
		o.exit = exit
	}
}

func rank(exit int) int {
	switch exit {
	case sim.Passed:
		return 0
	case sim.Undecided:
		return 1
	case sim.LivenessBroken:
		return 2
	case sim.SafetyBroken:
		return 3
	}
	return 4
}

func main() {
	// A run lives for a fraction of a second on little memory: collect seldom.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(1600)
	}
	var c cli
	parser := kong.Must(&c, kong.Name("tapedeck-sim"), kong.UsageOnError(),
		kong.Vars{"journal_help": "The nodes' journal engine: simulated, or own or tidwall over scratch folders; " +
			"seed: tidwall for seeds that end in 07, 27, 47, 67 or 87, own for those 10 later, simulated for the others."},
		kong.Description("Tapedeck's simulator: a whole cluster in virtual time, broken by a seed, and judged."))
	ctx, err := parser.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tapedeck-sim:", err)
		os.Exit(usageExit)
	}
	out := &output{Writer: os.Stdout}
	err = ctx.Run(out)
	removeScratch()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tapedeck-sim:", err)
		os.Exit(usageExit)
	}
	os.Exit(out.exit)
}

// version is the commit this binary was built from, and by which Go.
func version() string {
	commit := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				commit = s.Value[:12]
			}
		}
	}
	if commit == "unknown" {
		if b, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output(); err == nil {
			commit = strings.TrimSpace(string(b))
		}
	}
	return fmt.Sprintf("commit %s %s", commit, runtime.Version())
}
