package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// documented is the server that documents name.
const documented = "http://127.0.0.1:7070"

// step is a document's block of commands, and what it says that they print; empty:
// it says nothing.
type step struct {
	line           int
	commands, want string
}

// steps finds the blocks of commands below a heading of a document, or in all of it:
// fenced as sh; a block fenced as json right after one is what it prints.
func steps(t *testing.T, file, heading string) (found []step) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	inside, kind := heading == "", ""
	for i, line := range strings.Split(string(raw), "\n") {
		switch {
		case kind == "" && heading != "" && strings.HasPrefix(line, "## "):
			inside = line == heading
		case !inside:
		case kind == "" && strings.HasPrefix(line, "```"):
			if kind = strings.TrimPrefix(line, "```"); kind == "sh" {
				found = append(found, step{line: i + 1})
			}
		case line == "```":
			kind = ""
		case kind == "sh":
			found[len(found)-1].commands += line + "\n"
		case kind == "json" && len(found) > 0:
			found[len(found)-1].want += line + "\n"
		}
	}
	return found
}

// script is one shell session of all steps. After each it prints a line of its
// own, with how many of the requests so far were answered with an error.
func script(all []step, server string) string {
	var s strings.Builder
	s.WriteString(": > failed\n" +
		"curl() { command curl --silent --show-error --fail-with-body \"$@\" || echo failed >> failed; }\n")
	for i, x := range all {
		s.WriteString(strings.ReplaceAll(x.commands, documented, server))
		fmt.Fprintf(&s, "printf '\\n@@ %d %%d\\n' $(wc -l < failed)\n", i)
	}
	return s.String()
}

// TestDocumentedSessions runs what the documents tell to type.
func TestDocumentedSessions(t *testing.T) {
	for _, tool := range []string{"curl", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: what the documents show is not checked", tool)
		}
	}
	for _, doc := range []struct {
		file, heading string
		steps, shown  int // at least
	}{
		{"docs/curl.md", "", 14, 13},
		{"README.md", "## With curl", 2, 1},
	} {
		t.Run(doc.file, func(t *testing.T) {
			all := steps(t, doc.file, doc.heading)
			server := startTestCluster(t, 3, "").nodes[0].URL()
			text := script(all, server)
			if strings.Count(text, server) != 1 {
				t.Fatalf("the commands name %s %d times", documented, strings.Count(text, server))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-c", text)
			cmd.Dir = t.TempDir()
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
			}
			if n := checkSteps(t, doc.file, all, out.String()); n < doc.shown || len(all) < doc.steps {
				t.Errorf("%d steps, %d of them with what they print", len(all), n)
			}
			if t.Failed() {
				t.Logf("errors printed:\n%s", errs.String())
			}
		})
	}
}

// What the documents tell to type is understood, at least.
func TestDocumentedCommandsAreUnderstood(t *testing.T) {
	understood := 0
	for _, file := range []string{"README.md", "docs/curl.md", "docs/filters.md"} {
		for _, x := range steps(t, file, "") {
			for line := range strings.Lines(strings.ReplaceAll(x.commands, "\\\n", "")) {
				line, _, _ = strings.Cut(line, "#")
				_, command, ok := strings.Cut("\n"+line[strings.LastIndex(line, "|")+1:], "tapedeck ")
				if !ok {
					continue
				}
				if _, err := parsed(t, words(command)...); err != nil {
					t.Errorf("%s:%d: tapedeck %s: %v", file, x.line, command, err)
				}
				understood++
			}
		}
	}
	if understood < 10 {
		t.Errorf("only %d commands were found", understood)
	}
}

// words splits a command as a shell does that knows 'quotes' alone.
func words(command string) (all []string) {
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// Every server that a document names to type is the one that dev starts.
func TestDocumentsNameOneServer(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	address, found := regexp.MustCompile(`\b(?:localhost|127\.0\.0\.1):(\d+)`), 0
	for _, file := range append(files, filepath.Join("..", "..", "README.md")) {
		name, err := filepath.Rel(filepath.Join("..", ".."), file)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range steps(t, name, "") {
			for _, port := range address.FindAllStringSubmatch(x.commands, -1) {
				if found++; port[1] < "7070" || port[1] > "7079" {
					t.Errorf("%s:%d names %s, where no server is", name, x.line, port[0])
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d servers were found", found)
	}
}

// checkSteps holds what a session printed to what the document says; it counts the
// steps for which it says something.
func checkSteps(t *testing.T, file string, all []step, out string) (shown int) {
	failed := 0
	for i, x := range all {
		got, rest, ok := strings.Cut(out, fmt.Sprintf("\n@@ %d ", i))
		if !ok {
			t.Fatalf("%s:%d: the session ended before it", file, x.line)
		}
		count, rest, _ := strings.Cut(rest, "\n")
		out = rest
		now := 0
		if _, err := fmt.Sscan(count, &now); err != nil {
			t.Fatal(err)
		}
		want, err := values(x.want)
		if err != nil {
			t.Fatalf("%s:%d: what it prints is no JSON: %v", file, x.line, err)
		}
		if errorsIn(want) != now-failed {
			t.Errorf("%s:%d: %d requests failed, %d were to:\n%s", file, x.line, now-failed, errorsIn(want), got)
		}
		failed = now
		if len(want) == 0 {
			continue
		}
		shown++
		printed, err := values(got)
		if err != nil {
			t.Errorf("%s:%d: %v:\n%s", file, x.line, err, got)
		} else if diff := differ(any(want), any(printed), "$"); diff != "" {
			t.Errorf("%s:%d: %s; printed was:\n%s", file, x.line, diff, got)
		}
	}
	return shown
}

// values are the JSON values of a text, one after the other.
func values(text string) (all []any, err error) {
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, byPartition(v))
	}
}

// byPartition sorts an answer's messages: which partition's come first is nobody's
// promise, their order within it is.
func byPartition(v any) any {
	if answer, ok := v.(object); ok {
		if messages, ok := answer["messages"].([]any); ok {
			slices.SortStableFunc(messages, func(a, b any) int {
				return strings.Compare(fmt.Sprint(a.(object)["partition"]), fmt.Sprint(b.(object)["partition"]))
			})
		}
	}
	return v
}

// errorsIn counts the answers that are errors.
func errorsIn(all []any) (n int) {
	for _, v := range all {
		if m, ok := v.(object); ok && m["code"] != nil {
			n++
		}
	}
	return n
}

// differ says where a value is not as shown; … stands for any value, and as a name
// for any other fields.
func differ(want, got any, at string) string {
	switch w := want.(type) {
	case string:
		if w == "…" {
			return ""
		}
	case object:
		g, ok := got.(object)
		if !ok {
			break
		}
		for name := range g {
			if _, known := w[name]; !known && w["…"] == nil {
				return fmt.Sprintf("%s.%s is not shown", at, name)
			}
		}
		for name, v := range w {
			if _, there := g[name]; !there && name != "…" {
				return fmt.Sprintf("%s.%s is missing", at, name)
			} else if diff := differ(v, g[name], at+"."+name); diff != "" {
				return diff
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			if diff := differ(w[i], g[i], fmt.Sprintf("%s[%d]", at, i)); diff != "" {
				return diff
			}
		}
		return ""
	}
	if fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Sprintf("%s is %v, shown is %v", at, got, want)
	}
	return ""
}

// The comparison above is worth nothing if it finds everything alike.
func TestWhatDiffersFromADocumentIsFound(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{`{"a": "1", "b": [1, {"c": "…"}]}`, `{"a":"1","b":[1,{"c":"x"}]}`, true},
		{`{"a": "1", "…": "…"}`, `{"a":"1","b":2}`, true},
		{`{"a": "1"}`, `{"a":"1","b":2}`, false},
		{`{"a": "1", "b": 2}`, `{"a":"1"}`, false},
		{`{"a": "1"}`, `{"a":"2"}`, false},
		{`[1, 2]`, `[1]`, false},
		{`{}`, `[]`, false},
		{`{"a": []}`, `{"a":{}}`, false},
		{"{}\n{}", `{}`, false},
	} {
		want, err := values(c.want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := values(c.got)
		if err != nil {
			t.Fatal(err)
		}
		if diff := differ(any(want), any(got), "$"); (diff == "") != c.same {
			t.Errorf("%s and %s: %q", c.want, c.got, diff)
		}
	}
}
