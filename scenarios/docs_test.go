package scenarios

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/sim"
)

// docs/scenarios.md names every command and every argument that a handler reads,
// and its examples are replayed.
func TestTheLanguageIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for _, name := range sim.Commands() {
		if !regexp.MustCompile("`" + name + "[ `]").MatchString(page) {
			t.Errorf("the command %s is not explained", name)
		}
	}
	files, err := filepath.Glob("../sim/scenario*.go")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %v, %v", files, err)
	}
	reads := regexp.MustCompile(`c\.(?:num|str|duration|choice|has)\("([a-z_]+)"`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range reads.FindAllStringSubmatch(string(source), -1) {
			if !strings.Contains(page, m[1]+"=") {
				t.Errorf("%s reads %s=, which is not explained", filepath.Base(file), m[1])
			}
		}
	}
	for _, name := range append(sim.Knobs(), sim.StrikeKinds()...) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s is not explained", name)
		}
	}
	examples := strings.Split(page, "```scenario\n")[1:]
	if len(examples) < 2 {
		t.Errorf("found %d examples", len(examples))
	}
	for _, e := range examples {
		text, _, _ := strings.Cut(e, "```")
		r, err := sim.RunScenario(text, nil)
		if err != nil || len(r.Differences) > 0 || r.Exit != sim.Passed {
			t.Errorf("an example gives %s, %v, %v:\n%s", sim.ExitName(r.Exit), err, r.Differences, text)
		}
	}
}

// mostCommands is what a person reads: a shrunk scenario has no more.
const mostCommands = 25

// A planted bug's shrunk scenario is green without the bug. That it is red with it
// is shown by `tapedeck-sim bugs`.
func TestShrunkBugsAreGreenWithoutThem(t *testing.T) {
	files, err := filepath.Glob("bugs/*.shrunk.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no shrunk bugs: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.RunScenario(string(text), nil)
		if err != nil || r.Exit != sim.Passed || len(r.Differences) != 1 {
			t.Errorf("%s: %s, %v, %v; want it passed, unlike what the file says", file, sim.ExitName(r.Exit), err,
				r.Differences)
		}
		commands := 0
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
				commands++
			}
		}
		if commands -= 2; commands > mostCommands { // the dashes and the finding
			t.Errorf("%s has %d commands; a person reads %d", file, commands, mostCommands)
		}
	}
}
