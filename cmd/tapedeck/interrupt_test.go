package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asProgram makes the test's binary be tapedeck itself, for what only a process shows.
const asProgram = "TAPEDECK_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// program starts tapedeck as a process and gives the lines that it prints.
func program(t *testing.T, in io.Reader, args ...string) (*exec.Cmd, *bufio.Scanner, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	errs := new(bytes.Buffer)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+t.TempDir())
	cmd.Stdin, cmd.Stderr = in, errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out), errs
}

func TestTwoSignalsLeaveNoFolderBehind(t *testing.T) {
	cmd, out, errs := program(t, nil, "dev", "--nodes", "1", "--listen", "127.0.0.1:0")
	if !out.Scan() {
		t.Fatalf("dev does not get ready: %s", errs)
	}
	var temp string
	for _, v := range cmd.Env {
		if dir, ok := strings.CutPrefix(v, "TMPDIR="); ok {
			temp = dir
		}
	}
	made := func() []string {
		found, err := filepath.Glob(filepath.Join(temp, "tapedeck-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(made()) != 1 {
		t.Fatalf("folders are %v", made())
	}
	for range 2 {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for out.Scan() {
	}
	_ = cmd.Wait() // how it ends depends on whether the first signal was enough
	if cmd.ProcessState.ExitCode() < 0 {
		t.Errorf("it was killed: %v", cmd.ProcessState)
	}
	if left := made(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPubEndsWithItsFirstSignal(t *testing.T) {
	s := shell{t, startTestCluster(t, 1, "").nodes[0].URL()}
	s.ok("", "topic create orders --replicas 1")
	in, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	defer in.Close()
	cmd, out, errs := program(t, in, "pub", "orders", "--json", "--server", s.server)
	if _, err := write.WriteString("one\n"); err != nil {
		t.Fatal(err)
	}
	if !out.Scan() {
		t.Fatalf("nothing was published: %s", errs)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for out.Scan() {
	}
	_ = cmd.Wait()
	code := cmd.ProcessState.ExitCode()
	if code != 1 || !strings.Contains(errs.String(), "1 message published, then: interrupted") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestWhatWaitsForInputEndsWithItsContext(t *testing.T) {
	in, write := io.Pipe()
	defer write.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "IDENTITY"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code := run(ctx, []string{"node", "rebuild", "--data", dir}, &stdio{in, &out, &out})
	if code != 1 || !strings.Contains(out.String(), "nothing was changed: interrupted") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

func TestSignals(t *testing.T) {
	signals := make(chan os.Signal, 2)
	var did []string
	signals <- syscall.SIGTERM
	signals <- syscall.SIGINT
	heed(signals, func() { did = append(did, "stop") }, func() { did = append(did, "abort") })
	if strings.Join(did, " ") != "stop abort" {
		t.Errorf("did %v", did)
	}
	did = nil
	signals <- syscall.SIGTERM
	close(signals)
	heed(signals, func() { did = append(did, "stop") }, func() { did = append(did, "abort") })
	if strings.Join(did, " ") != "stop" {
		t.Errorf("did %v", did)
	}
}

func TestTemporaryFoldersAreRemovedOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var f folders
	a, err := f.make("a-")
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.make("b-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.remove(a); err != nil || len(f.paths) != 1 {
		t.Errorf("%v, left are %v", err, f.paths)
	}
	f.removeAll()
	for _, dir := range []string{a, b} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
}
