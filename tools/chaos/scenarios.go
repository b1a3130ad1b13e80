package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
)

// smallDisk is the size of the file system that is filled.
const smallDisk = 200 << 20

// smallFlags make nodes think of the small disk as one of usual size.
func smallFlags() []string {
	return []string{"--disk-low", "48MiB", "--disk-high", "64MiB", "--segment-size", "4MiB"}
}

// random breaks things by the seed for the time given.
func (s *stage) random(ctx context.Context) error {
	var small string
	if s.tmpfs {
		small = filepath.Join(s.dir, "small")
		if undo, err := mountTmpfs(small, smallDisk); err == nil {
			s.undo = append(s.undo, undo)
		} else {
			s.say("no disk is filled: %v", err)
			small = ""
		}
	}
	c, err := s.cluster(ctx, s.nodes, smallFlags()...)
	if err != nil {
		return err
	}
	cfg := loadConfig{producers: 4, rate: s.rate, size: 400, replicas: uint32(s.nodes), consumers: 2,
		seeker: true, reader: true, restarts: true}
	if small != "" {
		c.nodes[len(c.nodes)-1].data = filepath.Join(small, "data")
		// The small disk must hold what is not yet dropped.
		cfg.retention = 8 << 20
	}
	l, err := s.begin(ctx, c, cfg)
	if err != nil {
		return err
	}
	n := s.nemesis(l, c)
	if small != "" {
		n.full = c.nodes[len(c.nodes)-1]
	}
	breaking, cancel := context.WithTimeout(ctx, s.time)
	defer cancel()
	if err := n.run(breaking); err != nil {
		return err
	}
	return s.end(ctx, l, n)
}

// steady is a load without clients that end.
func (s *stage) steady(replicas, consumers int) loadConfig {
	return loadConfig{producers: 4, rate: s.rate, size: 400, replicas: uint32(replicas), consumers: consumers,
		reader: true}
}

// begin starts nodes and load, and waits until messages flow.
func (s *stage) begin(ctx context.Context, c *cluster, cfg loadConfig) (*load, error) {
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	l, err := s.load(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	s.say("%d nodes, %d partitions of %d replicas, %d producers at %d messages/s", len(c.nodes), partitions,
		cfg.replicas, cfg.producers, cfg.rate)
	return l, nil
}

// load starts a load on a running cluster and waits until messages flow.
func (s *stage) load(ctx context.Context, c *cluster, cfg loadConfig) (*load, error) {
	l := newLoad(cfg, c, s.seed)
	if err := l.define(ctx); err != nil {
		return nil, err
	}
	s.history = func() error { return l.keepHistory(s.dir) }
	l.start()
	s.undo = append(s.undo, func() { l.stopWriters(); l.stopReaders() })
	return l, l.awaitProgress(ctx, time.Minute)
}

// end heals, stops the load, judges and prints.
func (s *stage) end(ctx context.Context, l *load, n *nemesis) error {
	if err := n.c.awaitWhole(ctx, wholePatience, nil); err != nil {
		return err
	}
	s.say("all healed; reading to the end")
	o, err := l.finish(ctx, s.dir)
	if err != nil {
		return err
	}
	s.say("read back through every node: %d messages", o.read)
	print(l, n, o)
	if err := n.c.dead(); err != nil {
		o.problem("%v", err)
	}
	if len(o.problems) > 0 {
		return errors.New("FAILED\n  " + strings.Join(o.problems, "\n  "))
	}
	for _, x := range n.c.nodes {
		if err := x.stop(); err != nil {
			return err
		}
	}
	fmt.Println("ok")
	return nil
}

// print shows what a run did and found.
func print(l *load, n *nemesis, o *outcome) {
	var kinds []string
	for _, f := range faults {
		if k := n.counts[f.name]; k > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %d", f.name, k))
		}
	}
	for _, name := range []string{"flip refused"} {
		if k := n.counts[name]; k > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %d", name, k))
		}
	}
	if len(kinds) > 0 {
		fmt.Println("faults:", strings.Join(kinds, ", "))
	}
	fmt.Printf("acknowledged %d · lost %d · duplicates %d · order violations %d\n",
		o.acked, o.lost, o.duplicates, o.disorder)
	if o.trimmed > 0 {
		fmt.Printf("taken by retention since: %d\n", o.trimmed)
	}
	fmt.Printf("not acknowledged %d %v, delivered to subscribers %d, in the logs %d\n",
		l.failed.Load(), l.failures, l.delivered.Load(), o.read)
	fmt.Printf("errors answered: %v; calls noted: %d\n", l.rec.reasons, len(l.rec.history.Ops))
	if len(n.failovers) > 0 {
		fmt.Printf("killed leaders: %d, longest time without an acknowledged publish p50 %d ms, max %d ms\n",
			len(n.failovers), percentile(n.failovers, 50).Milliseconds(), percentile(n.failovers, 100).Milliseconds())
	}
	if len(n.rebuilds) > 0 {
		var all rebuild
		for _, r := range n.rebuilds {
			all.bytes += r.bytes
			all.took += r.took
		}
		fmt.Printf("rebuilt nodes: %d, copied %s in %v, %s/s\n", len(n.rebuilds), size(all.bytes),
			all.took.Round(time.Millisecond), size(all.speed()))
	}
	fmt.Println("checkers:", o.report.Line())
}

// loseMachines takes nodes away for good, data and all, under load: as many as
// the topic survives.
func (s *stage) loseMachines(ctx context.Context, nodes, lost int) error {
	c, err := s.cluster(ctx, nodes)
	if err != nil {
		return err
	}
	l, err := s.begin(ctx, c, s.steady(nodes, 2))
	if err != nil {
		return err
	}
	n := s.nemesis(l, c)
	sleep(ctx, 5*time.Second)
	before, err := c.describe(ctx)
	if err != nil {
		return err
	}
	order := s.rng.Perm(nodes)
	var gone []*node
	identities := map[string]identity{}
	var measures []func()
	for _, i := range order[:lost] {
		x := c.nodes[i]
		gone = append(gone, x)
		identities[x.id] = identityOf(before, x.id)
		measures = append(measures, n.crash(ctx, x))
		if err := x.wipe(); err != nil {
			return err
		}
		s.say("rm -r the data of %s", x.id)
	}
	if err := l.awaitProgress(ctx, 30*time.Second); err != nil {
		return err
	}
	s.say("publishing goes on with %d of %d nodes", nodes-lost, nodes)
	sleep(ctx, 6*time.Second)
	if err := s.atRisk(ctx, c.nodes[order[nodes-1]], true); err != nil {
		return err
	}
	if err := n.replace(ctx, gone, identities); err != nil {
		return err
	}
	for _, m := range measures {
		m()
	}
	after, err := c.describe(ctx)
	if err != nil {
		return err
	}
	for _, x := range gone {
		s.say("%s is back: its replicas were %d, all %d are new ones", x.id, len(identities[x.id].replicas),
			len(identityOf(after, x.id).replicas))
	}
	if err := s.atRisk(ctx, c.nodes[order[nodes-1]], false); err != nil {
		return err
	}
	sleep(ctx, 3*time.Second)
	return s.end(ctx, l, n)
}

// atRisk asks GetTopic and expects an answer; it may take a moment to become true.
func (s *stage) atRisk(ctx context.Context, n *node, want bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		t, err := n.client.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: topicName})
		if err == nil && t.GetDurability().GetAtRisk() == want {
			s.say("GetTopic says at_risk %v", want)
			return nil
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("GetTopic does not say at_risk %v: %v, %w", want, t.GetDurability(), err)
		}
	}
}

// killLeader kills whoever leads most partitions, again and again, and wants
// publishing to go on within failoverBound.
func (s *stage) killLeader(ctx context.Context) error {
	c, err := s.cluster(ctx, s.nodes)
	if err != nil {
		return err
	}
	l, err := s.begin(ctx, c, s.steady(s.nodes, 1))
	if err != nil {
		return err
	}
	n := s.nemesis(l, c)
	for end := time.Now().Add(s.time); time.Now().Before(end) && ctx.Err() == nil; {
		sleep(ctx, 2*time.Second)
		most := c.nodes[0]
		for _, x := range c.nodes {
			if len(c.ledBy(ctx, x.id)) > len(c.ledBy(ctx, most.id)) {
				most = x
			}
		}
		n.counts["kill"]++
		measure := n.crash(ctx, most)
		sleep(ctx, 5*time.Second)
		if err := n.restore(ctx, most); err != nil {
			return err
		}
		measure()
		if err := c.awaitWhole(ctx, wholePatience, nil); err != nil {
			return err
		}
	}
	err = s.end(ctx, l, n)
	if worst := percentile(n.failovers, 100); worst > failoverBound {
		err = errors.Join(err, fmt.Errorf("publishing paused for %v; the bound is %v", worst, failoverBound))
	}
	return err
}

// failoverBound is how long publishing may pause when a leader dies.
const failoverBound = 3 * time.Second

// diskFull gives every node a small file system, fills them by publishing, and
// heals them by a change of retention, without restarting anything.
func (s *stage) diskFull(ctx context.Context) error {
	for i := range s.nodes {
		undo, err := mountTmpfs(filepath.Join(s.dir, fmt.Sprintf("small%d", i+1)), smallDisk)
		if err != nil {
			return err
		}
		s.undo = append(s.undo, undo)
	}
	c, err := s.cluster(ctx, s.nodes, smallFlags()...)
	if err != nil {
		return err
	}
	for i, x := range c.nodes {
		x.data = filepath.Join(s.dir, fmt.Sprintf("small%d", i+1), "data")
	}
	l, err := s.begin(ctx, c, loadConfig{producers: 4, rate: max(s.rate, 4000), size: 4000, replicas: uint32(s.nodes),
		consumers: 1, reader: true})
	if err != nil {
		return err
	}
	n := s.nemesis(l, c)
	n.counts["full"]++
	if err := s.awaitFull(ctx, l, c); err != nil {
		return err
	}
	before := l.delivered.Load()
	s.say("publishes are refused with DISK_FULL; reading goes on")
	reader := newRaw("", c.nodes[0].address)
	if _, messages, err := reader.readLog(ctx, 0); err != nil {
		return fmt.Errorf("reading from a full disk: %w", err)
	} else {
		s.say("read %d messages of partition 0 from its start", len(messages))
	}
	sleep(ctx, 3*time.Second)
	bytes := uint64(2 << 20)
	admin := l.newClient(false, c.addresses()...)
	defer admin.Close()
	change := &tapedeckv1.UpdateTopicRequest{Topic: topicName, RetentionBytes: &bytes}
	if _, err := admin.UpdateTopic(ctx, change); err != nil {
		return fmt.Errorf("change the retention of a full cluster: %w", err)
	}
	healing := time.Now()
	s.say("retention is now %s per partition", size(int64(bytes)))
	if err := l.awaitProgress(ctx, 90*time.Second); err != nil {
		return err
	}
	s.say("publishing goes on after %v, without a restart; delivered meanwhile %d",
		time.Since(healing).Round(time.Millisecond), l.delivered.Load()-before)
	return s.end(ctx, l, n)
}

// awaitFull waits until publishes are refused for lack of room.
func (s *stage) awaitFull(ctx context.Context, l *load, c *cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		l.rec.mu.Lock()
		seen := l.rec.reasons["DISK_FULL"]
		l.rec.mu.Unlock()
		if seen > 20 {
			return nil
		}
		if err := c.dead(); err != nil {
			return err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return errors.New("no publish was refused with DISK_FULL")
		}
	}
}

// flood publishes as fast as it goes with one follower stopped, and watches how
// much memory the nodes take.
func (s *stage) flood(ctx context.Context) error {
	c, err := s.cluster(ctx, s.nodes)
	if err != nil {
		return err
	}
	c.env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", floodLimit))
	l, err := s.begin(ctx, c, loadConfig{producers: 4, size: 8000, replicas: uint32(s.nodes)})
	if err != nil {
		return err
	}
	n := s.nemesis(l, c)
	stopped := c.nodes[len(c.nodes)-1]
	stopped.pause()
	s.say("%s is stopped (SIGSTOP); flooding the others", stopped.id)
	var mu sync.Mutex
	peak := map[string]int64{}
	end := time.Now().Add(s.time)
	for time.Now().Before(end) && sleep(ctx, 200*time.Millisecond) {
		for _, x := range c.nodes {
			mu.Lock()
			peak[x.id] = max(peak[x.id], residentBytes(x.process().cmd.Process.Pid))
			mu.Unlock()
		}
		if err := c.dead(); err != nil {
			return err
		}
	}
	acked := l.acked.Load()
	stopped.resume()
	s.say("flooded for %v: %d messages acknowledged, %d/s", s.time, acked, int64(float64(acked)/s.time.Seconds()))
	worst := int64(0)
	for _, x := range c.nodes {
		s.say("%s: at most %s resident", x.id, size(peak[x.id]))
		worst = max(worst, peak[x.id])
	}
	if worst > floodLimit {
		return fmt.Errorf("a node took %s; the limit is %s", size(worst), size(floodLimit))
	}
	s.say("limit %s: kept", size(floodLimit))
	return s.end(ctx, l, n)
}

// floodLimit is the memory that the nodes are configured with in a flood, and
// hold themselves to.
const floodLimit = 1 << 30
