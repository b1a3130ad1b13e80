package filter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error says what is wrong with a filter, and where.
type Error struct {
	At   int // byte, from 1
	What string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("at character %d: %s", e.At, e.What) }

// Parse reads a filter; the error is an *Error.
func Parse(text string) (*Filter, error) {
	p := &parser{text: text}
	switch {
	case len(text) > MaxBytes:
		return nil, &Error{MaxBytes + 1, fmt.Sprintf("a filter has at most %d bytes, this one %d", MaxBytes, len(text))}
	case !utf8.ValidString(text):
		return nil, &Error{1, "the filter is not UTF-8"}
	}
	p.next()
	if p.token.kind == end && p.err == nil {
		return nil, &Error{1, "the filter is empty; true takes everything"}
	}
	root := p.or()
	if p.err == nil && p.token.kind != end {
		p.fail("expected && or || or the end, found %s", p.token)
	}
	if p.err != nil {
		return nil, p.err
	}
	return &Filter{text, root}, nil
}

type tokenKind uint8

const (
	end tokenKind = iota
	word
	text   // a quoted string
	symbol // an operator or bracket
)

type token struct {
	kind  tokenKind
	value string // a text's without quotes and escapes
	at    int    // byte, from 0
}

func (t token) String() string {
	switch t.kind {
	case end:
		return "the end"
	case text:
		return "the text " + strconv.Quote(t.value)
	}
	return strconv.Quote(t.value)
}

// parser reads one token ahead. After an error every token is the end, so that
// whatever is being read comes to its end, too.
type parser struct {
	text  string
	pos   int
	token token
	depth int
	err   error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = &Error{p.token.at + 1, fmt.Sprintf(format, args...)}
	}
	p.pos = len(p.text)
	p.token = token{kind: end, at: p.pos}
}

// symbols are longest first.
var symbols = []string{"||", "&&", "==", "!=", "!", "(", ")", "[", "]", ".", ","}

func (p *parser) next() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
	p.token = token{kind: end, at: p.pos}
	if p.pos == len(p.text) {
		return
	}
	rest := p.text[p.pos:]
	if c := rest[0]; c == '"' || c == '\'' {
		p.quoted(c)
		return
	}
	n := 0
	for n < len(rest) && isWord(rest[n], n == 0) {
		n++
	}
	if n > 0 {
		p.token.kind, p.token.value = word, rest[:n]
		p.pos += n
		return
	}
	for _, s := range symbols {
		if strings.HasPrefix(rest, s) {
			p.token.kind, p.token.value = symbol, s
			p.pos += len(s)
			return
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	p.fail("%q means nothing here%s", r, hint(r))
}

// hint helps out with what other languages write.
func hint(r rune) string {
	switch r {
	case '=':
		return "; equality is =="
	case '&', '|':
		return "; and is &&, or is ||"
	case '`', '“', '”':
		return "; texts are put in \" or '"
	}
	return ""
}

func isWord(c byte, first bool) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || !first && '0' <= c && c <= '9'
}

var escapes = map[byte]byte{'\\': '\\', '"': '"', '\'': '\'', 'n': '\n', 'r': '\r', 't': '\t'}

// quoted reads a text that begins and ends with a quote.
func (p *parser) quoted(quote byte) {
	var b strings.Builder
	at := p.pos
	for i := at + 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == quote:
			p.token = token{text, b.String(), at}
			p.pos = i + 1
			return
		case c != '\\':
			b.WriteByte(c)
		case i+1 < len(p.text) && escapes[p.text[i+1]] != 0:
			i++
			b.WriteByte(escapes[p.text[i]])
		case i+5 < len(p.text) && p.text[i+1] == 'u':
			r, err := strconv.ParseUint(p.text[i+2:i+6], 16, 16)
			if err != nil || !utf8.ValidRune(rune(r)) {
				p.token.at = i
				p.fail("%q is no character; write four hexadecimal digits after \\u", p.text[i:i+6])
				return
			}
			b.WriteRune(rune(r))
			i += 5
		default:
			p.token.at = i
			p.fail(`a text may have \\ \" \' \n \r \t \uXXXX, not this`)
			return
		}
	}
	p.fail("the text that begins here has no end; close it with %c", quote)
}

// accept takes a symbol or word if it is next.
func (p *parser) accept(value string) bool {
	if (p.token.kind != symbol && p.token.kind != word) || p.token.value != value {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(value string) {
	if !p.accept(value) {
		p.fail("expected %s, found %s", value, p.token)
	}
}

// deeper guards whatever contains itself.
func (p *parser) deeper() bool {
	if p.depth++; p.depth > MaxDepth {
		p.fail("more than %d parentheses or negations within each other", MaxDepth)
		return false
	}
	return true
}

func (p *parser) or() node {
	n := p.and()
	if p.token.kind != symbol || p.token.value != "||" {
		return n
	}
	out := anyOf{n}
	for p.accept("||") {
		out = append(out, p.and())
	}
	return out
}

func (p *parser) and() node {
	n := p.not(false)
	if p.token.kind != symbol || p.token.value != "&&" {
		return n
	}
	out := allOf{n}
	for p.accept("&&") {
		out = append(out, p.not(false))
	}
	return out
}

func (p *parser) not(negated bool) node {
	if p.token.kind != symbol || p.token.value != "!" {
		return p.term(negated)
	}
	if !p.deeper() {
		return constant(false)
	}
	p.next()
	n := p.not(true)
	p.depth--
	return not{n}
}

func (p *parser) term(negated bool) node {
	switch {
	case p.token.kind == text:
		value := p.token.value
		p.next()
		p.operator(negated, "in")
		p.expect("attributes")
		return has{value}
	case p.accept("("):
		if !p.deeper() {
			return constant(false)
		}
		n := p.or()
		p.depth--
		p.expect(")")
		return n
	case p.accept("true"):
		return constant(true)
	case p.accept("false"):
		return constant(false)
	case p.accept("has"):
		p.expect("(")
		name, call := p.attribute()
		if call != "" {
			p.fail("has takes an attribute alone, such as has(attributes.region)")
		}
		p.expect(")")
		return has{name}
	case p.token.kind == word && p.token.value == "attributes":
		return p.compare(negated)
	}
	p.fail("expected attributes, has, a text, ! or (, found %s", p.token)
	return constant(false)
}

// operator takes one that binds less than a negation before it, as in CEL.
func (p *parser) operator(negated bool, value string) {
	if negated && p.token.value == value {
		p.fail("! would bind closer than %s; put what it negates in parentheses: !(…)", value)
	}
	p.expect(value)
}

// attribute reads attributes.NAME or attributes["NAME"], and the name of a
// function that is called on it then.
func (p *parser) attribute() (name, function string) {
	p.expect("attributes")
	if p.accept("[") {
		name = p.quotedText()
		p.expect("]")
	} else {
		p.expect(".")
		name = p.name("an attribute's name; one that is no plain word is written attributes[\"…\"]")
	}
	if p.accept(".") {
		function = p.name("startsWith, endsWith or contains")
	}
	return name, function
}

func (p *parser) name(what string) string {
	if p.token.kind != word {
		p.fail("expected %s, found %s", what, p.token)
		return ""
	}
	value := p.token.value
	p.next()
	return value
}

func (p *parser) quotedText() string {
	if p.token.kind != text {
		p.fail("expected a text in \" or ', found %s", p.token)
		return ""
	}
	value := p.token.value
	p.next()
	return value
}

var functions = map[string]operator{"startsWith": startsWith, "endsWith": endsWith, "contains": contains}

// compare reads what is asked of an attribute's value.
func (p *parser) compare(negated bool) node {
	name, function := p.attribute()
	n := compare{name: name}
	switch {
	case function != "":
		how, known := functions[function]
		if !known {
			p.fail("there is no function %s; there are startsWith, endsWith and contains", function)
		}
		n.how = how
		p.expect("(")
		n.texts = []string{p.quotedText()}
		p.expect(")")
	case p.token.value == "in" && p.token.kind == word:
		p.operator(negated, "in")
		p.expect("[")
		n.texts = []string{p.quotedText()}
		for p.accept(",") {
			n.texts = append(n.texts, p.quotedText())
		}
		p.expect("]")
	case p.token.value == "!=" && p.token.kind == symbol:
		p.operator(negated, "!=")
		n.how, n.texts = unequal, []string{p.quotedText()}
	case p.token.value == "==" && p.token.kind == symbol:
		p.operator(negated, "==")
		n.texts = []string{p.quotedText()}
	default:
		p.fail("expected ==, !=, in or a function after an attribute, found %s", p.token)
	}
	return n
}
