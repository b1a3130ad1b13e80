package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// startEvery is the distance between the first seeds of a bug's starts.
const startEvery = 100_000

// planting is what came of one bug.
type planting struct {
	bug   bug
	seeds []int    // to catch it, by start; 0: missed, or first seen by another checker
	by    []string // who saw it first, by start; empty: nobody
	// shrunk says whether its shrunk scenario is red with it; empty: there is none.
	shrunk string
	err    error
}

// first is the first seed of a start, the first of which is start 0.
func first(start int) int { return start*startEvery + 1 }

// plantAll plants the bugs, several at a time, each in processes of its own, and
// hands each over when all before it are done.
func (c *bugsCommand) plantAll(root, temp string, bugs []bug, done func(*planting)) {
	workers := c.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	results := make([]chan *planting, len(bugs))
	for i := range results {
		results[i] = make(chan *planting, 1)
	}
	slots := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for i := range bugs {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] <- c.plant(root, temp, bugs[i])
		})
	}
	for i := range results {
		done(<-results[i])
	}
	wg.Wait()
}

// plant builds the simulator with the bug in, sweeps it from each start, and
// replays what the bug shrank to.
func (c *bugsCommand) plant(root, temp string, b bug) *planting {
	p := &planting{bug: b}
	if b.cannot != "" {
		return p
	}
	binary, err := b.build(root, temp)
	if err != nil {
		p.err = err
		return p
	}
	defer os.Remove(binary)
	for start := range max(c.Starts, 1) {
		seed, why, err := c.catch(binary, first(start))
		if p.err = err; err != nil {
			return p
		}
		by, n := checkerOf(why), 0
		if _, expected := caughtBy(by, b.by); seed > 0 && expected {
			n = seed - first(start) + 1
		}
		p.seeds, p.by = append(p.seeds, n), append(p.by, by)
	}
	file := strings.TrimSuffix(b.path, ".txt") + ".shrunk.txt"
	if _, err := os.Stat(file); err == nil {
		printed, _ := exec.Command(binary, "scenario", file).Output()
		if p.shrunk = "red"; !strings.HasPrefix(string(printed), "ok ") {
			p.shrunk = "NOT RED: shrink it anew"
		}
	}
	return p
}

// catch sweeps from a seed on until one fails; seed 0: none did.
func (c *bugsCommand) catch(binary string, from int) (seed int, why string, err error) {
	cmd := exec.Command(binary, "sweep", "--first", "--workers=1", fmt.Sprintf("--seeds=%d..%d", from, from+c.Most-1))
	printed, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, "", err
	}
	seed, why = firstVerdict(string(printed))
	return seed, why, nil
}

// moment is what an invariant's verdict says of when it broke.
var moment = regexp.MustCompile(` at [0-9.]+s$`)

// checkerOf names who gave a verdict: an invariant, a verdict on the history, or
// the first words of what was not reached.
func checkerOf(why string) string {
	name, _, _ := strings.Cut(why, ": ")
	return moment.ReplaceAllString(name, "")
}

// median of a bug's starts; 0 if it was missed in half of them or more.
func (p *planting) median() int {
	seeds := slices.Clone(p.seeds)
	for i := range seeds {
		if seeds[i] == 0 {
			seeds[i] = 1 << 30
		}
	}
	slices.Sort(seeds)
	if m := seeds[(len(seeds)-1)/2]; m < 1<<30 {
		return m
	}
	return 0
}

// row is the board's row for it; good says that it counts as caught.
func (p *planting) row(most int) (row string, good bool) {
	b := &p.bug
	if b.cannot != "" {
		return fmt.Sprintf("| %d | %s (%s) | cannot exist: %s | |", b.number, b.name, b.seen, b.cannot), true
	}
	median := p.median()
	if median == 0 {
		other := ""
		if i := slices.IndexFunc(p.by, func(by string) bool { return by != "" }); i >= 0 {
			other = fmt.Sprintf(" by %s; seen: %s", strings.Join(b.by, ", "), p.by[i])
		}
		return fmt.Sprintf("| %d | %s (%s) | MISSED%s | over %d |", b.number, b.name, b.seen, other, most), false
	}
	var by []string
	for i, name := range p.by {
		if named, _ := caughtBy(name, b.by); p.seeds[i] > 0 && !slices.Contains(by, named) {
			by = append(by, named)
		}
	}
	return fmt.Sprintf("| %d | %s (%s) | %s | %d |", b.number, b.name, b.seen, strings.Join(by, ", "), median), true
}

const boardHead = "| number | bug | caught by | seeds to catch |\n| --- | --- | --- | --- |\n"

// boardPage is docs/bugs.md.
func (c *bugsCommand) boardPage(plantings []*planting, rows []string, control string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Planted bugs

Bugs that other systems had, planted into this one at build time, one by one (`+"`scenarios/bugs`"+`), and what the
simulator made of each. Written by `+"`tapedeck-sim bugs --starts %d --most %d --write docs/bugs.md`"+`; do not edit.
Seeds to catch is the median over %d starts at different seeds; MISSED is a bug that was not caught within %d
seeds in most of them, or by another checker than the one that should see it.

`, max(c.Starts, 1), c.Most, max(c.Starts, 1), c.Most)
	b.WriteString(boardHead)
	for _, row := range rows {
		b.WriteString(row + "\n")
	}
	fmt.Fprintf(&b, "\n%s\n", control)
	writeMatrix(&b, plantings)
	writeShrunk(&b, plantings)
	return b.String()
}

// writeMatrix shows which checker caught which bug in how many starts.
func writeMatrix(b *strings.Builder, plantings []*planting) {
	counts := map[string]map[int]int{}
	var numbers []int
	for _, p := range plantings {
		if p.bug.cannot != "" {
			continue
		}
		numbers = append(numbers, p.bug.number)
		for _, by := range p.by {
			if by == "" {
				continue
			}
			if counts[by] == nil {
				counts[by] = map[int]int{}
			}
			counts[by][p.bug.number]++
		}
	}
	b.WriteString("\n## Which checker catches which bug\n\n" +
		"Starts in which it was the first to see the bug.\n\n| checker |")
	for _, n := range numbers {
		fmt.Fprintf(b, " %d |", n)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(numbers)) + "\n")
	for _, by := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(b, "| %s |", by)
		for _, n := range numbers {
			if k := counts[by][n]; k > 0 {
				fmt.Fprintf(b, " %d |", k)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
}

// writeShrunk lists what the bugs shrank to, as the files say.
func writeShrunk(b *strings.Builder, plantings []*planting) {
	b.WriteString("\n## What they shrink to\n\nBy `tapedeck-sim shrink --bug NUMBER`; each file is red with its bug " +
		"and green without.\n\n| number | file | with the bug | before | after |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range plantings {
		file := strings.TrimSuffix(p.bug.path, ".txt") + ".shrunk.txt"
		content, err := os.ReadFile(file)
		if p.shrunk == "" || err != nil {
			continue
		}
		fmt.Fprintf(b, "| %d | %s | %s | %s | %s |\n", p.bug.number, filepath.Base(file), p.shrunk,
			comment(string(content), "before:"), comment(string(content), "after:"))
	}
}

// comment is what a file's comment says after a word.
func comment(content, word string) string {
	for line := range strings.Lines(content) {
		if rest, ok := strings.CutPrefix(line, "# "+word); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
