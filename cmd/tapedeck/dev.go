package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/node"
	"github.com/tapedeck/tapedeck/node/live"
)

// devCmd runs a cluster in this process.
type devCmd struct {
	nodeFlags `set:"log_level=warn"`
	Nodes     int    `help:"Number of nodes." default:"3"`
	Data      string `help:"${dev_data_help}" placeholder:"DIR"`
	Listen    string `help:"Address of the first node; the others take the ports after it." default:"127.0.0.1:7070"`
}

// maxDevNodes bounds a cluster in one process.
const maxDevNodes = 9

// Run serves until ctx ends or a node fails.
func (c *devCmd) Run(ctx context.Context, std *stdio) error {
	tuneMemory()
	if c.Nodes < 1 || c.Nodes > maxDevNodes {
		return fmt.Errorf("--nodes: %d is not between 1 and %d", c.Nodes, maxDevNodes)
	}
	if c.Data != "" {
		if err := c.fit(); err != nil {
			return err
		}
	}
	addresses, err := consecutive(c.Listen, c.Nodes)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if left := c.leftOut(); len(left) > 0 {
		fmt.Fprintf(std.Err, "%s also holds the data of %s, which --nodes %d does not start: they count as down; "+
			"--nodes %d starts them\n", c.Data, strings.Join(left, ", "), c.Nodes, c.Nodes+len(left))
	}
	origins := c.AllowedOrigin
	if len(origins) == 0 {
		origins = []string{"localhost"}
	}
	cl, err := startCluster(addresses, clusterData{c.Data, c.Journal}, origins, c.logger(std.Err))
	if err != nil {
		return err
	}
	if err := cl.waitReady(ctx); err != nil {
		if ctx.Err() != nil {
			return cl.stop(c.DrainTimeout) // stopped before it was ready: no failure
		}
		return errors.Join(err, cl.stop(c.DrainTimeout))
	}
	for _, n := range cl.nodes {
		fmt.Fprintln(std.Out, "ready", n.URL())
	}
	select {
	case <-ctx.Done():
		return cl.stop(c.DrainTimeout)
	case n := <-cl.failed:
		return errors.Join(fmt.Errorf("node %s stopped: %w", n.ID(), n.Failure()), cl.stop(c.DrainTimeout))
	}
}

// fit refuses a folder that is a node's own, and folders in it that are nobody's.
func (c *devCmd) fit() error {
	if err := notSetAside(c.Data); err != nil {
		return err
	}
	if kind, _, err := folderKind(c.Data); err != nil || kind == node.NodeFolder {
		return cmp.Or(err, fmt.Errorf("--data: %s is the folder of one node, which serve starts; "+
			"name another one, in which each node gets a folder", c.Data))
	}
	for i := range c.Nodes {
		if err := fitForNode(filepath.Join(c.Data, fmt.Sprintf("n%d", i+1))); err != nil {
			return err
		}
	}
	return nil
}

// leftOut are the nodes that have data in the folder and are not started.
func (c *devCmd) leftOut() []string {
	if c.Data == "" {
		return nil
	}
	return slices.DeleteFunc(nodeFolders(c.Data), func(name string) bool {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "n"))
		return err == nil && n <= c.Nodes
	})
}

// consecutive lists count addresses from the given one on, by port; with port 0
// all are free ones.
func consecutive(first string, count int) ([]string, error) {
	host, portText, err := net.SplitHostPort(first)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port > 0 && port+uint64(count) > 1<<16 {
		return nil, fmt.Errorf("%q: the ports must be numbers up to 65535", first)
	}
	out := make([]string, count)
	for i := range out {
		if at := port; at != 0 {
			at += uint64(i)
			out[i] = net.JoinHostPort(host, strconv.FormatUint(at, 10))
		} else {
			out[i] = net.JoinHostPort(host, "0")
		}
	}
	return out, nil
}

// cluster is several nodes in this process.
type cluster struct {
	nodes  []*localNode
	failed chan *localNode
	temp   string // removed by stop; empty: none
	down   map[*localNode]bool
	done   chan struct{} // closed by stop
}

// clusterData is where the nodes of a cluster keep their data, and by which engine.
type clusterData struct {
	dir     string // empty: a temporary folder
	journal string
}

// startCluster starts one node per address, with data in folders of data's.
func startCluster(addresses []string, data clusterData, origins []string, log *slog.Logger) (_ *cluster, err error) {
	c := &cluster{failed: make(chan *localNode, len(addresses)), down: map[*localNode]bool{}, done: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop(time.Second))
		}
	}()
	dir := data.dir
	if dir == "" {
		if c.temp, err = temporary.make("tapedeck-"); err != nil {
			return nil, fmt.Errorf("make a temporary folder: %w", err)
		}
		dir = c.temp
	}
	// All ports are taken before the first node starts, since each must know all addresses.
	listeners := make([]net.Listener, 0, len(addresses))
	peers := make([]model.Node, 0, len(addresses))
	for i, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			closeAll(listeners)
			return nil, fmt.Errorf("%w; choose other ports with --listen", err)
		}
		listeners = append(listeners, l)
		peers = append(peers, model.Node{ID: model.NodeID(fmt.Sprintf("n%d", i+1)), Address: l.Addr().String()})
	}
	for i, l := range listeners {
		n, err := startNode(live.Config{
			ID: peers[i].ID, Peers: peers, Listener: l, AllowedOrigins: origins, Log: log,
		}, filepath.Join(dir, string(peers[i].ID)), data.journal)
		if err != nil {
			closeAll(listeners[i:])
			return nil, err
		}
		c.nodes = append(c.nodes, n)
		go func() {
			select {
			case <-n.Failed():
				c.failed <- n
			case <-c.done:
			}
		}()
	}
	return c, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

func (c *cluster) waitReady(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// kill ends one node as if its process had been killed.
func (c *cluster) kill(n *localNode) {
	c.down[n] = true
	n.kill()
}

// stop ends all nodes together and removes a temporary folder; once.
func (c *cluster) stop(within time.Duration) error {
	select {
	case <-c.done:
		return nil
	default:
		close(c.done)
	}
	errs := make([]error, len(c.nodes))
	var all sync.WaitGroup
	for i, n := range c.nodes {
		if !c.down[n] {
			all.Go(func() { errs[i] = n.shutdown(within) })
		}
	}
	all.Wait()
	if c.temp != "" {
		errs = append(errs, temporary.remove(c.temp))
	}
	return errors.Join(errs...)
}
