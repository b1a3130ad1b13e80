package house

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of size, in lines and, for a line, in characters.
const (
	maxFunctionLines = 70
	maxFileLines     = 600
	maxLineLength    = 120
)

// measure is one thing over a limit: "function a/b.go T.Name", "file a/b.go" or
// "lines a/b.go", and how big it is; for lines, how many are too long.
type measure map[string]int

// Sizes measures everything that is over its limit, save what was generated.
func Sizes(t *Tree) map[string]int {
	over := measure{}
	for _, f := range t.Files {
		if f.Generated {
			continue
		}
		text := strings.Split(strings.TrimSuffix(string(f.Source), "\n"), "\n")
		if len(text) > maxFileLines {
			over["file "+f.Path] = len(text)
		}
		for _, line := range text {
			if utf8.RuneCountInString(line) > maxLineLength {
				over["lines "+f.Path]++
			}
		}
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := t.Fset.Position(fn.End()).Line - t.Fset.Position(fn.Pos()).Line + 1
			if n > maxFunctionLines {
				over["function "+f.Path+" "+functionName(fn)] = n
			}
		}
	}
	return over
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	return fmt.Sprintf("%s.%s", of, fn.Name.Name)
}

// ParseExceptions reads lines of a thing's name and its size.
func ParseExceptions(text string) (map[string]int, error) {
	exceptions := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		n, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil || len(fields) < 3 {
			return nil, fmt.Errorf("size exception in line %d: want what, file, name and size", i+1)
		}
		exceptions[strings.Join(fields[:len(fields)-1], " ")] = n
	}
	return exceptions, nil
}

// Ratchet reports what is over its limit without an exception, and exceptions
// that are not exactly needed: they may only shrink.
func Ratchet(over, exceptions map[string]int) []Breach {
	var breaches []Breach
	for _, what := range slices.Sorted(maps.Keys(over)) {
		n, allowed := over[what], exceptions[what]
		switch {
		case allowed == 0:
			breaches = append(breaches, Breach{what, fmt.Sprintf("has %d; the limits are %d lines a function, "+
				"%d a file, %d characters a line; split it", n, maxFunctionLines, maxFileLines, maxLineLength)})
		case n > allowed:
			breaches = append(breaches, Breach{what, fmt.Sprintf("grew from %d to %d; split it instead", allowed, n)})
		case n < allowed:
			breaches = append(breaches, Breach{what, fmt.Sprintf("shrank from %d to %d; say so in size.txt", allowed, n)})
		}
	}
	for _, what := range slices.Sorted(maps.Keys(exceptions)) {
		if over[what] == 0 {
			breaches = append(breaches, Breach{what, "is within its limit; take its line out of size.txt"})
		}
	}
	return breaches
}
