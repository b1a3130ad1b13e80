package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// serve is one node of the cluster; it runs until it is killed.
func serve(args []string) error {
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	config := flags.String("config", "", "file")
	_ = flags.Parse(args) // it exits
	opts, err := server.ProcessConfigFile(*config)
	if err != nil {
		return err
	}
	opts.NoSigs = true
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

type cluster struct {
	dir, sync string
	urls      []string
	cmds      []*exec.Cmd
}

// configuration is a node's; sync is left out for the default.
const configuration = `
server_name: n%d
listen: %s
jetstream { store_dir: %q, max_file_store: 64GB %s }
cluster { name: bench, listen: %s, routes: [%s] }
`

func (c *cluster) start(ctx context.Context) error {
	ports, err := freePorts(6)
	if err != nil {
		return err
	}
	var routes []string
	for _, p := range ports[3:] {
		routes = append(routes, "nats://"+p)
	}
	extra := ""
	if c.sync == "always" {
		extra = ", sync_interval: always"
	}
	for i := range 3 {
		dir := filepath.Join(c.dir, fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		file := filepath.Join(c.dir, fmt.Sprintf("n%d.conf", i))
		text := fmt.Sprintf(configuration, i, ports[i], dir, extra, ports[3+i], strings.Join(routes, ", "))
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			return err
		}
		cmd := exec.Command(os.Args[0], "node", "--config", file)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		c.cmds = append(c.cmds, cmd)
		c.urls = append(c.urls, "nats://"+ports[i])
	}
	return c.await(ctx)
}

// await waits until a stream of three replicas can be made.
func (c *cluster) await(ctx context.Context) error {
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		nc, err := nats.Connect(strings.Join(c.urls, ","))
		if err != nil {
			last = err
			continue
		}
		js, err := nc.JetStream()
		if err == nil {
			err = makeStream(js, "probe", "probe")
		}
		nc.Close()
		if err == nil {
			return nil
		}
		last = err
	}
	return errors.Join(errors.New("the cluster did not come up"), last)
}

func makeStream(js nats.JetStreamContext, name, subject string) error {
	_, err := js.AddStream(&nats.StreamConfig{
		Name: name, Subjects: []string{subject}, Replicas: 3, Storage: nats.FileStorage,
	})
	return err
}

func freePorts(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all are taken before any is given back
		out = append(out, l.Addr().String())
	}
	return out, nil
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
}
