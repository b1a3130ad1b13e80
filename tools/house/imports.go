package house

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// pureStd are the standard packages that every package may import: they are
// functions of their arguments.
var pureStd = strings.Fields(`
	bufio bytes cmp container/heap container/list container/ring
	encoding encoding/base64 encoding/binary encoding/hex encoding/json
	errors fmt hash hash/crc32 hash/crc64 hash/fnv html io io/fs iter maps math math/bits
	slices sort strconv strings text/tabwriter text/template time unicode unicode/utf8
	crypto/sha256 path embed`)

// bannedStd says why a pure package must not import a standard one, and what
// to use. What is in neither list is banned for not having been looked at.
var bannedStd = map[string]string{
	"os":           "pure packages have no machine; files go through disk.FS, flags through cmd",
	"net":          "pure packages have no network; packets are effects",
	"sync":         "pure packages have one thread; there is nothing to lock",
	"sync/atomic":  "pure packages have one thread; a plain field will do",
	"context":      "deadlines and cancellation are events with moments",
	"runtime":      "what the runtime does differs from run to run",
	"reflect":      "it walks maps in random order and hides what is done; write it out",
	"unsafe":       "addresses differ from run to run",
	"log":          "it prints wall-clock times; return what is to be said",
	"log/slog":     "it prints wall-clock times; return what is to be said",
	"math/rand":    "its global source differs from run to run; use the node's seeded source",
	"math/rand/v2": "only sim may draw, from sources of its own seed; use the node's seeded source",
	"crypto/rand":  "it differs from run to run; use the node's seeded source",
	"hash/maphash": "its seed differs from run to run; use xxhash",
	"testing":      "it is for tests",
	"flag":         "pure packages take a Config",
	"syscall":      "pure packages have no machine",
}

// Lattice is the table of allowed imports.
type Lattice struct{ rows []row }

type row struct {
	pattern string
	std     bool
	allowed []string
}

// ParseLattice reads the table's text.
func ParseLattice(text string) (*Lattice, error) {
	l := &Lattice{}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		pattern, rest, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("lattice line %d: want package: imports", i+1)
		}
		r := row{pattern: strings.TrimSpace(pattern)}
		for _, entry := range strings.Fields(rest) {
			if entry == "std" {
				r.std = true
				continue
			}
			r.allowed = append(r.allowed, entry)
		}
		l.rows = append(l.rows, r)
	}
	return l, nil
}

// find returns a package's row: its own, else that of the longest pattern.
func (l *Lattice) find(pkg string) (row, bool) {
	best, found := row{}, false
	for _, r := range l.rows {
		if r.pattern == pkg {
			return r, true
		}
		if matches(r.pattern, pkg) && (!found || len(r.pattern) > len(best.pattern)) {
			best, found = r, true
		}
	}
	return best, found
}

// Pure says whether a package is in the table without std.
func (l *Lattice) Pure(pkg string) bool {
	r, ok := l.find(pkg)
	return ok && !r.std
}

// matches says whether pattern names pkg: itself, or by "a/..." anything below a.
func matches(pattern, pkg string) bool {
	below, open := strings.CutSuffix(pattern, "/...")
	if open {
		return strings.HasPrefix(pkg, below+"/")
	}
	return pkg == pattern
}

// allows says whether an entry of the table covers an import path.
func allows(entry, imported string) bool {
	if own, ok := strings.CutPrefix(imported, Module+"/"); ok {
		return matches(entry, own)
	}
	if below, open := strings.CutSuffix(entry, "/..."); open {
		entry = below
	}
	return imported == entry || strings.HasPrefix(imported, entry+"/") && strings.Contains(entry, ".")
}

// Imports reports every direct import of a non-test file that the table does
// not allow, and every package that is not in the table.
func Imports(t *Tree, l *Lattice) []Breach {
	var breaches []Breach
	unknown := map[string]bool{}
	for _, f := range t.Files {
		if f.Test {
			continue
		}
		r, ok := l.find(f.Package())
		if !ok {
			if !unknown[f.Package()] {
				unknown[f.Package()] = true
				breaches = append(breaches, Breach{f.Package(),
					"is not in tools/house/lattice.txt; add a line that says what it may import"})
			}
			continue
		}
		for _, spec := range f.AST.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				panic(err) // it was parsed
			}
			if why := r.refuses(imported); why != "" {
				breaches = append(breaches, Breach{t.at(f, spec.Pos()), fmt.Sprintf("imports %s: %s", imported, why)})
			}
		}
	}
	return breaches
}

// refuses returns why the row's package may not import a path, "" if it may.
func (r row) refuses(imported string) string {
	if slices.ContainsFunc(r.allowed, func(entry string) bool { return allows(entry, imported) }) {
		return ""
	}
	first, _, _ := strings.Cut(imported, "/")
	if strings.HasPrefix(imported, Module+"/") {
		return "the lattice does not allow it, since " + r.pattern + " must not know of it; turn the dependency round"
	}
	if strings.Contains(first, ".") {
		return "outsiders are named one by one in the lattice; this one is not allowed in " + r.pattern
	}
	if r.std || slices.Contains(pureStd, imported) {
		return ""
	}
	for _, name := range []string{imported, first} {
		if why, ok := bannedStd[name]; ok {
			return why
		}
	}
	return "it is not among the standard packages known to be pure; if it is, add it to pureStd"
}
