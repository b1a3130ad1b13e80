package sim

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// Every point that the simulator passes is listed, or a sweep could not tell that
// it was never reached; and no name is there twice.
func TestProbesAreListed(t *testing.T) {
	all := Probes()
	for i := range all[1:] {
		if all[i] == all[i+1] {
			t.Errorf("%q is listed twice", all[i])
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	literal := regexp.MustCompile(`\bprobe\("([^"]+)"\)`)
	found := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(source), -1) {
			if found++; !slices.Contains(all, m[1]) {
				t.Errorf("%s passes the point %q, which Probes does not list", file, m[1])
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d points were found in the source", found)
	}
	// What is drawn is listed, too: a run passes no other point.
	for name := range Run(FromSeed(700017), nil).Probes {
		if !slices.Contains(all, name) {
			t.Errorf("a run passes the point %q, which Probes does not list", name)
		}
	}
}
