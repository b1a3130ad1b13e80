package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopPatience is how long a process may take to end after SIGTERM.
const stopPatience = 30 * time.Second

// process is one run of a program whose standard output tells when it is ready.
type process struct {
	cmd     *exec.Cmd
	began   time.Time
	ready   chan struct{} // closed at the wanted number of ready lines
	ended   chan struct{} // closed when it is gone
	err     error         // how it ended; after ended
	log     string        // file with its standard error
	logFrom int64         // where this run's part of the log begins
}

// startProcess runs a program. It counts as ready after the given number of
// lines that begin with "ready". A nil environment is this program's.
func startProcess(log string, readyLines int, env []string, name string, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := &process{cmd: exec.Command(name, args...), began: time.Now(), log: log,
		ready: make(chan struct{}), ended: make(chan struct{})}
	if at, err := file.Seek(0, io.SeekEnd); err == nil {
		p.logFrom = at
	}
	p.cmd.Stderr, p.cmd.Env = file, env
	p.cmd.SysProcAttr = childAttributes()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	var once sync.Once
	go func() {
		lines := bufio.NewScanner(out)
		for left := readyLines; lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "ready") {
				if left--; left == 0 {
					once.Do(func() { close(p.ready) })
				}
			}
		}
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// awaitReady waits until the process says that it is ready.
func (p *process) awaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.ended:
		return fmt.Errorf("it ended (%v): %s", p.err, p.lastWords())
	case <-ctx.Done():
		return fmt.Errorf("not ready after %v: %w", time.Since(p.began).Round(time.Millisecond), context.Cause(ctx))
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// stop ends the process gracefully; an error says that it had to be killed or
// that it failed.
func (p *process) stop() error {
	p.signal(syscall.SIGTERM)
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	select {
	case <-p.ended:
	case <-patience.C:
		p.kill()
		return fmt.Errorf("did not stop within %v of SIGTERM and was killed", stopPatience)
	}
	if p.err != nil {
		return fmt.Errorf("ended after SIGTERM with %w: %s", p.err, p.lastWords())
	}
	return nil
}

// alive says whether the process is still there.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// lastWords is the end of what this run wrote to its standard error.
func (p *process) lastWords() string {
	const most = 2000
	text := p.said()
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(bytes.TrimSpace(text))
}

// said is what this run wrote to its standard error.
func (p *process) said() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil || int64(len(text)) < p.logFrom {
		return nil
	}
	return text[p.logFrom:]
}
