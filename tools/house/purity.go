package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
)

// bannedFuncs says why a pure package must not use a function or type of a
// standard package that it may import.
var bannedFuncs = map[string]string{
	"time.Now":          "the moment comes with the event",
	"time.Since":        "the moment comes with the event; subtract model.Mono",
	"time.Until":        "the moment comes with the event; subtract model.Mono",
	"time.Sleep":        "nothing waits in a pure package; ask for a Wake",
	"time.After":        "nothing waits in a pure package; ask for a Wake",
	"time.AfterFunc":    "nothing waits in a pure package; ask for a Wake",
	"time.Tick":         "nothing waits in a pure package; ask for a Wake",
	"time.NewTimer":     "nothing waits in a pure package; ask for a Wake",
	"time.NewTicker":    "nothing waits in a pure package; ask for a Wake",
	"time.Timer":        "nothing waits in a pure package; ask for a Wake",
	"time.Ticker":       "nothing waits in a pure package; ask for a Wake",
	"time.Local":        "the zone is the machine's; use time.UTC",
	"time.LoadLocation": "the zones are the machine's; use time.UTC",
	"fmt.Print":         "a pure package has no standard output; return text, or take a writer",
	"fmt.Println":       "a pure package has no standard output; return text, or take a writer",
	"fmt.Printf":        "a pure package has no standard output; return text, or take a writer",
	"fmt.Scan":          "a pure package has no standard input",
	"fmt.Scanln":        "a pure package has no standard input",
	"fmt.Scanf":         "a pure package has no standard input",
}

// ownRand are math/rand/v2's functions that do not draw from the global source.
var ownRand = map[string]bool{"New": true, "NewPCG": true, "NewChaCha8": true, "NewZipf": true}

const (
	whyThread = "a pure package has one thread and waits for nothing; what happens later comes back as an event"
	whyOrder  = "maps are walked in random order; walk slices.Sorted(maps.Keys(m)), or say in a comment " +
		"\"// order: why it cannot matter\" on the line or the one before"
)

// Types checks a pure package's files against what it must not use.
type Types struct {
	tree    *Tree
	imports types.Importer
}

// NewTypes prepares type checking of packages matching the patterns: the go
// command compiles what they import, and its export data is read.
func NewTypes(t *Tree, patterns ...string) (*Types, error) {
	args := append([]string{"list", "-e", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, patterns...)
	cmd := exec.Command("go", args...)
	cmd.Dir = t.Root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.Bytes())
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		exports[name] = file
	}
	open := func(name string) (io.ReadCloser, error) {
		if exports[name] == "" {
			return nil, fmt.Errorf("package %s was not built", name)
		}
		return os.Open(exports[name])
	}
	return &Types{t, importer.ForCompiler(t.Fset, "gc", open)}, nil
}

// Purity reports what a package's non-test files use that a pure one must not.
func (c *Types) Purity(pkg string) ([]Breach, error) {
	var files []*File
	var parsed []*ast.File
	for _, f := range c.tree.Files {
		if f.Package() == pkg && !f.Test {
			files = append(files, f)
			parsed = append(parsed, f.AST)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: c.imports}
	if _, err := config.Check(path.Join(Module, pkg), c.tree.Fset, parsed, info); err != nil {
		return nil, fmt.Errorf("check types of %s: %w", pkg, err)
	}
	var breaches []Breach
	for _, f := range files {
		v := &purity{types: c, file: f, info: info, excused: excusedLines(c.tree, f), sorted: map[ast.Node]bool{}}
		ast.Inspect(f.AST, v.node)
		breaches = append(breaches, v.breaches...)
	}
	return breaches, nil
}

// excusedLines are those with an order comment and those after one.
func excusedLines(t *Tree, f *File) map[int]bool {
	lines := map[int]bool{}
	for _, group := range f.AST.Comments {
		for _, comment := range group.List {
			reason, ok := strings.CutPrefix(comment.Text, "// order:")
			if ok && len(strings.TrimSpace(reason)) > 5 {
				lines[t.Fset.Position(comment.Pos()).Line] = true
				lines[t.Fset.Position(group.End()).Line+1] = true
			}
		}
	}
	return lines
}

type purity struct {
	types    *Types
	file     *File
	info     *types.Info
	excused  map[int]bool
	sorted   map[ast.Node]bool // calls and loops whose order is taken care of
	breaches []Breach
}

func (v *purity) report(p token.Pos, what, why string) {
	v.breaches = append(v.breaches, Breach{v.types.tree.at(v.file, p), what + ": " + why})
}

func (v *purity) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		v.report(n.Pos(), "go statement", whyThread)
	case *ast.SelectStmt:
		v.report(n.Pos(), "select statement", whyThread)
	case *ast.ChanType:
		v.report(n.Pos(), "channel", whyThread)
	case *ast.SendStmt:
		v.report(n.Pos(), "send to a channel", whyThread)
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			v.report(n.Pos(), "receive from a channel", whyThread)
		}
	case *ast.Ident:
		v.ident(n)
	case *ast.BlockStmt:
		v.sortedAfter(n.List)
	case *ast.CaseClause:
		v.sortedAfter(n.Body)
	case *ast.CallExpr:
		v.call(n)
	case *ast.RangeStmt:
		v.rangeOver(n)
	}
	return true
}

func (v *purity) ident(n *ast.Ident) {
	object := v.info.Uses[n]
	if object == nil || object.Pkg() == nil || object.Parent() != object.Pkg().Scope() {
		return // a field, a method, a local
	}
	from := object.Pkg().Path()
	name := from + "." + object.Name()
	if why, banned := bannedFuncs[name]; banned {
		v.report(n.Pos(), name, why)
	}
	_, function := object.(*types.Func)
	if strings.HasPrefix(from, "math/rand") && function && !ownRand[object.Name()] {
		v.report(n.Pos(), name, bannedStd["math/rand"])
	}
}

// call looks at maps.Keys and its like: their order is the map's.
func (v *purity) call(n *ast.CallExpr) {
	switch name := v.called(n); name {
	case "slices.Sorted", "slices.SortedFunc", "slices.SortedStableFunc":
		if inner, ok := n.Args[0].(*ast.CallExpr); ok {
			v.sorted[inner] = true
		}
	case "maps.Keys", "maps.Values", "maps.All":
		if !v.sorted[n] && !v.isExcused(n) {
			v.report(n.Pos(), name+" outside slices.Sorted", whyOrder)
		}
	}
}

// called is the package path and name of the function called, "" for others.
func (v *purity) called(n *ast.CallExpr) string {
	fun := ast.Unparen(n.Fun)
	if generic, ok := fun.(*ast.IndexExpr); ok {
		fun = generic.X
	}
	selector, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	object, ok := v.info.Uses[selector.Sel].(*types.Func)
	if !ok || object.Pkg() == nil {
		return ""
	}
	return object.Pkg().Path() + "." + object.Name()
}

func (v *purity) isExcused(n ast.Node) bool {
	return v.excused[v.types.tree.Fset.Position(n.Pos()).Line]
}

func (v *purity) rangeOver(n *ast.RangeStmt) {
	of := v.info.Types[n.X].Type
	if of == nil || v.sorted[n] || v.isExcused(n) {
		return
	}
	if _, channel := of.Underlying().(*types.Chan); channel {
		v.report(n.Pos(), "range over a channel", whyThread)
	}
	if !isMap(of) || n.Key == nil || v.commutes(n, n.Body.List) {
		return
	}
	v.report(n.Pos(), "range over a map", whyOrder)
}

func isMap(t types.Type) bool {
	if param, ok := t.(*types.TypeParam); ok {
		t = param.Constraint()
		if all, ok := t.Underlying().(*types.Interface); ok && all.NumEmbeddeds() == 1 {
			t = all.EmbeddedType(0)
		}
		if union, ok := t.(*types.Union); ok && union.Len() == 1 {
			t = union.Term(0).Type()
		}
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}
