package house

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// wordsFile is the one file in which forbidden words may stand.
const wordsFile = "tools/house/words.go"

// words must not be in any tracked file.
var words = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`), "a note to oneself is work not done; do it"},
	{regexp.MustCompile(`panic\("(being written|not implemented|unimplemented|todo)`), "a stub is not code"},
	{regexp.MustCompile(`(^|[^A-Za-z0-9.])/(work|home|Users|root)/`), "somebody's own paths mean nothing elsewhere"},
	{regexp.MustCompile(`/tmp/(wt|land)\b`), "somebody's own paths mean nothing elsewhere"},
	{regexp.MustCompile(`shared/design|[Tt]he brief\b`), "what the tree does not hold cannot be looked up; say it here"},
	{regexp.MustCompile(`\bGOPROXY=|\bGONOSUMDB=|registry=http`),
		"where a machine fetches modules from is its own affair"},
	{regexp.MustCompile(`^(<<<<<<<|>>>>>>>) `), "a conflict was committed"},
}

// Words reports forbidden words in one file.
func Words(name string, content []byte) []Breach {
	if name == wordsFile || bytes.IndexByte(content, 0) >= 0 { // binary
		return nil
	}
	var breaches []Breach
	for i, line := range strings.Split(string(content), "\n") {
		for _, w := range words {
			if found := w.pattern.FindString(line); found != "" {
				breaches = append(breaches, Breach{fmt.Sprintf("%s:%d", name, i+1), fmt.Sprintf("%q: %s", found, w.why)})
			}
		}
	}
	return breaches
}

// Tracked lists the files that git tracks; without git, all that would be.
func Tracked(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		return slices.DeleteFunc(strings.Split(string(out), "\x00"), func(s string) bool { return s == "" }), nil
	}
	var names []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != root && slices.Contains([]string{".git", "bin", "node_modules"}, base) {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, name)
		names = append(names, filepath.ToSlash(rel))
		return err
	})
	return names, err
}

// TreeWords reports forbidden words in all tracked files.
func TreeWords(root string) ([]Breach, error) {
	names, err := Tracked(root)
	if err != nil {
		return nil, err
	}
	var breaches []Breach
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if os.IsNotExist(err) {
			continue // deleted and not yet committed
		}
		if err != nil {
			return nil, err
		}
		breaches = append(breaches, Words(name, content)...)
	}
	return breaches, nil
}

// Docs reports packages without exactly one package comment that begins as it
// should, so that what a package owns is said in one place.
func Docs(t *Tree) []Breach {
	texts := map[string][]string{}
	kinds := map[string]string{}
	var order []string
	for _, f := range t.Files {
		if f.Test || f.Generated {
			continue
		}
		pkg := f.Package()
		if kinds[pkg] == "" {
			order = append(order, pkg)
		}
		kinds[pkg] = "Package " + f.AST.Name.Name
		if f.AST.Name.Name == "main" {
			kinds[pkg] = "Command " + filepath.Base(pkg)
		}
		if f.AST.Doc != nil {
			texts[pkg] = append(texts[pkg], f.AST.Doc.Text())
		}
	}
	var breaches []Breach
	for _, pkg := range order {
		switch found := texts[pkg]; {
		case len(found) == 0:
			breaches = append(breaches, Breach{pkg, "has no package comment; say what it owns, its duties and invariants"})
		case len(found) > 1:
			breaches = append(breaches, Breach{pkg, fmt.Sprintf("has %d package comments; keep one", len(found))})
		case !strings.HasPrefix(found[0], kinds[pkg]+" "):
			breaches = append(breaches, Breach{pkg, fmt.Sprintf("its comment must begin with %q", kinds[pkg])})
		}
	}
	return breaches
}
