package main

import (
	"strings"
	"testing"
)

// Every planted bug applies to the product's text as it stands.
func TestBugsApply(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	bugs, err := readBugs(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range bugs {
		if i > 0 && bugs[i-1].number == b.number {
			t.Errorf("%s and %s have one number", bugs[i-1].path, b.path)
		}
	}
}

func TestBugFilesThatCannotBeMeant(t *testing.T) {
	const good = "number: 9\nname: n\nseen in: s\ncaught by: x, y\nfile: f.go\n---- text\na\n---- by\nb\n----\n"
	b, err := parseBug("good", good)
	if err != nil || b.number != 9 || len(b.by) != 2 || b.edits[0] != (edit{"f.go", "a\n", "b\n"}) {
		t.Errorf("%+v, %v", b, err)
	}
	const cannot = "number: 9\nname: n\nseen in: s\ncannot exist because: there is\ncannot exist because: no such thing\n"
	if b, err := parseBug("cannot", cannot); err != nil || b.cannot != "there is no such thing" {
		t.Errorf("%+v, %v", b, err)
	}
	for name, text := range map[string]string{
		"planted and impossible": good + "cannot exist because: x\n",
		"caught, not planted":    cannot + "caught by: x\n",
		"no number":              strings.Replace(good, "number: 9\n", "", 1),
		"no end":                 strings.TrimSuffix(good, "----\n"),
		"stray":                  good + "stray\n",
		"no file":                strings.Replace(good, "file: f.go\n", "", 1),
	} {
		if _, err := parseBug(name, text); err == nil {
			t.Errorf("%s: is taken", name)
		}
	}
}

func TestParseSeeds(t *testing.T) {
	if from, to, err := parseSeeds("3..17"); from != 3 || to != 17 || err != nil {
		t.Errorf("3..17 gives %d, %d, %v", from, to, err)
	}
	if from, to, err := parseSeeds("5"); from != 5 || to != 5 || err != nil {
		t.Errorf("5 gives %d, %d, %v", from, to, err)
	}
	for _, s := range []string{"", "a..b", "9..1", "1.."} {
		if _, _, err := parseSeeds(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}
