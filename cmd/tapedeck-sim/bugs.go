package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tapedeck/tapedeck/sim"
)

// bugsCommand plants each bug and sweeps until it is caught.
type bugsCommand struct {
	Only    []int  `help:"Numbers of the bugs to plant; all by default."`
	Most    int    `default:"500" help:"Seeds to try at most."`
	Starts  int    `default:"1" help:"Sweeps per bug, from different seeds; the board shows the median."`
	Workers int    `help:"Bugs at a time; the number of cores by default."`
	Write   string `type:"path" help:"Write the board, with what each checker caught, into this file."`
}

// bug is one file of scenarios/bugs: a change of the product's text, made at
// build time only.
type bug struct {
	path   string
	number int
	name   string
	seen   string   // where in the real world
	by     []string // checkers that may catch it
	edits  []edit
	cannot string // why this design cannot have it; then there is nothing else but number, name and where seen
}

// edit replaces exactly one occurrence of a text in a file.
type edit struct{ file, text, by string }

// parseBug reads a bug file:
//
//	# comment
//	number: 2
//	name: ack before fsync
//	seen in: NATS 7564
//	caught by: lost write, leader completeness
//	file: core/replica/replica.go
//	---- text
//	what stands there
//	---- by
//	what shall stand there
//	----
//
// or, in place of all from caught by on, a line (or more) of the form
//
//	cannot exist because: why not
func parseBug(path, content string) (b bug, err error) {
	b.path = path
	section, file := "", ""
	var text, by strings.Builder
	for i, line := range strings.Split(strings.TrimRight(content, "\n"), "\n") {
		key, value, isField := strings.Cut(line, ": ")
		switch {
		case line == "---- text" && section == "" && file != "":
			section = "text"
		case line == "---- by" && section == "text":
			section = "by"
		case line == "----" && section == "by":
			b.edits = append(b.edits, edit{file, text.String(), by.String()})
			text.Reset()
			by.Reset()
			section = ""
		case section == "text":
			text.WriteString(line + "\n")
		case section == "by":
			by.WriteString(line + "\n")
		case line == "" || strings.HasPrefix(line, "#"):
		case isField && key == "number":
			if b.number, err = strconv.Atoi(value); err != nil {
				return b, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
		case isField && key == "name":
			b.name = value
		case isField && key == "seen in":
			b.seen = value
		case isField && key == "caught by":
			b.by = strings.Split(value, ", ")
		case isField && key == "cannot exist because":
			b.cannot = strings.TrimSpace(b.cannot + " " + value)
		case isField && key == "file":
			file = value
		default:
			return b, fmt.Errorf("%s:%d: %q does not belong here", path, i+1, line)
		}
	}
	planted := len(b.by) > 0 && len(b.edits) > 0
	nothing := len(b.by) == 0 && len(b.edits) == 0
	if section != "" || b.number == 0 || b.name == "" || b.seen == "" || planted == (b.cannot != "") ||
		!planted && !nothing {
		return b, fmt.Errorf("%s: needs number, name, seen in, caught by, file, text and by; or cannot exist because",
			path)
	}
	return b, nil
}

// moduleRoot is the folder of go.mod.
func moduleRoot() (string, error) {
	b, err := exec.Command("go", "env", "GOMOD").Output()
	path := strings.TrimSpace(string(b))
	if err != nil || path == "" || path == os.DevNull {
		return "", errors.New("not inside the source tree: bugs are planted by building it")
	}
	return filepath.Dir(path), nil
}

// Run implements the command.
func (c *bugsCommand) Run(out *output) error {
	return inTree(func(root, temp string) error { return c.run(out, root, temp) })
}

// inTree runs do with the source tree's root and a temporary folder to build in.
func inTree(do func(root, temp string) error) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "tapedeck-bugs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	return do(root, temp)
}

func (c *bugsCommand) run(out *output, root, temp string) error {
	bugs, err := readBugs(root, c.Only)
	if err != nil {
		return err
	}
	var plantings []*planting
	var rows []string
	var failed error
	worst := make([]int, max(c.Starts, 1)) // seeds of each start that some bug took
	fmt.Fprint(out, boardHead)
	c.plantAll(root, temp, bugs, func(p *planting) {
		failed = errors.Join(failed, p.err)
		if p.err != nil {
			return
		}
		row, good := p.row(c.Most)
		fmt.Fprintln(out, row)
		plantings, rows = append(plantings, p), append(rows, row)
		if !good || strings.HasPrefix(p.shrunk, "NOT") {
			out.worsen(sim.SafetyBroken)
		}
		if strings.HasPrefix(p.shrunk, "NOT") {
			fmt.Fprintf(out, "shrunk    bug %d %s\n", p.bug.number, p.shrunk)
		}
		for i, n := range p.seeds {
			worst[i] = max(worst[i], n)
		}
	})
	if failed != nil {
		return failed
	}
	control := c.control(out, worst)
	fmt.Fprintln(out, control)
	if c.Write == "" {
		return nil
	}
	return os.WriteFile(c.Write, []byte(c.boardPage(plantings, rows, control)), 0o644)
}

// control sweeps the product as it is over the seeds that caught the bugs.
func (c *bugsCommand) control(out *output, worst []int) string {
	seeds, failed := 0, 0
	for start, n := range worst {
		from := first(start)
		sweep := sweepCommand{Workers: c.Workers}
		t := sweep.sweep(out, uint64(from), uint64(from+max(n, 1)-1))
		seeds, failed = seeds+int(t.seeds), failed+len(t.failed)
		for _, r := range t.failed {
			out.worsen(r.Exit)
		}
	}
	return fmt.Sprintf("control   nothing planted: %d seeds, %d failed", seeds, failed)
}

// readBugs reads all bug files, by number; all must apply.
func readBugs(root string, only []int) (bugs []bug, err error) {
	files, err := filepath.Glob(filepath.Join(root, "scenarios", "bugs", "*.txt"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(path, ".shrunk.txt") {
			continue
		}
		b, err := parseBug(path, string(content))
		if err != nil {
			return nil, err
		}
		if _, err := b.apply(root); err != nil {
			return nil, err
		}
		if len(only) == 0 || slices.Contains(only, b.number) {
			bugs = append(bugs, b)
		}
	}
	slices.SortStableFunc(bugs, func(a, b bug) int { return a.number - b.number })
	if len(bugs) == 0 {
		return nil, errors.New("no such bug in scenarios/bugs")
	}
	return bugs, nil
}

// apply returns the changed files' contents, by path.
func (b *bug) apply(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, e := range b.edits {
		path := filepath.Join(root, filepath.FromSlash(e.file))
		text, there := changed[path]
		if !there {
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.path, err)
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.text); n != 1 {
			return nil, fmt.Errorf("%s: its text is found %d times in %s, not once; bring the bug up to date", b.path, n,
				e.file)
		}
		changed[path] = strings.Replace(text, e.text, e.by, 1)
	}
	return changed, nil
}

// caughtBy says whether one of the checkers named gave the verdict.
func caughtBy(why string, names []string) (string, bool) {
	for _, name := range names {
		if strings.HasPrefix(why, name) {
			return name, true
		}
	}
	return "", false
}

// firstVerdict finds the lowest failed seed in a sweep's output, and why.
func firstVerdict(printed string) (seed int, why string) {
	for line := range strings.Lines(printed) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "verdict   seed ")
		if !ok {
			continue
		}
		number, text, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(number)
		if err == nil && (seed == 0 || n < seed) {
			_, cause, _ := strings.Cut(text, ": ")
			seed, why = n, cause
		}
	}
	return seed, why
}

// build compiles the simulator with the bug laid over the source tree, which
// stays as it is.
func (b *bug) build(root, temp string) (string, error) {
	changed, err := b.apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for path, text := range changed {
		to := filepath.Join(temp, fmt.Sprintf("bug%d-%d.go", b.number, len(replace)))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[path] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	config, binary := filepath.Join(temp, fmt.Sprintf("overlay%d.json", b.number)),
		filepath.Join(temp, fmt.Sprintf("sim-bug%d", b.number))
	if err := os.WriteFile(config, overlay, 0o644); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-overlay", config, "-o", binary, "./cmd/tapedeck-sim")
	cmd.Dir = root
	if printed, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: building with the bug: %w\n%s", b.path, err, printed)
	}
	return binary, nil
}
