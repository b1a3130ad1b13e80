package sim

import (
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
	"github.com/tapedeck/tapedeck/node"
)

// ownProbes are the points that the simulator itself passes; those of the core
// are in core/probe.
var ownProbes = []string{
	"leader elected", "retry deduplicated", "publish timed out", "rival fenced", "seek",
	"seek to a snapshot", "state replayed",
	"worker forgets", "message comes again", "nack refused: FENCED", "ack refused: THROTTLED", "ack refused: ",
	"ack refused: FENCED", "ack refused: UNKNOWN_OUTCOME",
	"crash, unsynced=lose", "crash, unsynced=keep", "crash, unsynced=torn",
	"crash after a checkpoint of this boot", "crash during a journal write",
	"disk full", "disk fails", "stopped by its disk", "start failed by the disk",
	"flipped bit", "lost write", "misdirected write", "damaged folder refused", "wiped", "set back",
	"damage mended by another replica", "damage gone with its file", "damage to what retention let go of",
	"operator moves", "operator transfers", "operator drains", "operator adds a node", "operator removes a node",
	"a removed node joined again",
	"operator creates a topic", "operator deletes a topic", "operator adds a partition", "operator changes retention",
}

// struckBy and struckWhile span what a fault may find: each fault on each phase of
// each role is a probe, "crash of the leader of meta".
var (
	struckBy    = []string{"crash", "pause", "isolation", "cut", "slow disk"}
	struckWhile = []string{leadsMeta, leadsCoordinator, leadsWithWork, writesAsFollower, campaigns, learns, copies,
		checkpoints}
)

const (
	leadsMeta        = "the leader of meta"
	leadsCoordinator = "the leader of a coordinator"
	leadsWithWork    = "a partition's leader with batches under way"
	writesAsFollower = "a follower that writes its journal"
	campaigns        = "a candidate"
	learns           = "a learner"
	copies           = "a node that copies segments"
	checkpoints      = "a node that writes a checkpoint"
)

func struckName(fault, while string) string { return fault + " of " + while }

// Probes are the names of all points worth reaching, in order of their names.
func Probes() []string {
	names := slices.Clone(ownProbes)
	for _, p := range probe.Points() {
		names = append(names, string(p))
	}
	for site := range choice.Sites() { // order: the names are sorted below
		names = append(names, "chose "+string(site))
	}
	for _, fault := range struckBy {
		for _, while := range struckWhile {
			names = append(names, struckName(fault, while))
		}
	}
	slices.Sort(names)
	return names
}

// probe counts that something worth reaching was reached. Its name is one of
// Probes (a test sees to it), or no sweep could tell that it was never reached.
func (w *World) probe(name string) { w.probes[name]++ }

// struck counts what a fault finds the node doing.
func (n *simNode) struck(fault string) {
	for _, while := range n.phases() {
		n.w.probe(struckName(fault, while))
	}
}

// phases is what a node is in the middle of, each once.
func (n *simNode) phases() (out []string) {
	if !n.up || n.host == nil {
		return nil
	}
	add := func(phase string, is bool) {
		if is && !slices.Contains(out, phase) {
			out = append(out, phase)
		}
	}
	shard := n.host.Shard()
	for _, id := range shard.Replicas() {
		r := shard.Replica(id)
		g := r.Group()
		role := r.View().Role
		add(leadsMeta, g.Kind == model.GroupMeta && r.Leading())
		add(leadsCoordinator, g.Kind == model.GroupCoordinator && r.Leading())
		add(leadsWithWork, g.Kind == model.GroupPartition && r.Leading() && r.Uncommitted() > 0)
		add(writesAsFollower, role == raft.StateFollower && r.Writing())
		add(campaigns, role == raft.StateCandidate || role == raft.StatePreCandidate)
		add(learns, r.Learner())
	}
	add(copies, shard.Load().Copies > 0)
	l := n.lanes[node.Lane{Kind: node.LaneCheckpoint}]
	add(checkpoints, l != nil && l.last > n.w.loop.now)
	return out
}
