package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tree is the whole tree, parsed once.
var tree = sync.OnceValues(func() (*Tree, error) {
	root, err := FindRoot()
	if err != nil {
		return nil, err
	}
	return Load(root)
})

func loaded(t *testing.T) *Tree {
	t.Helper()
	tree, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func lattice(t *testing.T) *Lattice {
	t.Helper()
	text, err := os.ReadFile("lattice.txt")
	if err != nil {
		t.Fatal(err)
	}
	l, err := ParseLattice(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func report(t *testing.T, breaches []Breach) {
	t.Helper()
	for _, b := range breaches {
		t.Error(b)
	}
}

func TestImports(t *testing.T) { report(t, Imports(loaded(t), lattice(t))) }

// The bans must hold for all that the simulator runs, whatever the table says.
func TestPureTrees(t *testing.T) {
	l := lattice(t)
	for _, pkg := range packages(loaded(t)) {
		first, _, _ := strings.Cut(pkg, "/")
		simulated := slices.Contains([]string{"core", "sim", "checker"}, first) ||
			slices.Contains([]string{"node", "disk/record", "disk/segment"}, pkg)
		if simulated && !l.Pure(pkg) {
			t.Errorf("%s must be pure: take std out of its line in lattice.txt", pkg)
		}
	}
}

func TestPurity(t *testing.T) {
	tree, l := loaded(t), lattice(t)
	pure := slices.DeleteFunc(packages(tree), func(pkg string) bool { return !l.Pure(pkg) })
	if len(pure) < 5 {
		t.Fatalf("only %v would be checked", pure)
	}
	var patterns []string
	for _, pkg := range pure {
		patterns = append(patterns, "./"+pkg)
	}
	types, err := NewTypes(tree, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range pure {
		breaches, err := types.Purity(pkg)
		if err != nil {
			t.Error(err)
		}
		report(t, breaches)
	}
}

// packages lists folders with non-test Go files, sorted.
func packages(tree *Tree) []string {
	var all []string
	for _, f := range tree.Files {
		if !f.Test && f.Package() != "." {
			all = append(all, f.Package())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestSizes(t *testing.T) {
	text, err := os.ReadFile("size.txt")
	if err != nil {
		t.Fatal(err)
	}
	exceptions, err := ParseExceptions(string(text))
	if err != nil {
		t.Fatal(err)
	}
	report(t, Ratchet(Sizes(loaded(t)), exceptions))
}

func TestWords(t *testing.T) {
	breaches, err := TreeWords(loaded(t).Root)
	if err != nil {
		t.Fatal(err)
	}
	report(t, breaches)
}

func TestDocs(t *testing.T) { report(t, Docs(loaded(t))) }

// A whole cluster must be able to run in a browser tab.
func TestWasm(t *testing.T) {
	root := loaded(t).Root
	args := []string{"build"}
	for _, pattern := range []string{"./core/...", "./node", "./sim/...", "./checker/..."} {
		if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(pattern, "/..."))); err == nil {
			args = append(args, pattern)
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("GOOS=js GOARCH=wasm go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
