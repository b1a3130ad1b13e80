package filter

import (
	"slices"
	"strings"

	"github.com/tapedeck/tapedeck/core/batch"
)

// Limits of a filter.
const (
	MaxBytes = 4096
	MaxDepth = 32 // of parentheses and negations within each other
)

// Filter decides which messages are wanted. It never changes.
type Filter struct {
	text string
	root node
}

// String is the text the filter was read from.
func (f *Filter) String() string { return f.text }

// Match says whether a message with these attributes is wanted.
func (f *Filter) Match(attributes []batch.Attribute) bool { return f.root.match(attributes) }

// node is a part of a filter.
type node interface {
	match(as []batch.Attribute) bool
}

type (
	// anyOf is "||", allOf is "&&".
	anyOf []node
	allOf []node
	// not is "!".
	not struct{ of node }
	// constant is true or false.
	constant bool
	// has asks whether the attribute is there.
	has struct{ name string }
	// compare holds the attribute's value against texts.
	compare struct {
		name  string
		how   operator
		texts []string // one, but for in
	}
)

type operator uint8

const (
	equal operator = iota // to one of the texts
	unequal
	startsWith
	endsWith
	contains
)

func (n anyOf) match(as []batch.Attribute) bool {
	return slices.ContainsFunc(n, func(m node) bool { return m.match(as) })
}

func (n allOf) match(as []batch.Attribute) bool {
	return !slices.ContainsFunc(n, func(m node) bool { return !m.match(as) })
}

func (n not) match(as []batch.Attribute) bool { return !n.of.match(as) }

func (n constant) match([]batch.Attribute) bool { return bool(n) }

func (n has) match(as []batch.Attribute) bool {
	_, ok := find(as, n.name)
	return ok
}

func (n compare) match(as []batch.Attribute) bool {
	value, ok := find(as, n.name)
	if !ok {
		return n.how == unequal
	}
	switch n.how {
	case equal:
		return slices.Contains(n.texts, value)
	case unequal:
		return value != n.texts[0]
	case startsWith:
		return strings.HasPrefix(value, n.texts[0])
	case endsWith:
		return strings.HasSuffix(value, n.texts[0])
	}
	return strings.Contains(value, n.texts[0])
}

// find looks an attribute up. Whether a client sorted them is not relied on;
// there are few.
func find(as []batch.Attribute, name string) (string, bool) {
	for i := range as {
		if as[i].Name == name {
			return as[i].Value, true
		}
	}
	return "", false
}
