package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tapedeck/tapedeck/sim"
)

// shrinkCommand makes a failing seed into a scenario that a person can read.
type shrinkCommand struct {
	Seed  uint64 `help:"The failing seed; with --bug, the first that catches it if there is none."`
	Bug   string `help:"A planted bug, by number or file name: the simulator is built with it first."`
	Out   string `type:"path" help:"The scenario file to write; with --bug, beside the bug's own if none is named."`
	Tries int    `default:"400" help:"Runs to try at most."`
	Most  int    `default:"500" help:"Seeds to look for the bug in at most."`
	Steps bool   `help:"Print each change that held."`
	Title string `hidden:"" help:"The scenario's first line."`
}

// Run implements the command.
func (c *shrinkCommand) Run(out *output) error {
	switch {
	case c.Bug != "":
		return c.withBug(out)
	case c.Seed == 0:
		return errors.New("give --seed, or --bug to look for one")
	}
	o := sim.FromSeed(c.Seed)
	first := sim.Run(o, nil)
	if first.Exit == sim.Passed {
		return fmt.Errorf("seed %d passes on the simulated journal: there is nothing to shrink", c.Seed)
	}
	plan := sim.Plan(o, first.Strikes)
	result := sim.Run(plan, nil)
	if result.Finding() != first.Finding() {
		return fmt.Errorf("seed %d comes to %q, with its faults spelled out to %q: it cannot be shrunk", c.Seed,
			first.Finding(), result.Finding())
	}
	s := &sim.Shrinker{Tries: c.Tries, Finding: first.Finding(), Best: plan, Result: result}
	if c.Steps {
		s.Note = func(line string) { fmt.Fprintf(out, "held      %s\n", line) }
	}
	before := sim.SizeOf(plan, &result)
	s.Shrink()
	fmt.Fprintf(out, "finding   seed %d %s\n", c.Seed, s.Finding)
	fmt.Fprintf(out, "before    %s\n", before)
	fmt.Fprintf(out, "after     %s\n", sim.SizeOf(s.Best, &s.Result))
	fmt.Fprintf(out, "runs      %d\n", c.Tries-s.Tries)
	text := c.text(s, before)
	if c.Out == "" {
		fmt.Fprintf(out, "\n%s", text)
		return nil
	}
	fmt.Fprintf(out, "written   %s\n", c.Out)
	return os.WriteFile(c.Out, []byte(text), 0o644)
}

// text is the scenario file.
func (c *shrinkCommand) text(s *sim.Shrinker, before sim.Size) string {
	var b strings.Builder
	title := c.Title
	if title == "" {
		title = fmt.Sprintf("Seed %d, made smaller.", c.Seed)
	}
	fmt.Fprintf(&b, "# %s\n# Claim: this is how little it takes.\n", title)
	fmt.Fprintf(&b, "# found:  %s\n", s.Result.Why)
	fmt.Fprintf(&b, "# before: %s\n# after:  %s\n", before, sim.SizeOf(s.Best, &s.Result))
	for _, line := range s.Best.Scenario() {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "verdict\n----\n%s\n", s.Finding)
	return b.String()
}

// withBug builds the simulator with the bug in, and has that shrink.
func (c *shrinkCommand) withBug(out *output) error {
	return inTree(func(root, temp string) error { return c.shrinkBug(out, root, temp) })
}

func (c *shrinkCommand) shrinkBug(out *output, root, temp string) error {
	b, err := findBug(root, c.Bug)
	if err != nil {
		return err
	}
	binary, err := b.build(root, temp)
	if err != nil {
		return err
	}
	if c.Seed == 0 {
		printed, _ := exec.Command(binary, "sweep", "--first", "--journal=simulated",
			fmt.Sprintf("--seeds=1..%d", c.Most)).Output()
		seed, _ := firstVerdict(string(printed))
		if c.Seed = uint64(seed); seed == 0 {
			return fmt.Errorf("bug %d is not caught by seeds 1..%d", b.number, c.Most)
		}
	}
	if c.Out == "" {
		c.Out = strings.TrimSuffix(b.path, ".txt") + ".shrunk.txt"
	}
	args := []string{"shrink", fmt.Sprintf("--seed=%d", c.Seed), "--out", c.Out, fmt.Sprintf("--tries=%d", c.Tries),
		"--title", fmt.Sprintf("Bug %d, %s (%s), made smaller; without the bug the verdict is passed.", b.number, b.name,
			b.seen)}
	if c.Steps {
		args = append(args, "--steps")
	}
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd.Run()
}

// findBug finds a bug by number, or by the name of its file.
func findBug(root, name string) (bug, error) {
	bugs, err := readBugs(root, nil)
	if err != nil {
		return bug{}, err
	}
	at := slices.IndexFunc(bugs, func(b bug) bool {
		file := strings.TrimSuffix(filepath.Base(b.path), ".txt")
		_, rest, _ := strings.Cut(file, "_")
		return name == fmt.Sprint(b.number) || name == file || name == rest
	})
	if at < 0 {
		return bug{}, fmt.Errorf("there is no bug %q in scenarios/bugs", name)
	}
	if bugs[at].cannot != "" {
		return bug{}, fmt.Errorf("bug %q cannot exist here: %s", name, bugs[at].cannot)
	}
	return bugs[at], nil
}
