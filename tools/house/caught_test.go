package house

import (
	"go/token"
	"strings"
	"testing"
)

// Each check must catch what it is for. One breach is wanted per snippet that
// says what to find, none for those that say nothing.

func snippet(t *testing.T, name, source string) *Tree {
	t.Helper()
	tree := &Tree{Root: loaded(t).Root, Fset: token.NewFileSet()}
	if err := tree.Add(name, []byte(source)); err != nil {
		t.Fatal(err)
	}
	return tree
}

func wantBreach(t *testing.T, got []Breach, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("caught what is right: %v", got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0].String(), want)):
		t.Errorf("got %v, want one with %q", got, want)
	}
}

const testLattice = `
core/model:            # nobody
core/a:                core/model go.etcd.io/raft/v3
core/...:              core/model
cmd/...:               std core/... github.com/alecthomas/kong
`

func TestImportsAreCaught(t *testing.T) {
	l, err := ParseLattice(testLattice)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ pkg, imported, want string }{
		{"core/model", "fmt", ""},
		{"core/model", "time", ""},
		{"core/model", "os", "no machine"},
		{"core/model", "net/http", "no network"},
		{"core/model", "sync", "one thread"},
		{"core/model", "math/rand/v2", "seeded source"},
		{"core/model", "expvar", "not among the standard packages"},
		{"core/model", Module + "/core/a", "does not allow"},
		{"core/a", Module + "/core/model", ""},
		{"core/a", Module + "/core/modelled", "does not allow"},
		{"core/a", "go.etcd.io/raft/v3", ""},
		{"core/a", "go.etcd.io/raft/v3/raftpb", ""},
		{"core/a", "go.etcd.io/raftlike", "outsiders"},
		{"core/a/b", "go.etcd.io/raft/v3", "outsiders"},
		{"core/a/b", Module + "/core/model", ""},
		{"cmd/x", "os", ""},
		{"cmd/x", Module + "/core/a", ""},
		{"cmd/x", Module + "/node", "does not allow"},
		{"web", "fmt", "not in tools/house/lattice.txt"},
	} {
		t.Run(c.pkg+" "+c.imported, func(t *testing.T) {
			tree := snippet(t, c.pkg+"/x.go", "package x\nimport _ \""+c.imported+"\"\n")
			wantBreach(t, Imports(tree, l), c.want)
		})
	}
	inTest := snippet(t, "core/model/x_test.go", "package x\nimport _ \"os\"\n")
	wantBreach(t, Imports(inTest, l), "")
	if l.Pure("cmd/x") || !l.Pure("core/a/b") || l.Pure("web") {
		t.Error("pure is what is in the table without std")
	}
	if _, err := ParseLattice("no colon"); err == nil {
		t.Error("a broken table was read")
	}
}

var impurities = []struct{ name, body, want string }{
	{"clock", `var _ = time.Now()`, "time.Now"},
	{"clock as a value", `var now = time.Now`, "time.Now"},
	{"duration", `const d = 3 * time.Second`, ""},
	{"sleep", `func f() { time.Sleep(1) }`, "time.Sleep"},
	{"timer", `func f() { time.NewTimer(1) }`, "time.NewTimer"},
	{"own method called Now", `type h struct{}; func (h) Now() int { return 1 }; var _ = h{}.Now()`, ""},
	{"go", `func f() { go f() }`, "go statement"},
	{"channel", `var c chan int`, "channel"},
	{"select", `func f() { select {} }`, "select"},
	{"global random", `var _ = rand.IntN(3)`, "rand/v2.IntN"},
	{"seeded random", `var _ = rand.New(rand.NewPCG(1, 2)).IntN(3)`, ""},
	{"print", `func f() { fmt.Println() }`, "fmt.Println"},
	{"range over a map", `func f() { for k := range m { g(k) } }`, "range over a map"},
	{"range over a named map", `func f() { for k := range named(m) { g(k) } }`, "range over a map"},
	{"range over a generic map", `func f[M ~map[int]int](m M) { for k := range m { g(k) } }`, "range over a map"},
	{"range over a slice", `func f() { for k := range []int{} { g(k) } }`, ""},
	{"range without key", `func f() { for range m { g(0) } }`, ""},
	{"sorted keys", `func f() { for _, k := range slices.Sorted(maps.Keys(m)) { g(k) } }`, ""},
	{"keys", `func f() { for k := range maps.Keys(m) { g(k) } }`, "maps.Keys"},
	{"values collected", `var _ = slices.Collect(maps.Values(m))`, "maps.Values"},
	{"sorted afterwards", `func f() { var s []int; for k := range m { s = append(s, k) }; slices.Sort(s); g(s[0]) }`, ""},
	{"not sorted", `func f() { var s []int; for k := range m { s = append(s, k) }; g(s[0]) }`, "range over a map"},
	{"another sorted",
		`func f() { var s, u []int; for k := range m { s = append(s, k) }; slices.Sort(u) }`, "range over a map"},
	{"copied by key", `func f() { n := map[int]int{}; for k, v := range m { n[k] = v } }`, ""},
	{"written to one place", `func f() { n := map[int]int{}; for k := range m { n[0] = k } }`, "range over a map"},
	{"counted", `func f() (n int) { for _, v := range m { if v > 3 { n += v } }; return }`, ""},
	{"counted with a call", `func f() (n int) { for _, v := range m { n += id(v) }; return }`, "range over a map"},
	{"floats added", `func f() (n float64) { for _, v := range m { n += float64(v) }; return }`, "range over a map"},
	{"greatest", `func f() (n int) { for k := range m { n = max(n, k) }; return }`, ""},
	{"first found", `func f() int { for k := range m { return k }; return 0 }`, "range over a map"},
	{"excused", "func f() {\n// order: g adds to a set\nfor k := range m { g(k) } }", ""},
	{"excused on the line", "func f() {\nfor k := range m { // order: g adds to a set\n g(k) } }", ""},
	{"excused without a reason", "func f() {\n// order:\nfor k := range m { g(k) } }", "range over a map"},
}

func TestImpuritiesAreCaught(t *testing.T) {
	types, err := NewTypes(loaded(t), "time", "fmt", "maps", "slices", "math/rand/v2")
	if err != nil {
		t.Fatal(err)
	}
	const head = `package x
import ("fmt"; "maps"; "math/rand/v2"; "slices"; "time")
type named map[int]int
var m map[int]int
func g(int) {}
func id(i int) int { return i }
var _, _, _, _ = fmt.Sprint, time.UTC, slices.Max[[]int], maps.Clone[named]
var _ *rand.Rand
`
	for _, c := range impurities {
		t.Run(c.name, func(t *testing.T) {
			types.tree = snippet(t, "core/x/x.go", head+c.body+"\n")
			got, err := types.Purity("core/x")
			if err != nil {
				t.Fatal(err)
			}
			wantBreach(t, got, c.want)
		})
	}
}

func TestSizesAreCaught(t *testing.T) {
	body := func(lines int) string {
		return "package x\n\nfunc (t *T) F() {\n" + strings.Repeat("\t_ = 0\n", lines-2) + "}\n"
	}
	for _, c := range []struct{ name, source, exceptions, want string }{
		{"function at the limit", body(70), "", ""},
		{"function over", body(71), "", "function x/x.go T.F: has 71"},
		{"function excepted", body(71), "function x/x.go T.F 71", ""},
		{"function grew", body(72), "function x/x.go T.F 71", "grew from 71 to 72"},
		{"function shrank", body(71), "function x/x.go T.F 80", "shrank"},
		{"function not excepted any more", body(70), "function x/x.go T.F 71", "within its limit"},
		{"file at the limit", "package x\n" + strings.Repeat("\n", 599), "", ""},
		{"file over", "package x\n" + strings.Repeat("\n", 600), "", "file x/x.go: has 601"},
		{"line at the limit", "package x\n//" + strings.Repeat("é", 118) + "\n", "", ""},
		{"line over", "package x\n//" + strings.Repeat("é", 119) + "\n", "", "lines x/x.go: has 1"},
		{"generated", "// Code generated by x. DO NOT EDIT.\n" + body(99), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			exceptions, err := ParseExceptions(c.exceptions)
			if err != nil {
				t.Fatal(err)
			}
			wantBreach(t, Ratchet(Sizes(snippet(t, "x/x.go", c.source)), exceptions), c.want)
		})
	}
	if _, err := ParseExceptions("function x/x.go"); err == nil {
		t.Error("a broken exception was read")
	}
}

func TestWordsAreCaught(t *testing.T) {
	join := func(parts ...string) string { return strings.Join(parts, "") } // so that this file has none
	for line, want := range map[string]string{
		"the work of a worker":                 "",
		join("// TO", "DO later"):              "not done",
		join("panic(\"be", "ing written\")"):   "stub",
		join("see /wo", "rk/main"):             "mean nothing",
		join("https://x.org/wo", "rk/a"):       "",
		join("in shared/de", "sign it says"):   "cannot be looked up",
		join("GOPR", "OXY=direct go build"):    "own affair",
		join("<<<<", "<<< HEAD"):               "conflict",
		"a mutodont, TODOs in a row, aTODO":    "",
		join("binary \x00 TO", "DO is nobody"): "",
	} {
		wantBreach(t, Words("a.txt", []byte("first\n"+line)), want)
	}
}

func TestDocsAreCaught(t *testing.T) {
	for source, want := range map[string]string{
		"// Package x owns x.\npackage x":                 "",
		"package x":                                       "no package comment",
		"// x owns x.\npackage x":                         "must begin",
		"// Package y owns x.\npackage x":                 "must begin",
		"// Command x runs.\npackage main":                "",
		"// Code generated by x. DO NOT EDIT.\npackage x": "",
	} {
		wantBreach(t, Docs(snippet(t, "cmd/x/x.go", source)), want)
	}
	two := snippet(t, "x/a.go", "// Package x owns x.\npackage x")
	if err := two.Add("x/b.go", []byte("// Package x owns x.\npackage x")); err != nil {
		t.Fatal(err)
	}
	wantBreach(t, Docs(two), "2 package comments")
}
