package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/tapedeck/tapedeck/core/model"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tapedeck.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// parsed is the command line after parsing, without running it.
func parsed(t *testing.T, args ...string) (root, error) {
	t.Helper()
	var r root
	parser, err := kong.New(&r, append(parserOptions(), kong.Writers(io.Discard, io.Discard))...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return r, err
}

func TestFlagsWinOverEnvironmentOverFile(t *testing.T) {
	file := configFile(t, "nodes: 2\nlisten: 127.0.0.1:1\ndata: /outside\nlog-level: error\n"+
		"allowed-origin: [https://a.example, https://b.example]\ndev:\n  data: /inside\n")
	t.Setenv("TAPEDECK_LISTEN", "127.0.0.1:2")
	t.Setenv("TAPEDECK_NODES", "4")
	r, err := parsed(t, "--config", file, "dev", "--nodes", "5")
	if err != nil {
		t.Fatal(err)
	}
	if d := r.Dev; d.Nodes != 5 || d.Listen != "127.0.0.1:2" || d.Data != "/inside" || d.LogLevel != "error" ||
		strings.Join(d.AllowedOrigin, " ") != "https://a.example https://b.example" {
		t.Errorf("dev is %+v", d)
	}
	file = configFile(t, "serve:\n  peers: {n1: h1:1, n2: h2:2}\n")
	r, err = parsed(t, "--config", file, "serve", "--id", "n1", "--data", "x")
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Serve.Peers; len(p) != 2 || p[0] != (model.Node{ID: "n1", Address: "h1:1"}) || p[1].Address != "h2:2" {
		t.Errorf("peers are %v", p)
	}
	if r.Serve.LogLevel != "info" {
		t.Errorf("serve logs from %s on", r.Serve.LogLevel)
	}
}

func TestTheJournalEngineIsChosen(t *testing.T) {
	args := func(command string) []string {
		if command == "serve" {
			return []string{"serve", "--id", "n1", "--data", "x", "--peers", "n1=h1:1"}
		}
		return []string{command}
	}
	of := func(command string, options ...string) string {
		r, err := parsed(t, append(options, args(command)...)...)
		if err != nil {
			t.Fatal(err)
		}
		if command == "serve" {
			return r.Serve.Journal
		}
		return r.Dev.Journal
	}
	file := configFile(t, "journal: tidwall\n")
	for _, command := range []string{"serve", "dev"} {
		if got := of(command); got != "own" {
			t.Errorf("%s takes %s by itself", command, got)
		}
		if got := of(command, "--config", file); got != "tidwall" {
			t.Errorf("%s takes %s with a file that says tidwall", command, got)
		}
	}
	t.Setenv("TAPEDECK_JOURNAL", "own")
	if got := of("serve", "--config", file); got != "own" {
		t.Errorf("serve takes %s though the environment says own", got)
	}
	if _, err := parsed(t, append(args("serve"), "--journal", "bolt")...); err == nil ||
		!strings.Contains(err.Error(), "own") {
		t.Errorf("an engine that does not exist: %v", err)
	}
}

func TestANameInTheFileThatNoFlagHasIsRefused(t *testing.T) {
	for _, text := range []string{"nodse: 2\n", "dev:\n  peers: x\n", "- a list\n"} {
		if _, err := parsed(t, "--config", configFile(t, text), "dev"); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestWhatCannotWorkFailsWithItsReason(t *testing.T) {
	for _, c := range []struct {
		args []string
		exit int
		says string
	}{
		{[]string{"nonsense"}, 2, "nonsense"},
		{[]string{"serve", "--id", "n1"}, 2, "--data"},
		{[]string{"dev", "--nodes", "0"}, 1, "between 1 and"},
		{[]string{"dev", "--listen", "127.0.0.1:65535"}, 1, "65535"},
		{[]string{"dev", "--listen", "nowhere"}, 1, "--listen"},
		{[]string{"serve", "--id", "n1", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--peers", "n2=127.0.0.1:1"},
			1, "this one too"},
		{[]string{"serve", "--id", "n1", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--peers", "n1=there"},
			2, "HOST:PORT"},
	} {
		var out, errs bytes.Buffer
		exit := run(t.Context(), c.args, &stdio{strings.NewReader(""), &out, &errs})
		if exit != c.exit || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%v: exit %d, %q; want %d and %q", c.args, exit, errs.String(), c.exit, c.says)
		}
	}
}

func TestDevSaysReadyForEachNodeAndEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	var errs bytes.Buffer
	exit := make(chan int, 1)
	go func() {
		args := []string{"dev", "--nodes", "3", "--listen", "127.0.0.1:0"}
		exit <- run(ctx, args, &stdio{strings.NewReader(""), out, &errs})
		_ = out.Close()
	}()
	lines := bufio.NewScanner(in)
	for range 3 {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "ready http://127.0.0.1:") {
			t.Fatalf("dev says %q; %s", lines.Text(), errs.String())
		}
	}
	cancel()
	if lines.Scan() {
		t.Errorf("dev also says %q", lines.Text())
	}
	if got := <-exit; got != 0 {
		t.Errorf("exit code %d: %s", got, errs.String())
	}
}

func TestAFolderInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	startTestCluster(t, 1, dir)
	var errs bytes.Buffer
	exit := run(t.Context(), []string{"dev", "--nodes", "1", "--listen", "127.0.0.1:0", "--data", dir},
		&stdio{strings.NewReader(""), io.Discard, &errs})
	if exit != 1 || !strings.Contains(errs.String(), "in use") {
		t.Errorf("exit %d, %s", exit, errs.String())
	}
}

func TestTheDemonstrationHolds(t *testing.T) {
	var out, errs bytes.Buffer
	if exit := run(t.Context(), []string{"demo"}, &stdio{strings.NewReader(""), &out, &errs}); exit != 0 {
		t.Fatalf("exit %d: %s\n%s", exit, errs.String(), out.String())
	}
	for _, want := range []string{"Rewinding", "Killing", "lag 0", "Nothing was lost"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demonstration does not say %q", want)
		}
	}
}
