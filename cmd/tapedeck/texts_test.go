package main

import (
	"bytes"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/core/model"
)

// printed is what a command line without a server prints, and its exit code.
func printed(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), args, &stdio{strings.NewReader(""), &out, &out})
	return out.String(), code
}

func TestWhatPeopleTryFirst(t *testing.T) {
	for args, want := range map[string]string{
		"":               "tapedeck topic create orders",
		"help":           "Commands:",
		"help pub":       "Usage: tapedeck pub <topic>",
		"help topic get": "Usage: tapedeck topic get <name>",
		"version":        "tapedeck ",
		"--version":      "tapedeck ",
		"pub --help":     "--key-separator",
	} {
		if out, code := printed(t, strings.Fields(args)...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("tapedeck %s: exit code %d, no %q in:\n%s", args, code, want, out)
		}
	}
	// Each command that the first steps name is one.
	for line := range strings.Lines(firstSteps) {
		_, command, ok := strings.Cut(line, "tapedeck ")
		if command, _, _ = strings.Cut(command, "  "); !ok {
			continue
		}
		if _, err := parsed(t, strings.Fields(command)...); err != nil && !strings.HasPrefix(command, "help") {
			t.Errorf("%q: %v", command, err)
		}
	}
}

func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.9", Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	if got := version(info); got != "tapedeck (devel) commit 0123456789ab with changes go1.9" {
		t.Errorf("%q", got)
	}
	info.Main.Version, info.Settings = "v1.2.3", nil
	if got := version(info); got != "tapedeck v1.2.3 go1.9" {
		t.Errorf("%q", got)
	}
	if got := version(nil); got == "" {
		t.Error("nothing is said of a program without a version")
	}
}

func TestValuesThatMeanNothingAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"fetch orders --offset -1":                     "--offset: is -1; it must be 0 at least",
		"fetch orders --offset=-1":                     "--offset: is -1; it must be 0 at least",
		"sub orders/mail --max -1":                     "--max: is -1; it must be 0 at least",
		"topic create -x":                              "goes behind --, at the end: -- -x",
		"topic create o --retention-bytes 1GX":         "write it like 256MiB or 1GB",
		"topic create o --max-message-bytes 5GiB":      "more than any message may have",
		"subscription create o/m --filter=":            "--filter: is empty; true takes everything",
		"subscription update o/m --filter=":            "--filter: is empty; true takes everything",
		"sub orders/mail --max=-1":                     "--max: is -1; it must be 0 at least",
		"sub orders/mail --wait=-1s":                   "--wait: is -1s",
		"sub orders/mail --wait=0s":                    "it must be 1ms at least",
		"sub orders/mail --timeout=0s":                 "--timeout",
		"sub orders/mail --member=":                    "--member: is empty",
		"fetch orders --max=0":                         "--max: is 0; it must be 1 at least",
		"fetch orders --wait=-1ms":                     "--wait",
		"dlq list orders.dead --max=0":                 "--max",
		"dlq redrive orders.dead --wait=0s":            "--wait",
		"topic create orders --retention=-1h":          "--retention: is -1h0m0s",
		"topic update orders --retention=-1h":          "--retention",
		"subscription create o/m --ack-deadline=-1s":   "--ack-deadline",
		"subscription update o/m --ack-deadline=-1s":   "--ack-deadline",
		"topic create orders --partitions=0":           "--partitions: is 0; it must be 1 at least",
		"topic create orders --replicas=0":             "--replicas",
		"topic create orders --retention=soon":         "12h, 7d or 1d12h",
		"node drain n1 --within=0s":                    "--within",
		"dev --data=":                                  "--data: is empty; give a value, or leave the flag out",
		"dev --drain-timeout=-1s":                      "--drain-timeout",
		"verify --data=":                               "--data: is empty",
		"serve --id n1 --data d --peers n1=a:1,n1=b:2": "n1 is named twice",
	} {
		if out, code := printed(t, strings.Fields(args)...); code != 2 || !strings.Contains(out, want) {
			t.Errorf("tapedeck %s: exit code %d, no %q in:\n%s", args, code, want, out)
		}
	}
	t.Setenv("TAPEDECK_MEMBER", "") // as good as not set
	if _, err := parsed(t, "sub", "orders/mail"); err != nil {
		t.Error(err)
	}
}

func TestAClientsFlagsMayStandBeforeTheCommand(t *testing.T) {
	for args, want := range map[string]string{
		"--server a:1 topic list":                     "topic list --server a:1",
		"--server=a:1 --json --timeout 1s topic list": "topic list --server=a:1 --json --timeout 1s",
		"--json topic get -- -x":                      "topic get --json -- -x",
		"--server":                                    "--server",
		"--server a:1":                                "--server a:1",
		"topic list --json":                           "topic list --json",
	} {
		if got := strings.Join(asMeant(strings.Fields(args)), " "); got != want {
			t.Errorf("%s is taken for %s; want %s", args, got, want)
		}
	}
	r, err := parsed(t, asMeant([]string{"--server", "a:1", "topic", "create", "o", "--retention-bytes", "1GiB",
		"--max-message-bytes", "512KiB"})...)
	if c := r.Topic.Create; err != nil || c.Server[0] != "a:1" || c.RetentionBytes != 1<<30 ||
		c.MaxMessageBytes != 512<<10 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestPeerLists(t *testing.T) {
	for list, want := range map[string]string{
		"n1=a:1,n2=b:2,n3=c:3": "",
		"n1=a:1, n2=[::1]:2":   "",
		"n1=a:1,n1=a:1":        "n1 is named twice",
		"n1=a:1,n1=b:1":        "n1 is named twice, with a:1 and b:1",
		"n1=a:1,n2=a:1":        "n1 and n2 have the same address, a:1",
		"n1":                   "NAME=HOST:PORT",
		"n1=a":                 "NAME=HOST:PORT",
		"n1=a:0":               "NAME=HOST:PORT",
		"n1=:7070":             "NAME=HOST:PORT",
		"n1=a:1,":              "NAME=HOST:PORT",
		"N 1=a:1":              "a-z 0-9",
	} {
		_, err := parsed(t, "serve", "--id", "n1", "--data", "d", "--peers", list)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", list, err, want)
		}
	}
	var l peerList
	for _, part := range []string{"n1=a:1", "n2=b:1"} {
		if err := l.add(part); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := l.find("n2"); err != nil || n != (model.Node{ID: "n2", Address: "b:1"}) {
		t.Errorf("found %v, %v", n, err)
	}
	if _, err := l.find("n3"); err == nil || !strings.Contains(err.Error(), "names n1, n2, and not --id n3") {
		t.Errorf("%v", err)
	}
}

func TestAddressesThatContradictEachOther(t *testing.T) {
	for _, c := range []struct {
		listen, peers string
		doubt         bool
	}{
		{"10.0.0.1:7070", "10.0.0.1:7070", false},
		{"10.0.0.1:7070", "10.0.0.1:7071", true},
		{"10.0.0.1:7070", "10.0.0.2:7070", true},
		{"127.0.0.1:7070", "10.0.0.1:7070", true}, // the default of --listen
		{"127.0.0.1:7070", "node1:7070", true},
		{"127.0.0.1:7070", "localhost:7070", false},
		{"localhost:7070", "node1:7070", true},
		{"localhost:7070", "127.0.0.1:7070", false},
		{"0.0.0.0:7070", "10.0.0.1:7070", false},
		{"[::]:7070", "node1:7070", false},
		{":7070", "node1:7070", false},
		{":7070", "node1:7071", true},
		{"node1:7070", "10.0.0.1:7070", false}, // a name may be anything
		{"127.0.0.1:0", "127.0.0.1:7070", false},
	} {
		got := elsewhere(c.listen, c.peers)
		if (got != "") != c.doubt || c.doubt && !strings.Contains(got, c.listen) {
			t.Errorf("--listen %s, --peers %s: %q", c.listen, c.peers, got)
		}
	}
}

func TestHints(t *testing.T) {
	for _, c := range []struct {
		err  client.Error
		want string
	}{
		{client.Error{Code: connect.CodeNotFound, Message: `topic "subscriptions" does not exist`}, "tapedeck topic create"},
		{client.Error{Code: connect.CodeNotFound, Message: `subscription orders/mail: topic "orders" does not exist`},
			"tapedeck topic create"},
		{client.Error{Code: connect.CodeNotFound,
			Message: `subscription "orders/topic" does not exist; did you mean "orders/topics"?`},
			"tapedeck subscription create"},
		{client.Error{Code: connect.CodeNotFound, Message: `there is no subscription "orders/mail"`},
			"tapedeck subscription create"},
		{client.Error{Code: connect.CodeNotFound, Message: `node "topic" is not part of the cluster`}, "tapedeck node list"},
		{client.Error{Code: connect.CodeNotFound, Message: "the subscription (id 5) was deleted"}, ""},
		{client.Error{Reason: client.ReasonOffsetTooNew, Start: 0, End: 5},
			"there are messages at offsets 0 to 4; the next one gets offset 5"},
		{client.Error{Reason: client.ReasonOffsetTooOld, Start: 4, End: 5},
			"there is one message, at offset 4; the next one gets offset 5"},
		{client.Error{Reason: client.ReasonOffsetTooNew, Start: 5, End: 5},
			"there is no message to read; the next one gets offset 5"},
		{client.Error{Message: "Post x: http: server gave HTTP response to HTTPS client"}, "--server http://"},
		{client.Error{Reason: client.ReasonNoLeader}, "tapedeck cluster status"},
		{client.Error{Reason: client.ReasonFenced}, "another"},
		{client.Error{Code: connect.CodeDeadlineExceeded}, "--timeout"},
		{client.Error{Code: connect.CodeInternal, Message: "?"}, ""},
	} {
		if got := hintFor(&c.err); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%v: hint %q, want %q", &c.err, got, c.want)
		}
	}
	// Whatever a hint tells to type can be typed.
	for _, hint := range []string{
		missingHint(`topic "x"`), missingHint(`subscription "x"`), missingHint(`node "x"`),
		hintFor(&client.Error{Reason: client.ReasonNoLeader}),
	} {
		for _, command := range strings.Split(hint, "tapedeck ")[1:] {
			command, _, _ = strings.Cut(command, ";")
			if _, err := parsed(t, strings.Fields(command)...); err != nil {
				t.Errorf("%q: %v", command, err)
			}
		}
	}
}

func TestDurationsKnowDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "0d": 0, "1.5h": 90 * time.Minute, "-1s": -time.Second,
		"d": -1, "1.5d": -1, "-1d": -1, "1d-1h": -1, "1h1d": -1, "7 d": -1, "1000000d": -1, "soon": -1, "10": -1,
	} {
		got, err := parseSpan(text)
		if want == -1 && (err == nil || !strings.Contains(err.Error(), "12h, 7d or 1d12h")) ||
			want != -1 && (err != nil || got != want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	r, err := parsed(t, "topic", "update", "orders", "--retention", "2d")
	if err != nil || *r.Topic.Update.Retention != 48*time.Hour {
		t.Errorf("%v, %v", r.Topic.Update.Retention, err)
	}
	if at, ok := parseMoment("1d", time.Unix(200_000, 0)); !ok || at.Unix() != 200_000-86_400 {
		t.Errorf("a day ago is %v", at)
	}
}

func TestCounts(t *testing.T) {
	for want, got := range map[string]string{
		"0 messages": count(0, "message"), "1 message": count(1, "message"), "2 messages": count(2, "message"),
		"1 copy": count(uint32(1), "copy"), "3 copies": count(uint32(3), "copy"), "2 batches": count(2, "batch"),
	} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// A folder of dev's is no node's: whoever takes it for one is told whose are in it.
func TestAFolderOfSeveralNodesIsNoNodes(t *testing.T) {
	dir := t.TempDir()
	cl := startTestCluster(t, 2, dir)
	if err := cl.stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--data", dir},
		{"node", "rebuild", "--yes", "--data", dir},
		{"serve", "--id", "n1", "--data", dir, "--listen", "127.0.0.1:0", "--peers", "n1=127.0.0.1:1"},
	} {
		if out, code := printed(t, args...); code != 1 || !strings.Contains(out, "those of n1, n2") ||
			!strings.Contains(out, filepath.Join(dir, "n1")) {
			t.Errorf("%v: exit code %d:\n%s", args, code, out)
		}
	}
	if out, code := printed(t, "verify", "--data", filepath.Join(dir, "n2")); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if left := (&devCmd{Data: dir, Nodes: 1}).leftOut(); strings.Join(left, " ") != "n2" {
		t.Errorf("left out are %v", left)
	}
	if left := (&devCmd{Data: dir, Nodes: 3}).leftOut(); len(left) != 0 {
		t.Errorf("left out are %v", left)
	}
}

func TestAnUpdateThatChangesNothingSaysSo(t *testing.T) {
	s := shell{t, startTestCluster(t, 1, "").nodes[0].URL()}
	s.ok("", "topic create orders --replicas 1 --partitions 2 --retention 1h", "2 partitions, 1 copy each")
	s.fails("topic update orders", "nothing changed", "--partitions")
	s.ok("", "topic update orders --partitions 2 --retention 1h", "nothing changed, it was so already")
	s.ok("", "topic update orders --partitions 3 --retention 1h", "topic orders changed")
	s.ok("", "topic update orders --max-message-bytes 2048", "changed")
	s.ok("", "topic update orders --max-message-bytes 2048", "nothing changed")
	s.fails("topic update orders --max-message-bytes 10", "is 10; it may be 1024 to 1048576", "18 bytes")
	s.fails("topic update nothing --partitions 1", "does not exist")
	s.ok("", "subscription create orders/mail --ack-deadline 1m")
	s.fails("subscription update orders/mail", "nothing changed", "--ack-deadline")
	s.ok("", "subscription update orders/mail --ack-deadline 1m", "nothing changed, it was so already")
	s.ok("", "subscription update orders/mail --ack-deadline 2m", "subscription orders/mail changed")
	s.ok("one\n", "pub orders", "published 1 message to")
	s.fails("fetch orders --offset 9", "the next one gets offset")
	s.fails("topic get order", `did you mean "orders"?`, "tapedeck topic list")
	(shell{t, strings.Replace(s.server, "http:", "https:", 1)}).fails("topic list", "nodes speak plain HTTP")
}
