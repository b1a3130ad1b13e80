//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tapedeck/tapedeck/bench"
)

// run starts three nodes, loads them, and looks at each round.
func (l *line) run(ctx context.Context, dir string, warmup, duration time.Duration, rounds int) (*bench.Result, error) {
	c := &cluster{dir: dir, logs: l.logs}
	defer c.stop()
	address, err := c.start()
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s := &sender{line: l, conn: conn, due: make([]time.Time, l.window), free: make(chan uint64, l.window),
		ack: bench.NewHistogram(), failed: make(chan error, 2)}
	for i := range l.window {
		s.free <- uint64(i)
	}
	work, stop := context.WithCancel(ctx)
	defer stop()
	go s.send(work)
	go s.hear(work)
	meter := bench.ProcessMeter(c.pids)
	r := &bench.Result{Name: l.name, Kind: "publish", Settings: fmt.Sprintf("%+v", *l)}
	for i := -1; i < rounds; i++ {
		s.swap()
		before, err := meter(ctx)
		if err != nil {
			return nil, err
		}
		began, self, length := time.Now(), bench.SelfCPU(), duration
		if i < 0 {
			length = warmup
		}
		select {
		case <-time.After(length):
		case err := <-s.failed:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		frames, ack := s.swap()
		took := time.Since(began).Seconds()
		after, err := meter(ctx)
		if err != nil {
			return nil, err
		}
		if i < 0 {
			continue
		}
		f := bench.Figures{Seconds: took, Messages: float64(frames) * float64(l.frame) / message, Ack: bench.LatencyOf(ack),
			NodesCPU: after.CPU - before.CPU, ClientCPU: bench.SelfCPU() - self}
		f.PerSecond = f.Messages / took
		f.MBps = f.PerSecond * message / 1e6
		f.PerNodesSecond, f.PerCoreSecond = f.Messages/f.NodesCPU, f.Messages/(f.NodesCPU+f.ClientCPU)
		f.WrittenPerAcked = (after.Written - before.Written) / (f.Messages * message)
		r.Rounds = append(r.Rounds, f)
	}
	r.Summarize()
	return r, nil
}

// cluster is three processes.
type cluster struct {
	dir  string
	logs int
	cmds []*exec.Cmd
}

func (c *cluster) start() (leader string, err error) {
	var followers []string
	for i := range 3 {
		args := []string{"node", "--dir", filepath.Join(c.dir, fmt.Sprint(i)), "--logs", fmt.Sprint(c.logs)}
		if i == 2 {
			args = append(args, "--followers", strings.Join(followers, ","))
		}
		cmd := exec.Command(os.Args[0], args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return "", err
		}
		if err := cmd.Start(); err != nil {
			return "", err
		}
		c.cmds = append(c.cmds, cmd)
		address, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("node %d did not start: %w", i, err)
		}
		followers, leader = append(followers, strings.TrimSpace(address)), strings.TrimSpace(address)
	}
	return leader, nil
}

func (c *cluster) pids() (pids []int) {
	for _, cmd := range c.cmds {
		pids = append(pids, cmd.Process.Pid)
	}
	return pids
}

func (c *cluster) stop() {
	for _, cmd := range c.cmds {
		_ = cmd.Process.Kill()
	}
	for _, cmd := range c.cmds {
		_ = cmd.Wait() // it was killed
	}
	_ = os.RemoveAll(c.dir)
}

// sender keeps the window full, or sends at a rate. A frame's number is its place in the window.
type sender struct {
	line   *line
	conn   net.Conn
	free   chan uint64
	failed chan error

	mu     sync.Mutex
	due    []time.Time
	ack    *hdrhistogram.Histogram
	frames int
}

func (s *sender) swap() (int, *hdrhistogram.Histogram) {
	fresh := bench.NewHistogram()
	s.mu.Lock()
	defer s.mu.Unlock()
	frames, ack := s.frames, s.ack
	s.frames, s.ack = 0, fresh
	return frames, ack
}

func (s *sender) send(ctx context.Context) {
	frame := make([]byte, headerBytes+s.line.frame)
	le.PutUint32(frame, uint32(s.line.frame))
	w := bufio.NewWriterSize(s.conn, 256<<10)
	pace := bench.NewPacer()
	defer pace.Close()
	began := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		at := time.Time{}
		if s.line.rate > 0 {
			at = began.Add(time.Duration(float64(n) / s.line.rate * 1e9))
			if time.Until(at) > 0 && w.Buffered() > 0 && w.Flush() != nil {
				return
			}
			pace.Until(at)
		}
		var place uint64
		select {
		case place = <-s.free:
		default:
			if w.Flush() != nil {
				return
			}
			select {
			case place = <-s.free:
			case <-ctx.Done():
				return
			}
		}
		if at.IsZero() {
			at = time.Now()
		}
		s.mu.Lock()
		s.due[place] = at
		s.mu.Unlock()
		le.PutUint32(frame[4:], uint32(n%s.line.parts))
		le.PutUint64(frame[8:], place)
		if _, err := w.Write(frame); err != nil {
			s.fail(ctx, err)
			return
		}
	}
}

func (s *sender) fail(ctx context.Context, err error) {
	if ctx.Err() == nil {
		s.failed <- errors.Join(errors.New("the connection to the leader broke"), err)
	}
}

func (s *sender) hear(ctx context.Context) {
	r := bufio.NewReader(s.conn)
	var answer [answerBytes]byte
	for {
		if _, err := io.ReadFull(r, answer[:]); err != nil {
			s.fail(ctx, err)
			return
		}
		place := le.Uint64(answer[4:])
		s.mu.Lock()
		bench.Note(s.ack, time.Since(s.due[place]))
		s.frames++
		s.mu.Unlock()
		s.free <- place
	}
}
