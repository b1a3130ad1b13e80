package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// shell runs commands the way main does.
type shell struct {
	t      *testing.T
	server string
}

// run gives what a command printed, its errors included, and its exit code.
func (s shell) run(in string, args ...string) (out string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	args = append(args, "--server", s.server)
	code = run(ctx, args, &stdio{strings.NewReader(in), &stdout, &stderr})
	return stdout.String() + stderr.String(), code
}

// ok expects success and these texts in the output.
func (s shell) ok(in, args string, wants ...string) string {
	s.t.Helper()
	out, code := s.run(in, strings.Fields(args)...)
	if code != 0 {
		s.t.Fatalf("%s: exit code %d:\n%s", args, code, out)
	}
	for _, want := range wants {
		if !strings.Contains(out, want) {
			s.t.Errorf("%s: no %q in:\n%s", args, want, out)
		}
	}
	return out
}

// fails expects exit code 1 and these texts in the output.
func (s shell) fails(args string, wants ...string) {
	s.t.Helper()
	out, code := s.run("", strings.Fields(args)...)
	if code != 1 {
		s.t.Errorf("%s: exit code %d, not 1:\n%s", args, code, out)
	}
	for _, want := range wants {
		if !strings.Contains(out, want) {
			s.t.Errorf("%s: no %q in:\n%s", args, want, out)
		}
	}
}

// lines are the lines printed, without order between partitions.
func lines(out string) map[string]bool {
	set := map[string]bool{}
	for l := range strings.Lines(out) {
		set[strings.TrimSpace(l)] = true
	}
	return set
}

func TestCommandsOfAPersonsFirstHour(t *testing.T) {
	s := shell{t, startTestCluster(t, 3, "").nodes[0].URL()}
	s.ok("", "topic create orders --partitions 2", "topic orders: 2 partitions")
	s.ok("", "topic create orders --partitions 2")
	s.ok("", "topic list", "orders", "168h")
	s.ok("", "topic get orders", "survives the loss of 1", "PARTITION")
	s.ok("ann:one\nbob:two\nann:three\n", "pub orders --key-separator :", "published 3 messages to orders")

	s.fails("sub orders/mail", "orders/mail", "tapedeck subscription create")
	first := s.ok("", "sub orders/mail --create")
	if got := lines(first); len(got) != 3 || !strings.Contains(first, "\tann\tone\n") {
		t.Errorf("sub printed:\n%s", first)
	}
	if again := s.ok("", "sub orders/mail"); again != "" {
		t.Errorf("what was acknowledged is printed again:\n%s", again)
	}
	s.ok("", "subscription get orders/mail", "orders/mail", "CURSOR")
	if replay := s.ok("", "sub orders/mail --seek earliest"); fmt.Sprint(lines(replay)) != fmt.Sprint(lines(first)) {
		t.Errorf("replay printed:\n%s\nnot:\n%s", replay, first)
	}
	if replay := s.ok("", "sub orders/mail --seek 1h --max 2"); len(lines(replay)) != 2 {
		t.Errorf("two messages of an hour:\n%s", replay)
	}
	if rest := s.ok("", "sub orders/mail"); len(lines(rest)) != 1 {
		t.Errorf("the rest:\n%s", rest)
	}
	s.ok("", "subscription seek orders/mail 0", "PARTITION")
	s.ok("", "subscription seek orders/mail latest")
	s.ok("", "subscription create orders/audit --from latest")
	s.ok("", "subscription update orders/audit --ack-deadline 1m")
	s.ok("", "subscription list orders", "orders/audit", "orders/mail", "1m0s")
	s.ok("", "subscription describe orders/audit", "lag")
	s.ok("", "subscription delete orders/audit", "deleted")
	s.ok("", "topic update orders --retention 1h --partitions 3")
	s.ok("", "topic get orders", "1h0m0s")
	s.ok("", "cluster status --groups", "n1", "n3", "meta", "orders/2")
	s.fails("topic delete orders", "force")
	s.ok("", "topic delete orders --force", "deleted")
	s.fails("topic get orders", "tapedeck topic list")
}

func TestJSONIsForScripts(t *testing.T) {
	s := shell{t, startTestCluster(t, 1, "").nodes[0].URL()}
	s.ok("", "topic create orders --replicas 1 --json", `"mapVersion"`)
	out := s.ok("one\n", "pub orders --key k --attribute a=b --json")
	if out != `{"partition":0,"offset":0}`+"\n" {
		t.Errorf("pub printed %s", out)
	}
	s.ok("\xff\xfe\n", "pub orders --partition 0 --compression zstd")
	out = s.ok("", "fetch orders --json --max 5")
	var got []messageLine
	for l := range strings.Lines(out) {
		var m messageLine
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		got = append(got, m)
	}
	if len(got) != 2 || *got[0].Key != "k" || *got[0].Payload != "one" || got[0].Attributes["a"] != "b" ||
		got[1].Payload != nil || string(got[1].PayloadBase64) != "\xff\xfe" || got[1].AppendTime.IsZero() {
		t.Errorf("fetch printed %s", out)
	}
	var topic struct {
		Name       string
		Partitions []struct{ LogStart, HighWatermark string }
	}
	if err := json.Unmarshal([]byte(s.ok("", "topic get orders --json")), &topic); err != nil {
		t.Fatal(err)
	}
	if topic.Partitions[0].LogStart != "0" || topic.Partitions[0].HighWatermark != "2" {
		t.Errorf("topic get: %+v", topic)
	}
	s.ok("", "sub orders/mail --create --json --max 1", `"offset":0`)
}

func TestFollowPrintsWhatComes(t *testing.T) {
	s := shell{t, startTestCluster(t, 3, "").nodes[2].URL()}
	s.ok("", "topic create orders")
	s.ok("", "subscription create orders/mail")
	done := make(chan string, 1)
	go func() {
		out, code := s.run("", "sub", "orders/mail", "--follow", "--max", "3")
		done <- fmt.Sprint(code, "\n", out)
	}()
	s.ok("one\n", "pub orders")
	s.ok("two\nthree\n", "pub orders")
	if out := <-done; out != "0\n0/0\t\tone\n0/1\t\ttwo\n0/2\t\tthree\n" {
		t.Errorf("sub --follow printed:\n%s", out)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := shell{t, l.Addr().String()}
	_ = l.Close()
	nobody.fails("topic list", "no node answers at "+nobody.server, "tapedeck dev", "TAPEDECK_SERVER")
	nobody.fails("pub orders --timeout 1s", "tapedeck dev")
	(shell{t, "ftp://x"}).fails("topic list", "--server", "http://host:port")

	s := shell{t, startTestCluster(t, 1, "").nodes[0].URL()}
	s.fails("topic create orders", "replicas")
	s.fails("topic create Orders --replicas 1", "a-z 0-9")
	s.ok("", "topic create orders --replicas 1")
	s.fails("fetch orders --offset 9", "there is no message to read; the next one gets offset 0")
	s.fails("pub nothing", "tapedeck topic create")
	s.fails("subscription create orders", "TOPIC/NAME")
	s.fails("subscription create orders/mail --from yesterday", "10m")
	s.ok("", "subscription create orders/mail")
	s.fails("subscription seek orders/mail nowhere", "0:17,1:5")
	out, code := s.run("nokey\n", "pub", "orders", "--key-separator", ":")
	if code != 1 || !strings.Contains(out, "line 1") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if _, code := s.run("", "pub"); code != 2 {
		t.Errorf("exit code %d for a missing argument, not 2", code)
	}
}

func TestReadableKeepsTerminalsSafe(t *testing.T) {
	for in, want := range map[string]string{
		"plain é": "plain é", "tab\there": "tab\there", "\x1b[2J": `"\x1b[2J"`, "\xff": `"\xff"`, "": "",
	} {
		if got := readable([]byte(in)); got != want {
			t.Errorf("%q is shown as %q, not %q", in, got, want)
		}
	}
}

// Whoever publishes without a majority learns more than that the time is over.
func TestPublishingWithoutAMajoritySaysWhatIsMissing(t *testing.T) {
	c := startTestCluster(t, 3, "")
	s := shell{t, c.nodes[0].URL()}
	s.ok("", "topic create orders")
	c.kill(c.nodes[1])
	c.kill(c.nodes[2])
	out, code := s.run("lamp\n", "pub", "orders", "--timeout", "300ms")
	if code != 1 || !strings.Contains(out, "tapedeck cluster status") ||
		!strings.Contains(out, "NO_LEADER") && !strings.Contains(out, "most of the nodes may be down") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
