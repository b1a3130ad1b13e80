package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A scenario file is read, written and replayed by people:
//
//	# What is claimed, and why it matters.
//	cluster nodes=3 topic=orders partitions=1 replicas=3 seed=42
//	publish orders key=a
//	----
//	0@0
//
//	check
//	----
//	durable ok · ordered ok · no duplicates
//
// Comments and blank lines come before a block. A block is one or more
// commands, a line of four dashes, and the output they are to give, up to a
// blank line or the end.

// block is one or more commands and what they should print.
type block struct {
	lead     []string // comments and blank lines before it, as they stand
	commands []command
	expected []string
	line     int // of the dashes
}

// command is a name, positional arguments, and named ones.
type command struct {
	text  string
	line  int
	name  string
	args  []string
	named map[string]string
	used  map[string]bool
	taken int // positional arguments asked for
	// Columns, from 1, of the positional arguments, of the named ones, and of what
	// was read last, which is what an error is about.
	argsAt  []int
	namedAt map[string]int
	column  int
}

const dashes = "----"

// parseScenario cuts a file into blocks.
func parseScenario(text string) (blocks []block, tail []string, err error) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	var b block
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], " \t")
		switch {
		case line == dashes:
			if len(b.commands) == 0 {
				return nil, nil, fmt.Errorf("line %d: %s without a command above it", i+1, dashes)
			}
			b.line = i + 1
			for i+1 < len(lines) && strings.TrimSpace(lines[i+1]) != "" {
				i++
				b.expected = append(b.expected, strings.TrimRight(lines[i], " \t"))
			}
			blocks = append(blocks, b)
			b = block{}
		case line == "" || strings.HasPrefix(line, "#"):
			if len(b.commands) > 0 {
				return nil, nil, fmt.Errorf("line %d: the commands above it lack their %s", i+1, dashes)
			}
			b.lead = append(b.lead, line)
		default:
			c, err := parseCommand(line, i+1)
			if err != nil {
				return nil, nil, err
			}
			b.commands = append(b.commands, c)
		}
	}
	if len(b.commands) > 0 {
		return nil, nil, fmt.Errorf("line %d: the last commands lack their %s", len(lines), dashes)
	}
	return blocks, b.lead, nil
}

func parseCommand(text string, line int) (command, error) {
	words, columns := split(text)
	c := command{text: text, line: line, name: words[0], named: map[string]string{}, used: map[string]bool{},
		namedAt: map[string]int{}, column: columns[0]}
	for i, w := range words[1:] {
		name, value, named := strings.Cut(w, "=")
		if !named {
			c.args, c.argsAt = append(c.args, w), append(c.argsAt, columns[i+1])
			continue
		}
		if _, twice := c.named[name]; twice {
			return c, fmt.Errorf("line %d, column %d: %s is given twice", line, columns[i+1], name)
		}
		c.named[name], c.namedAt[name] = value, columns[i+1]
	}
	return c, nil
}

// split cuts a line into words and says in which column, from 1, each begins.
func split(text string) (words []string, columns []int) {
	column, inWord := 0, false
	for i, r := range text {
		column++
		space := r == ' ' || r == '\t'
		switch {
		case space:
			inWord = false
		case inWord:
			words[len(words)-1] += text[i : i+utf8.RuneLen(r)]
		default:
			inWord = true
			words, columns = append(words, text[i:i+utf8.RuneLen(r)]), append(columns, column)
		}
	}
	return words, columns
}

// errorf names the command's line, and the column of what was read last.
func (c *command) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d, column %d: %s: %s", c.line, c.column, c.name, fmt.Sprintf(format, args...))
}

// fail aborts the command; the interpreter turns it into an error.
type commandError struct{ err error }

func (c *command) fail(format string, args ...any) { panic(commandError{c.errorf(format, args...)}) }

// arg is the next positional argument, which must be there.
func (c *command) arg(what string) string {
	if c.taken >= len(c.args) {
		c.fail("lacks its %s", what)
	}
	c.column = c.argsAt[c.taken]
	c.taken++
	return c.args[c.taken-1]
}

// option is the next positional argument, or "".
func (c *command) option() string {
	if c.taken >= len(c.args) {
		return ""
	}
	return c.arg("")
}

func (c *command) has(name string) bool {
	_, there := c.named[name]
	return there
}

func (c *command) str(name, otherwise string) string {
	c.used[name] = true
	if v, there := c.named[name]; there {
		c.column = c.namedAt[name]
		return v
	}
	return otherwise
}

func (c *command) num(name string, otherwise uint64) uint64 {
	v := c.str(name, "")
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		c.fail("%s=%s is not a number", name, v)
	}
	return n
}

func (c *command) duration(name string, otherwise time.Duration) time.Duration {
	v := c.str(name, "")
	if v == "" {
		return otherwise
	}
	return c.parseDuration(v)
}

func (c *command) parseDuration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	if err != nil {
		c.fail("%q is not a duration with a unit, such as 200ms or 2s", v)
	}
	return d
}

// choice is one of the given words; the first is the default.
func (c *command) choice(name string, words ...string) string {
	v := c.str(name, words[0])
	if !slices.Contains(words, v) {
		c.fail("%s=%s is none of %s", name, v, strings.Join(words, ", "))
	}
	return v
}

// leftOver refuses what no handler asked for.
func (c *command) leftOver() error {
	if c.taken < len(c.args) {
		c.column = c.argsAt[c.taken]
		return c.errorf("does not take %q", c.args[c.taken])
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(c.named)) {
		if !c.used[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		c.column = c.namedAt[unknown[0]]
		return c.errorf("does not take %s=", strings.Join(unknown, "=, "))
	}
	return nil
}
