package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	nodeCount = 3
	startTime = 20 * time.Second
)

// cluster is three serve processes.
type cluster struct {
	binary, dir string
	addresses   [nodeCount]string

	mu   sync.Mutex
	cmds [nodeCount]*exec.Cmd
}

// startCluster finds free ports, starts the nodes and waits until they serve.
func startCluster(ctx context.Context, binary, dir string) (*cluster, error) {
	c := &cluster{binary: binary, dir: dir}
	for i := range nodeCount {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all are taken before any is given back
		c.addresses[i] = l.Addr().String()
		_ = l.Close()
	}
	var ready sync.WaitGroup
	errs := make([]error, nodeCount)
	for i := range nodeCount {
		ready.Go(func() { errs[i] = c.start(ctx, i) })
	}
	ready.Wait()
	for _, err := range errs {
		if err != nil {
			c.stop()
			return nil, err
		}
	}
	return c, nil
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// start starts a node and waits for it.
func (c *cluster) start(ctx context.Context, i int) error {
	var peers []string
	for j, a := range c.addresses {
		peers = append(peers, nodeName(j)+"="+a)
	}
	log, err := os.OpenFile(filepath.Join(filepath.Dir(c.dir), nodeName(i)+".log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.binary, "serve", "--id", nodeName(i), "--data", filepath.Join(c.dir, nodeName(i)),
		"--listen", c.addresses[i], "--peers", strings.Join(peers, ","))
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.mu.Lock()
	c.cmds[i] = cmd
	c.mu.Unlock()
	said := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "ready") {
			err = fmt.Errorf("it said %q", line)
		}
		said <- err
	}()
	select {
	case err = <-said:
	case <-time.After(startTime):
		err = fmt.Errorf("not ready within %v", startTime)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("start node %s: %w; see %s", nodeName(i), err, log.Name())
	}
	return nil
}

// kill ends a node the hard way.
func (c *cluster) kill(_ context.Context, node string) error {
	i := c.index(node)
	if i < 0 {
		return fmt.Errorf("no node is called %q", node)
	}
	c.mu.Lock()
	cmd := c.cmds[i]
	c.cmds[i] = nil
	c.mu.Unlock()
	if cmd == nil {
		return fmt.Errorf("node %s does not run", node)
	}
	err := cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return err
}

func (c *cluster) restore(ctx context.Context, node string) error { return c.start(ctx, c.index(node)) }

func (c *cluster) index(node string) int {
	for i := range nodeCount {
		if nodeName(i) == node {
			return i
		}
	}
	return -1
}

func (c *cluster) pids() (pids []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.cmds {
		if cmd != nil {
			pids = append(pids, cmd.Process.Pid)
		}
	}
	return pids
}

func (c *cluster) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.cmds {
		if cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}
	}
}
