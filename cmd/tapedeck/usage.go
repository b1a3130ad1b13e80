package main

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// firstSteps is what a command line without a command prints.
const firstSteps = `Tapedeck is a replicated publish/subscribe broker with replay.

To see it at work, on a cluster of its own that is gone afterwards:
  tapedeck demo

To try it out, with a cluster in one process:
  tapedeck dev                                   in a shell of its own
  tapedeck topic create orders
  echo 'ada:1 lamp' | tapedeck pub orders --key-separator :
  tapedeck sub orders/mail --create              prints it
  tapedeck sub orders/mail --seek earliest       prints it again

All commands:          tapedeck help
One command's flags:   tapedeck help pub
`

// helpCmd is never run: run takes help COMMAND for COMMAND --help.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command."`
}

// asMeant rewrites what people try: help COMMAND, and --version.
func asMeant(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) == 1 && args[0] == "--version":
		return []string{"version"}
	}
	return flagsLast(args)
}

// flagsLast moves a client's flags from before the command to behind it, where
// they are understood.
func flagsLast(args []string) []string {
	n := 0
	for n < len(args) {
		name, _, whole := strings.Cut(args[n], "=")
		if name != "--json" && name != "--server" && name != "--timeout" {
			break
		}
		if n++; !whole && name != "--json" {
			n++ // its value
		}
	}
	if n == 0 || n >= len(args) {
		return args
	}
	flags, rest := args[:n], args[n:]
	end := len(rest)
	if i := slices.Index(rest, "--"); i >= 0 {
		end = i // what follows are names
	}
	return slices.Concat(rest[:end], flags, rest[end:])
}

// The parser's errors that need more words.
var (
	wrongNumber = regexp.MustCompile(`^--([a-z-]+): expected .*u?int.* but got "(-\d+)"`)
	unknownFlag = regexp.MustCompile(`^unknown flag (-\S*)`)
)

// misread says what a command line that was not understood should have been.
func misread(err error) error {
	if x := wrongNumber.FindStringSubmatch(err.Error()); x != nil {
		return fmt.Errorf("--%s: is %s; it must be 0 at least", x[1], x[2])
	}
	if x := unknownFlag.FindStringSubmatch(err.Error()); x != nil {
		name := strings.TrimSuffix(x[1], ",")
		return fmt.Errorf("%w; a name that begins with - goes behind --, at the end: -- %s", err, name)
	}
	return err
}

type versionCmd struct{}

// Run prints what was built.
func (versionCmd) Run(_ context.Context, std *stdio) error {
	info, _ := debug.ReadBuildInfo()
	_, err := fmt.Fprintln(std.Out, version(info))
	return err
}

// version says which source and which Go made this program.
func version(info *debug.BuildInfo) string {
	if info == nil {
		return "tapedeck, built without a version"
	}
	text := "tapedeck " + info.Main.Version
	if info.Main.Version == "" {
		text = "tapedeck (devel)"
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && s.Value != "":
			text += " commit " + s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return text + changed + " " + info.GoVersion
}

// checkValues holds the command line's values to what can be meant: what was given
// is not empty, and no number or duration is below its flag's least, which is 0
// where the flag names none.
func checkValues(ctx *kong.Context) error {
	for _, p := range ctx.Path {
		// What the environment sets to nothing is not set; here are only flags given.
		if p.Flag != nil && isEmpty(p.Flag.Target) {
			what := "give a value, or leave the flag out"
			if instead := p.Flag.Tag.Get("everything"); instead != "" {
				what = instead + " takes everything"
			}
			return fmt.Errorf("--%s: is empty; %s", p.Flag.Name, what)
		}
	}
	for _, f := range ctx.Flags() {
		if err := atLeast(f.Target, f.Tag.Get("least")); err != nil {
			return fmt.Errorf("--%s: %w", f.Name, err)
		}
	}
	return nil
}

func isEmpty(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v.Kind() == reflect.String && v.String() == ""
}

func atLeast(v reflect.Value, least string) error {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		low, _ := time.ParseDuration(least)
		if d := time.Duration(v.Int()); d < low {
			return fmt.Errorf("is %v; it must be %v at least", d, low)
		}
	case v.CanUint():
		low, _ := strconv.ParseUint(least, 10, 64)
		if v.Uint() < low {
			return fmt.Errorf("is %d; it must be %d at least", v.Uint(), low)
		}
	case v.CanInt():
		low, _ := strconv.ParseInt(least, 10, 64)
		if v.Int() < low {
			return fmt.Errorf("is %d; it must be %d at least", v.Int(), low)
		}
	}
	return nil
}

// parseSpan reads a duration; days are understood, too: 7d, 1d12h.
func parseSpan(text string) (time.Duration, error) {
	number, rest, ok := strings.Cut(text, "d")
	if !ok {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is no duration; write it as 500ms, 10s, 5m, 12h, 7d or 1d12h", text)
		}
		return d, nil
	}
	days, err := strconv.ParseInt(number, 10, 32)
	least := time.Duration(0)
	if rest != "" && err == nil {
		least, err = time.ParseDuration(rest)
	}
	if err != nil || days < 0 || days > maxDays || least < 0 {
		return 0, fmt.Errorf("%q is no duration; write it as 500ms, 10s, 5m, 12h, 7d or 1d12h", text)
	}
	return time.Duration(days)*24*time.Hour + least, nil
}

// maxDays is what a duration holds, with room for the hours.
const maxDays = 100_000

// spanMapper reads the flags that are durations.
var spanMapper = kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := parseSpan(text)
	if err != nil {
		return err
	}
	target.SetInt(int64(d))
	return nil
})

// count is a number of things in words: 1 message, 2 messages.
func count[N int | uint32 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	switch head, y := strings.CutSuffix(thing, "y"); {
	case y:
		thing = head + "ies"
	case strings.HasSuffix(thing, "ch"):
		thing += "es"
	default:
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
