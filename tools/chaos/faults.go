package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
)

// wholePatience is how long a rebuilt node may take to be whole again.
const wholePatience = 3 * time.Minute

// nemesis breaks a cluster and heals it, one fault at a time.
type nemesis struct {
	l    *load
	c    *cluster
	rng  *rand.Rand
	say  func(format string, args ...any)
	full *node // the node on a small file system; nil: none

	faults    []fault
	counts    map[string]int
	failovers []time.Duration
	rebuilds  []rebuild
}

// rebuild is one copy of a node's data from the others.
type rebuild struct {
	bytes int64
	took  time.Duration
}

// fault is one thing that may happen. It leaves the cluster as it found it:
// every node running; what is still being copied is waited for.
type fault struct {
	name   string
	weight int
	do     func(n *nemesis, ctx context.Context) error
}

var faults = []fault{
	{"kill", 30, (*nemesis).killOne},
	{"pause", 15, (*nemesis).pauseOne},
	{"restart", 12, (*nemesis).restartOne},
	{"kill all", 5, (*nemesis).killAll},
	{"wipe", 8, (*nemesis).wipeOne},
	{"flip", 10, (*nemesis).flipOne},
	{"full", 8, (*nemesis).fillOne},
}

// run makes faults until ctx ends, and ends with all healed.
func (n *nemesis) run(ctx context.Context) error {
	total := 0
	for _, f := range n.faults {
		total += f.weight
	}
	if total == 0 {
		return errors.New("-faults names no kind of fault")
	}
	for sleep(ctx, 500*time.Millisecond+time.Duration(n.rng.Int64N(int64(2500*time.Millisecond)))) {
		at := n.rng.IntN(total)
		k := 0
		for ; at >= n.faults[k].weight; k++ {
			at -= n.faults[k].weight
		}
		f := n.faults[k]
		if f.name == "full" && n.full == nil {
			continue
		}
		n.counts[f.name]++
		// What has begun is healed even when the time is up.
		if err := f.do(n, context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := n.c.dead(); err != nil {
			return err
		}
	}
	return nil
}

func (n *nemesis) pick() *node { return n.c.nodes[n.rng.IntN(len(n.c.nodes))] }

// between draws a time.
func (n *nemesis) between(from, to time.Duration) time.Duration {
	return from + time.Duration(n.rng.Int64N(int64(to-from)))
}

// ledBy lists the partitions that a node leads, as another node knows it.
func (c *cluster) ledBy(ctx context.Context, id string) (led []uint32) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, n := range c.nodes {
		if n.id == id {
			continue
		}
		s, err := n.client.GetCluster(ctx)
		if err != nil {
			continue
		}
		for _, g := range s.GetGroups() {
			if g.GetKind() == tapedeckv1.GroupKind_GROUP_KIND_PARTITION && g.GetTopic() == topicName && g.GetLeader() == id {
				led = append(led, g.GetPartition())
			}
		}
		return led
	}
	return nil
}

// crash kills a node and returns what measures the failover once enough time
// has passed.
func (n *nemesis) crash(ctx context.Context, x *node) (measure func()) {
	led := n.c.ledBy(ctx, x.id)
	at := time.Since(n.l.began)
	x.kill()
	n.say("kill -9 %s, leader of the partitions %v", x.id, led)
	return func() {
		if len(led) == 0 {
			return
		}
		longest := time.Duration(0)
		for _, p := range led {
			longest = max(longest, n.l.gapAfter(p, at))
		}
		n.say("failover of %s: %d ms without a publish", x.id, longest.Milliseconds())
		n.failovers = append(n.failovers, longest)
	}
}

func (n *nemesis) killOne(ctx context.Context) error {
	x := n.pick()
	for range 3 { // leaders are more interesting
		if len(n.c.ledBy(ctx, x.id)) > 0 {
			break
		}
		x = n.pick()
	}
	measure := n.crash(ctx, x)
	// Back at once, or only after the others have gone on without it.
	down := n.between(0, 200*time.Millisecond)
	if n.rng.IntN(3) > 0 {
		down = n.between(2*time.Second, 6*time.Second)
	}
	sleep(ctx, down)
	if err := n.restore(ctx, x); err != nil {
		return err
	}
	measure()
	return nil
}

// restore starts a node and waits until every partition takes publishes.
func (n *nemesis) restore(ctx context.Context, x *node) error {
	began := time.Now()
	if err := x.start(ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	if err := n.l.awaitProgress(ctx, time.Minute); err != nil {
		return err
	}
	n.say("%s started again: ready after %d ms, every partition takes publishes after %d ms", x.id,
		ready.Milliseconds(), time.Since(began).Milliseconds())
	return nil
}

func (n *nemesis) killAll(ctx context.Context) error {
	n.say("kill -9 all nodes")
	for _, x := range n.c.nodes {
		x.kill()
	}
	for _, x := range n.c.nodes {
		if err := x.launch(); err != nil {
			return err
		}
	}
	for _, x := range n.c.nodes {
		if err := x.awaitReady(ctx); err != nil {
			return err
		}
	}
	return n.l.awaitProgress(ctx, time.Minute)
}

func (n *nemesis) pauseOne(ctx context.Context) error {
	x := n.pick()
	d := n.between(100*time.Millisecond, 8*time.Second)
	n.say("stop %s for %v (SIGSTOP)", x.id, d.Round(time.Millisecond))
	x.pause()
	sleep(ctx, d)
	x.resume()
	return nil
}

func (n *nemesis) restartOne(ctx context.Context) error {
	x := n.pick()
	n.say("restart %s (SIGTERM)", x.id)
	if err := x.stop(); err != nil {
		return err
	}
	sleep(ctx, n.between(0, time.Second))
	return x.start(ctx)
}

// wipeOne removes everything a node has. Nothing else may be broken then and
// until it is whole: it is the one lost machine that three replicas survive.
func (n *nemesis) wipeOne(ctx context.Context) error {
	if err := n.c.awaitWhole(ctx, wholePatience, nil); err != nil {
		return err
	}
	return n.rebuildOne(ctx, n.pick(), nil)
}

// rebuildOne kills a node, removes its data, starts it and waits until it is
// whole. more: further nodes that share its fate.
func (n *nemesis) rebuildOne(ctx context.Context, x *node, more []*node) error {
	s, err := n.c.describe(ctx)
	if err != nil {
		return err
	}
	lost := append([]*node{x}, more...)
	gone := map[string]identity{}
	for _, y := range lost {
		gone[y.id] = identityOf(s, y.id)
		y.kill()
	}
	for _, y := range lost {
		if err := y.wipe(); err != nil {
			return err
		}
		n.say("rm -r the data of %s", y.id)
	}
	sleep(ctx, n.between(0, 2*time.Second))
	return n.replace(ctx, lost, gone)
}

// replace starts wiped nodes and waits until they are whole.
func (n *nemesis) replace(ctx context.Context, lost []*node, gone map[string]identity) error {
	began := time.Now()
	for _, y := range lost {
		if err := y.start(ctx); err != nil {
			return err
		}
		if y == n.full { // has no room for the old and the new
			if err := y.removeAside(); err != nil {
				return err
			}
		}
	}
	if err := n.c.awaitWhole(ctx, wholePatience, gone); err != nil {
		return err
	}
	for _, y := range lost {
		if err := y.removeAside(); err != nil {
			return err
		}
	}
	r := rebuild{took: time.Since(began)}
	for _, y := range lost {
		r.bytes += folderBytes(filepath.Join(y.data, "segments"))
	}
	n.rebuilds = append(n.rebuilds, r)
	n.say("whole again after %v: %s copied, %s/s", r.took.Round(10*time.Millisecond), size(r.bytes), size(r.speed()))
	return nil
}

func (r rebuild) speed() int64 {
	return int64(float64(r.bytes) / max(r.took.Seconds(), 0.001))
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

// spareTail is how much of the journal's end is left alone by flips: the last
// write before the end has no later witness, and whether its damage is seen is
// chance.
const spareTail = 256 << 10

// flipOne flips a bit in a file of a stopped node. The node either refuses to
// start, or serves without ever giving wrong data; in the end its data is
// removed and it is rebuilt, since a damaged copy counts as a lost one.
func (n *nemesis) flipOne(ctx context.Context) error {
	if err := n.c.awaitWhole(ctx, wholePatience, nil); err != nil {
		return err
	}
	x := n.pick()
	s, err := n.c.describe(ctx)
	if err != nil {
		return err
	}
	gone := map[string]identity{x.id: identityOf(s, x.id)}
	if err := x.stop(); err != nil {
		return err
	}
	where, err := flipIn(x.data, n.rng)
	if err != nil {
		return err
	}
	if err := x.launch(); err != nil {
		return err
	}
	if err := x.awaitReady(ctx); err != nil {
		p := x.down()
		if p.alive() {
			p.kill()
			return fmt.Errorf("after a flipped bit in %s %s neither refuses nor serves: %w", where, x.id, err)
		}
		n.counts["flip refused"]++
		n.say("flipped a bit in %s of %s: it refuses to start", where, x.id)
		if err := n.setAside(ctx, x, p); err != nil {
			return err
		}
		return n.replace(ctx, []*node{x}, gone)
	}
	n.say("flipped a bit in %s of %s: it starts", where, x.id)
	sleep(ctx, n.between(time.Second, 3*time.Second))
	x.kill()
	if err := x.wipe(); err != nil {
		return err
	}
	return n.replace(ctx, []*node{x}, gone)
}

// setAside does what a node that refused its folder says is to be done. What was
// set aside is there still when the node starts again.
func (n *nemesis) setAside(ctx context.Context, x *node, p *process) error {
	if !strings.Contains(p.lastWords(), "tapedeck node rebuild --data "+x.data) {
		return fmt.Errorf("%s refuses without saying what to do: %s", x.id, p.lastWords())
	}
	out, err := exec.CommandContext(ctx, n.c.bin, "node", "rebuild", "--data", x.data, "--yes").CombinedOutput()
	if err != nil {
		return fmt.Errorf("node rebuild of %s: %w\n%s", x.id, err, out)
	}
	if aside, err := x.aside(); err != nil || len(aside) == 0 {
		return fmt.Errorf("node rebuild set nothing of %s aside: %s", x.id, out)
	}
	return nil
}

// idle says that a file has no content that counts.
func idle(name string) bool {
	return strings.HasSuffix(name, "LOCK") || strings.HasSuffix(name, "RESERVE")
}

// flipIn flips one bit of one file below a data folder and says where.
func flipIn(dir string, rng *rand.Rand) (where string, err error) {
	type candidate struct {
		name string
		size int64
	}
	var files []candidate
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files = append(files, candidate{name, info.Size()})
		return nil
	})
	if err != nil {
		return "", err
	}
	var last string
	for _, f := range files {
		if strings.Contains(f.name, "journal") {
			last = f.name // names sort by age
		}
	}
	for i := range files {
		if files[i].name == last {
			files[i].size -= spareTail
		}
	}
	files = slices.DeleteFunc(files, func(f candidate) bool { return f.size <= 0 || idle(f.name) })
	if len(files) == 0 {
		return "no file at all", nil
	}
	f := files[rng.IntN(len(files))]
	at, bit := rng.Int64N(f.size), rng.IntN(8)
	file, err := os.OpenFile(f.name, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var b [1]byte
	if _, err := file.ReadAt(b[:], at); err != nil {
		return "", err
	}
	b[0] ^= 1 << bit
	if _, err := file.WriteAt(b[:], at); err != nil {
		return "", err
	}
	rel, _ := filepath.Rel(dir, f.name)
	return fmt.Sprintf("%s at %d bit %d", rel, at, bit), file.Close()
}

// lowRoom is what a filled disk has left at least: less than the mark at which a
// node counts as full, and enough for what others have it write until it looks
// at its disk again and lets go of its reserve. A disk that somebody else fills
// to the last byte at once ends the node, with a clear message.
const lowRoom = 20 << 20

// fillOne leaves the node on the small file system without room for a while.
func (n *nemesis) fillOne(ctx context.Context) error {
	ballast := filepath.Join(filepath.Dir(n.full.data), "ballast")
	free := freeBytes(filepath.Dir(n.full.data))
	n.say("fill the disk of %s, which has %s left", n.full.id, size(free))
	if err := fill(ballast, free-lowRoom-n.rng.Int64N(lowRoom)); err != nil {
		return err
	}
	sleep(ctx, n.between(3*time.Second, 6*time.Second))
	if err := os.Remove(ballast); err != nil {
		return err
	}
	return n.l.awaitProgress(ctx, time.Minute)
}

// fill makes a file of so many bytes.
func fill(name string, bytes int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	zeros := make([]byte, 1<<20)
	for left := bytes; left > 0; left -= int64(len(zeros)) {
		if _, err := f.Write(zeros[:min(left, int64(len(zeros)))]); err != nil {
			return nil // full is what was wanted
		}
	}
	return nil
}
