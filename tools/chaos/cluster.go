package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

// readyPatience is how long a node may take to know a leader of meta.
const readyPatience = 60 * time.Second

// cluster is serve processes on ports of this machine.
type cluster struct {
	bin   string
	dir   string
	flags []string // further flags of serve
	env   []string // of the nodes; nil: this program's
	// profiles are served by each node at its port plus 10000.
	profiles bool
	nodes    []*node
}

// node is one member of the cluster, whichever process runs it at the moment.
type node struct {
	c       *cluster
	id      string
	address string
	data    string
	client  *client.Client // asks this node alone

	mu   sync.Mutex
	proc *process // nil: never started
	want bool     // it is meant to be running
}

// newCluster chooses ports; nothing runs yet.
func newCluster(bin, dir string, count int, rng *rand.Rand, flags ...string) (*cluster, error) {
	c := &cluster{bin: bin, dir: dir, flags: flags}
	ports, err := freePorts(count, rng)
	if err != nil {
		return nil, err
	}
	for i, port := range ports {
		n := &node{c: c, id: fmt.Sprintf("n%d", i+1), address: fmt.Sprintf("127.0.0.1:%d", port)}
		n.data = filepath.Join(dir, n.id)
		if n.client, err = client.New(client.Config{
			Addresses: []string{n.address}, NoDirect: true, CallTimeout: 2 * time.Second,
		}); err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

// freePorts chooses ports below the range that the system gives to outgoing
// connections: one of those could take a port while its node is down.
func freePorts(count int, rng *rand.Rand) ([]int, error) {
	var ports []int
	for range 1000 {
		port := 20000 + rng.IntN(10000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil || slices.Contains(ports, port) {
			continue
		}
		_ = l.Close()
		if ports = append(ports, port); len(ports) == count {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports between 20000 and 30000")
}

// addresses of all nodes.
func (c *cluster) addresses() []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.address)
	}
	return all
}

func (c *cluster) peers() string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.id+"="+n.address)
	}
	return strings.Join(all, ",")
}

// start runs every node and waits until each is ready.
func (c *cluster) start(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := n.launch(); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := n.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop kills whatever still runs.
func (c *cluster) stop() {
	for _, n := range c.nodes {
		n.kill()
	}
}

// launch starts the node's process.
func (n *node) launch() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	args := append([]string{"serve", "--id", n.id, "--data", n.data, "--listen", n.address,
		"--peers", n.c.peers(), "--log-level", "info"}, n.c.flags...)
	if n.c.profiles {
		host, port, _ := strings.Cut(n.address, ":")
		args = append(args, "--pprof", host+":3"+port[1:])
	}
	p, err := startProcess(filepath.Join(n.c.dir, n.id+".log"), 1, n.c.env, n.c.bin, args...)
	if err != nil {
		return err
	}
	n.proc, n.want = p, true
	return nil
}

func (n *node) process() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

func (n *node) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	if err := n.process().awaitReady(ctx); err != nil {
		return fmt.Errorf("node %s: %w", n.id, err)
	}
	return nil
}

// start launches the node and waits until it is ready.
func (n *node) start(ctx context.Context) error {
	if err := n.launch(); err != nil {
		return err
	}
	return n.awaitReady(ctx)
}

// down notes that the node is not meant to run, and gives its process.
func (n *node) down() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.want = false
	return n.proc
}

// kill is kill -9; of a node that does not run it does nothing.
func (n *node) kill() {
	if p := n.down(); p != nil && p.alive() {
		p.kill()
	}
}

// stop is SIGTERM; of a node that has no process it does nothing.
func (n *node) stop() error {
	p := n.down()
	if p == nil {
		return nil
	}
	if err := p.stop(); err != nil {
		return fmt.Errorf("node %s %w", n.id, err)
	}
	return nil
}

func (n *node) pause()  { n.process().signal(syscall.SIGSTOP) }
func (n *node) resume() { n.process().signal(syscall.SIGCONT) }

// wipe removes the data of a node that does not run. The folder itself stays:
// it may be where a file system is mounted.
func (n *node) wipe() error {
	entries, err := os.ReadDir(n.data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(n.data, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// aside are the folders that node rebuild set aside in a node's data folder.
func (n *node) aside() ([]string, error) { return filepath.Glob(filepath.Join(n.data, "refused-*")) }

// removeAside removes them.
func (n *node) removeAside() error {
	aside, err := n.aside()
	if err != nil {
		return err
	}
	for _, dir := range aside {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// dead lists nodes that are meant to run and do not, with their last words.
func (c *cluster) dead() error {
	for _, n := range c.nodes {
		n.mu.Lock()
		p, want := n.proc, n.want
		n.mu.Unlock()
		if want && !p.alive() {
			return fmt.Errorf("node %s ended by itself (%v): %s", n.id, p.err, p.lastWords())
		}
	}
	return nil
}

// identity is what a node is in the cluster: its folder's id and its replicas.
type identity struct {
	disk     uint64
	replicas map[uint64]bool
}

func identityOf(s *tapedeckv1.GetClusterResponse, id string) identity {
	out := identity{replicas: map[uint64]bool{}}
	for _, n := range s.GetNodes() {
		if n.GetId() == id {
			out.disk = n.GetDisk()
		}
	}
	for _, g := range s.GetGroups() {
		for _, r := range g.GetReplicas() {
			if r.GetNode() == id {
				out.replicas[r.GetId()] = true
			}
		}
	}
	return out
}

// describe is the cluster as any node that answers knows it.
func (c *cluster) describe(ctx context.Context) (*tapedeckv1.GetClusterResponse, error) {
	var last error
	for _, n := range c.nodes {
		s, err := n.client.GetCluster(ctx)
		if err == nil && len(s.GetNodes()) > 0 {
			return s, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no node describes the cluster: %w", last)
}

// awaitWhole waits until every node says that all nodes are there and no group
// changes its members, and that the nodes in gone are new ones throughout.
func (c *cluster) awaitWhole(ctx context.Context, within time.Duration, gone map[string]identity) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		missing := c.missing(ctx, gone)
		if missing == "" {
			return nil
		}
		if err := c.dead(); err != nil {
			return err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the cluster is not whole after %v: %s", within, missing)
		}
	}
}

// missing says what keeps the cluster from being whole; empty: nothing.
func (c *cluster) missing(ctx context.Context, gone map[string]identity) string {
	for _, n := range c.nodes {
		s, err := n.client.GetCluster(ctx)
		if err != nil {
			return fmt.Sprintf("%s does not answer: %v", n.id, err)
		}
		if len(s.GetNodes()) != len(c.nodes) {
			return fmt.Sprintf("%s knows %d nodes", n.id, len(s.GetNodes()))
		}
		for _, other := range s.GetNodes() {
			if !other.GetReachable() && other.GetId() != n.id {
				return fmt.Sprintf("%s does not reach %s", n.id, other.GetId())
			}
		}
		for _, g := range s.GetGroups() {
			if g.GetChanging() {
				return fmt.Sprintf("%s says that group %d (%s/%d) changes its members",
					n.id, g.GetId(), g.GetTopic(), g.GetPartition())
			}
		}
		for id, old := range gone {
			now := identityOf(s, id)
			if now.disk == old.disk {
				return fmt.Sprintf("%s knows %s by its old folder", n.id, id)
			}
			for r := range now.replicas {
				if old.replicas[r] {
					return fmt.Sprintf("%s counts on replica %d of %s, which is gone", n.id, r, id)
				}
			}
			if len(now.replicas) < len(old.replicas) {
				return fmt.Sprintf("%s knows %d replicas on %s, there were %d", n.id, len(now.replicas), id, len(old.replicas))
			}
		}
	}
	return ""
}

// sleep waits; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// folderBytes is what the files below a folder take.
func folderBytes(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
