package filter

import (
	"errors"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core/batch"
)

func attributes(list string) (as []batch.Attribute) {
	for pair := range strings.FieldsSeq(list) {
		name, value, _ := strings.Cut(pair, "=")
		as = append(as, batch.Attribute{Name: name, Value: value})
	}
	return as
}

func TestMatch(t *testing.T) {
	for _, c := range []struct{ filter, yes, no string }{
		{`attributes.region == "eu"`, "a=1 region=eu", "region=us"},
		{`attributes.region == 'eu'`, "region=eu", ""},
		{`attributes.region != "eu"`, "", "region=eu"},
		{`attributes["x-y.z"] == "1"`, "x-y.z=1", "x-y.z=2"},
		{`has(attributes.test)`, "test=", "tests=1"},
		{`"x y" in attributes || "test" in attributes`, "test=1", "other=1"},
		{`!has(attributes.test)`, "", "test=1"},
		{`!!has(attributes.test)`, "test=1", ""},
		{`attributes.name.startsWith("ab")`, "name=abc", "name=a"},
		{`!attributes.name.startsWith("ab")`, "", "name=ab"},
		{`attributes.name.endsWith("bc")`, "name=abc", ""},
		{`attributes.name.contains("b")`, "name=abc", "name=ac"},
		{`attributes.in in ["a", 'b']`, "in=b", "in=c"},
		{`attributes.a == "1" || attributes.b == "1" && attributes.c == "1"`, "a=1", "b=1"},
		{`(attributes.a == "1" || attributes.b == "1") && attributes.c == "1"`, "b=1 c=1", "a=1"},
		{`attributes.region == "eu" && !has(attributes.test) || attributes.name.startsWith("a")`,
			"region=eu", "region=eu test=1"},
		{`!(attributes.a == "1") && true`, "a=2", "a=1"},
		{`attributes.has == "\u0041\"\\\n"` + " || attributes.true == '1'", "true=1", "false=1"},
		{"attributes.a\n\t== \"\"", "a=", ""},
	} {
		f, err := Parse(c.filter)
		if err != nil {
			t.Errorf("%s: %v", c.filter, err)
			continue
		}
		if f.String() != c.filter {
			t.Errorf("%s became %s", c.filter, f)
		}
		if !f.Match(attributes(c.yes)) {
			t.Errorf("%s does not match %q", c.filter, c.yes)
		}
		if f.Match(attributes(c.no)) {
			t.Errorf("%s matches %q", c.filter, c.no)
		}
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	for _, c := range []struct {
		filter string
		at     int
		what   string
	}{
		{``, 1, "true takes everything"}, {" \t", 1, "true takes everything"},
		{`attributes.a = "1"`, 14, "equality is =="},
		{`attributes.a == 1`, 17, `'1'`},
		{`attributes.a == b`, 17, "expected a text"},
		{`attributes.a == "b`, 17, "has no end"},
		{`attributes.a == "\q"`, 18, "a text may have"},
		{`attributes.a == "\uD800"`, 18, "is no character"},
		{`attributes.a == "b" & true`, 21, "and is &&"},
		{`attributes.a == "b" true`, 21, "expected && or ||"},
		{`region == "eu"`, 1, "expected attributes"},
		{`attributes.a.matches("b")`, 21, "no function matches"},
		{`has(attributes.a.startsWith("b"))`, 28, "attribute alone"},
		{`has(attributes)`, 15, "expected ."},
		{`attributes.a`, 13, "expected =="},
		{`attributes.7 == "b"`, 12, "means nothing"},
		{`!attributes.a == "b"`, 15, "!(…)"},
		{`(attributes.a == "b"`, 21, "expected )"},
		{`attributes.a in []`, 18, "expected a text"},
		{strings.Repeat("(", MaxDepth+1) + "true", MaxDepth + 2, "within each other"},
		{strings.Repeat("!", MaxDepth+1) + "true", MaxDepth + 1, "within each other"},
		{strings.Repeat(" ", MaxBytes) + "true", MaxBytes + 1, "at most"},
		{"attributes.a == \"\xff\"", 1, "UTF-8"},
	} {
		_, err := Parse(c.filter)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: not refused", c.filter)
			continue
		}
		if e.At != c.at || !strings.Contains(e.Error(), c.what) {
			t.Errorf("%s: got %v, want character %d and %q", c.filter, e, c.at, c.what)
		}
	}
	if _, err := Parse(strings.Repeat("!", MaxDepth) + "true"); err != nil {
		t.Error(err)
	}
}

// FuzzFilter: no text makes the parser panic or hang; what it takes can be
// decided, and its negation decides the other way.
func FuzzFilter(f *testing.F) {
	f.Add(`attributes.region == "eu" && !has(attributes.test) || attributes.name.startsWith("a")`, "region", "eu")
	f.Add(`!("a" in attributes) || attributes["b"] in ['c', "\u00e9\n"]`, "b", "c")
	f.Add(`((true)) && false`, "", "")
	f.Fuzz(func(t *testing.T, text, name, value string) {
		got, err := Parse(text)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.At < 1 || e.At > len(text)+1 {
				t.Fatalf("%q: %v is no place in it", text, err)
			}
			return
		}
		as := []batch.Attribute{{Name: name, Value: value}}
		other, err := Parse("!(" + text + ")")
		if err != nil {
			return // too long or too deep now
		}
		if got.Match(as) == other.Match(as) {
			t.Fatalf("%q and its negation agree on %q=%q", text, name, value)
		}
	})
}
