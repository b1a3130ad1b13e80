package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/journal"
	"github.com/tapedeck/tapedeck/node/live"
)

// restartable is a node of a test cluster that can be started again at its place.
type restartable struct {
	t       *testing.T
	dir     string
	journal string // engine; empty: own
	peers   []model.Node
	self    model.Node
}

func (r *restartable) start() (*localNode, error) {
	l, err := net.Listen("tcp", r.self.Address)
	if err != nil {
		r.t.Fatal(err)
	}
	n, err := startNode(live.Config{ID: r.self.ID, Peers: r.peers, Listener: l,
		Log: slog.New(slog.DiscardHandler)}, r.dir, cmp.Or(r.journal, journal.Own))
	if err != nil {
		_ = l.Close()
	}
	return n, err
}

// command is the command line that starts the node on a folder.
func (r *restartable) command(dir string) []string {
	var peers []string
	for _, p := range r.peers {
		peers = append(peers, string(p.ID)+"="+p.Address)
	}
	return []string{"serve", "--id", string(r.self.ID), "--data", dir, "--listen", r.self.Address,
		"--peers", strings.Join(peers, ","), "--log-level", "error"}
}

// serve runs the command serve until the test ends, and returns the node's URL once
// it is ready.
func (r *restartable) serve() string {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	in, out := io.Pipe()
	var errs bytes.Buffer
	exit := make(chan int, 1)
	go func() {
		code := run(ctx, r.command(r.dir), &stdio{strings.NewReader(""), out, &errs})
		_ = out.Close()
		exit <- code
	}()
	lines := bufio.NewScanner(in)
	ready := lines.Scan()
	if !ready {
		stop()
		r.t.Fatalf("serve ended with exit code %d: %s", <-exit, errs.String())
	}
	r.t.Cleanup(func() {
		stop()
		_, _ = io.Copy(io.Discard, in)
		if code := <-exit; code != 0 {
			r.t.Errorf("serve ended with exit code %d: %s", code, errs.String())
		}
	})
	return strings.TrimPrefix(lines.Text(), "ready ")
}

// lastOf takes a node of a cluster down and says how to start it again.
func lastOf(t *testing.T, c *cluster, dir string) *restartable {
	t.Helper()
	r := &restartable{t: t}
	for _, n := range c.nodes {
		r.self = model.Node{ID: n.ID(), Address: strings.TrimPrefix(n.URL(), "http://")}
		r.peers = append(r.peers, r.self)
	}
	r.dir = filepath.Join(dir, string(r.self.ID))
	c.kill(c.nodes[len(c.nodes)-1])
	return r
}

// journalFile is the first file of a journal, with more than a start in it.
func journalFile(t *testing.T, dir string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(filepath.Join(dir, "journal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || found != "" {
			return err
		}
		if info, err := d.Info(); err == nil && info.Size() > 200 {
			found = path
		}
		return nil
	})
	if err != nil || found == "" {
		t.Fatalf("no journal file in %s: %v", dir, err)
	}
	return found
}

func tapedeck(t *testing.T, in string, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	code = run(t.Context(), args, &stdio{strings.NewReader(in), &b, &b})
	return code, b.String()
}

func TestADamagedFolderExplainsItselfAndIsRebuilt(t *testing.T) {
	dir := t.TempDir()
	c := startTestCluster(t, 3, dir)
	call := caller{t, c.nodes[0].URL()}
	call.call("/v1/topics", `{"name":"orders","partitions":1}`)
	for range 5 {
		call.call("/v1/topics/orders/publish", `{"topic":"orders","messages":[{"payload":"dg=="}]}`)
	}
	n3 := lastOf(t, c, dir)
	file := journalFile(t, n3.dir)
	if code, said := tapedeck(t, "", "verify", "--data", n3.dir); code != 0 ||
		!strings.Contains(said, "Nothing is wrong") {
		t.Fatalf("%d %s", code, said)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[100] ^= 4
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, said := tapedeck(t, "", "verify", "--data", n3.dir); code != 1 ||
		!strings.Contains(said, "DAMAGED "+strings.TrimPrefix(file, n3.dir+"/")+" at byte ") {
		t.Fatalf("%d %s", code, said)
	}
	code, said := tapedeck(t, "", n3.command(n3.dir)...) // as a person would start it
	for _, want := range []string{file, "position: byte ", "cause: ", "tapedeck node rebuild --data " + n3.dir} {
		if code != 1 || !strings.Contains(said, want) {
			t.Fatalf("serve on a damaged folder: exit code %d, and without %q: %s", code, want, said)
		}
	}
	if code, said := tapedeck(t, "no\n", "node", "rebuild", "--data", n3.dir); code != 1 ||
		!strings.Contains(said, "nothing was changed") {
		t.Fatalf("%d %s", code, said)
	}
	if code, said := tapedeck(t, "", "node", "rebuild", "--data", n3.dir, "--yes"); code != 0 {
		t.Fatalf("%d %s", code, said)
	}
	aside := strings.Replace(file, n3.dir, filepath.Join(n3.dir, "refused-1"), 1)
	if got, err := os.ReadFile(aside); err != nil || !bytes.Equal(got, b) {
		t.Fatalf("the damaged file was not kept: %v", err)
	}
	asideIsNoNodes(t, n3)
	url := n3.serve()
	got := caller{t, url}.call("/v1/topics/orders/fetch", `{"topic":"orders","partition":0,"offset":"0"}`)
	if messages := got["messages"].([]any); len(messages) != 5 {
		t.Fatalf("fetched through the rebuilt node: %v", got)
	}
}

// asideIsNoNodes: what a rebuild set aside is still there, and taken for nothing else.
func asideIsNoNodes(t *testing.T, n *restartable) {
	t.Helper()
	aside := filepath.Join(n.dir, "refused-1")
	for _, args := range [][]string{
		n.command(aside),
		{"dev", "--nodes", "1", "--listen", "127.0.0.1:0", "--data", aside},
		{"node", "rebuild", "--yes", "--data", aside},
	} {
		if code, said := tapedeck(t, "", args...); code != 1 || !strings.Contains(said, "start the node with --data "+n.dir) {
			t.Errorf("%v: exit code %d, %s", args, code, said)
		}
	}
	for _, command := range [][]string{{"node", "rebuild", "--yes"}, {"verify"}} {
		if code, said := tapedeck(t, "", append(command, "--data", n.dir)...); code != 0 || !strings.Contains(said, "empty") {
			t.Errorf("%v after the rebuild: exit code %d, %s", command, code, said)
		}
	}
	if nodes := nodeFolders(n.dir); len(nodes) > 0 {
		t.Errorf("%v are taken for folders of nodes", nodes)
	}
}

func TestRebuildNeedsAStoppedNodeAndAFolder(t *testing.T) {
	dir := t.TempDir()
	startTestCluster(t, 1, dir)
	if code, said := tapedeck(t, "", "node", "rebuild", "--yes", "--data", filepath.Join(dir, "n1")); code != 1 ||
		!strings.Contains(said, "in use") {
		t.Fatalf("%d %s", code, said)
	}
	if code, said := tapedeck(t, "", "node", "rebuild", "--yes", "--data", filepath.Join(dir, "no")); code != 1 ||
		!strings.Contains(said, "no folder") {
		t.Fatalf("%d %s", code, said)
	}
}

// filesBelow are the names of all that is in a folder.
func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(name, dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestAFolderThatIsNoNodesIsLeftAlone: no command writes to, or takes for a node's,
// what is somebody else's.
func TestAFolderThatIsNoNodesIsLeftAlone(t *testing.T) {
	serve := []string{"serve", "--id", "n1", "--listen", "127.0.0.1:0", "--peers", "n1=127.0.0.1:1"}
	dev := []string{"dev", "--nodes", "1", "--listen", "127.0.0.1:0"}
	rebuild, verify := []string{"node", "rebuild", "--yes"}, []string{"verify"}
	for _, c := range []struct {
		files []string // below the folder
		args  []string
		says  string
	}{
		{[]string{"letter.txt"}, serve, "it holds letter.txt and nothing of a node; give the node an empty folder"},
		{[]string{"lost+found/", ".profile"}, serve, "it holds .profile"},
		{[]string{"LOCK", "photos/IDENTITY.txt"}, serve, "it holds photos"},
		{[]string{"n1/IDENTITY", "n2/IDENTITY"}, serve, "holds those of n1, n2"},
		{[]string{"letter.txt"}, rebuild, "it holds letter.txt and nothing of a node"},
		{[]string{"letter.txt"}, verify, "is no node's folder: it holds letter.txt"},
		{[]string{"lost+found/"}, verify, "is no node's folder: it is empty"},
		{[]string{}, verify, "is no node's folder: it is empty"},
		{[]string{}, rebuild, "is no node's folder: it is empty"},
		{[]string{"n1/IDENTITY"}, verify, "holds those of n1"},
		{[]string{"IDENTITY"}, dev, "is the folder of one node"},
		{[]string{"n1/letter.txt"}, dev, "it holds letter.txt"},
	} {
		dir := t.TempDir()
		for _, name := range c.files {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o750); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "/") {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before := filesBelow(t, dir)
		code, said := tapedeck(t, "", append(slices.Clone(c.args), "--data", dir)...)
		if code != 1 || !strings.Contains(said, c.says) {
			t.Errorf("%v on %v: exit code %d, without %q: %s", c.args, c.files, code, c.says, said)
		}
		if after := filesBelow(t, dir); !slices.Equal(before, after) {
			t.Errorf("%v on %v left %v", c.args, c.files, after)
		}
	}
}

// A mounted file system's folder is as good as an empty one, and stays one.
func TestANodeBeginsWhereAFileSystemIsMounted(t *testing.T) {
	dir := t.TempDir()
	mounted := filepath.Join(dir, "n1", "lost+found")
	if err := os.MkdirAll(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	n := lastOf(t, startTestCluster(t, 1, dir), dir)
	if code, said := tapedeck(t, "", "node", "rebuild", "--yes", "--data", n.dir); code != 0 {
		t.Fatalf("%d %s", code, said)
	}
	if _, err := os.Stat(mounted); err != nil {
		t.Error(err)
	}
	n.serve()
}

// TestEitherJournalEngineGoesOnWithTheOthersFolder: one node, started four times
// with the engines in turns, stopped and killed. What was acknowledged is there
// each time, and more is taken.
func TestEitherJournalEngineGoesOnWithTheOthersFolder(t *testing.T) {
	dir := t.TempDir()
	c := startTestCluster(t, 1, dir)
	caller{t, c.nodes[0].URL()}.call("/v1/topics", `{"name":"orders","partitions":1,"replicas":1}`)
	n := lastOf(t, c, dir)
	for i, engine := range []string{journal.Tidwall, journal.Own, journal.Tidwall, journal.Own} {
		n.journal = engine
		node, err := n.start()
		if err != nil {
			t.Fatalf("start %d with %s: %v", i, engine, err)
		}
		if err := node.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		call := caller{t, node.URL()}
		call.call("/v1/topics/orders/publish", `{"topic":"orders","messages":[{"payload":"dg=="}]}`)
		got := call.call("/v1/topics/orders/fetch", `{"topic":"orders","partition":0,"offset":"0"}`)
		if messages := got["messages"].([]any); len(messages) != i+1 {
			t.Fatalf("start %d with %s: fetched %v", i, engine, got)
		}
		if i%2 == 0 {
			node.kill()
		} else if err := node.shutdown(10 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if code, said := tapedeck(t, "", "verify", "--data", n.dir); code != 0 {
		t.Fatalf("%d %s", code, said)
	}
	n.journal = "nonsense"
	if _, err := n.start(); err == nil || !strings.Contains(err.Error(), "choose own or tidwall") {
		t.Fatalf("an engine that does not exist: %v", err)
	}
}
