// Package house checks the tree itself: who imports whom, what pure packages
// must not use, how long things may grow, which words must not be left lying
// around. Its tests run the checks on the tree, and each check on small bad
// inputs that it must catch.
//
// The rules are text beside the code: lattice.txt (imports; a package without
// the word std there is pure) and size.txt (exceptions to the size limits, which
// may only shrink).
package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the import path of the tree's root.
const Module = "github.com/tapedeck/tapedeck"

// Breach is a rule broken at a place.
type Breach struct {
	Where string // file:line, a file or a package
	What  string // what is wrong, why it is banned, what to do
}

func (b Breach) String() string { return b.Where + ": " + b.What }

// File is one Go file, parsed with its comments.
type File struct {
	Path      string // relative to the root, with slashes
	Source    []byte
	AST       *ast.File
	Test      bool // *_test.go
	Generated bool
}

// Package is the folder the file is in; "." is the root.
func (f *File) Package() string { return path.Dir(f.Path) }

// Tree is every Go file below a root.
type Tree struct {
	Root  string
	Fset  *token.FileSet
	Files []*File
}

// FindRoot goes up from the working folder to the one with go.mod.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above the working folder")
		}
		dir = up
	}
}

// Load parses every Go file below root, without nested modules, testdata,
// hidden folders and what a build leaves behind.
func Load(root string) (*Tree, error) {
	t := &Tree{Root: root, Fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && skipFolder(name, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return t.Add(filepath.ToSlash(rel), source)
	})
	return t, err
}

func skipFolder(name, base string) bool {
	if base[0] == '.' || slices.Contains([]string{"bin", "testdata", "node_modules"}, base) {
		return true
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	return err == nil
}

// Add parses a file into the tree.
func (t *Tree) Add(name string, source []byte) error {
	parsed, err := parser.ParseFile(t.Fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.Files = append(t.Files, &File{
		Path: name, Source: source, AST: parsed,
		Test: strings.HasSuffix(name, "_test.go"), Generated: ast.IsGenerated(parsed),
	})
	return nil
}

func (t *Tree) at(f *File, p token.Pos) string {
	return fmt.Sprintf("%s:%d", f.Path, t.Fset.Position(p).Line)
}
