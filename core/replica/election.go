package replica

import (
	"fmt"
	"maps"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// clock is the election clock of a replica that does not lead. Contact with a
// leader, a granted vote, and any change of term or role rearm it.
type clock struct {
	forgetAt   model.Mono // a leader silent until then is forgotten
	campaignAt model.Mono
	attempts   uint64
}

func (c *clock) rearm(r *Replica) {
	now := r.s.Now()
	c.attempts++
	c.forgetAt = now.Add(r.cfg.Election)
	c.campaignAt = c.forgetAt.Add(r.jitter())
}

// jitter is in [0, T): a hash of seed, group, replica, term and attempt, so that
// equal runs draw equal times and no two replicas stay in step.
func (r *Replica) jitter() time.Duration {
	var b [40]byte
	for i, v := range [5]uint64{r.cfg.Seed, uint64(r.cfg.Group.ID), uint64(r.cfg.Self), r.term, r.clock.attempts} {
		for j := range 8 {
			b[8*i+j] = byte(v >> (8 * j))
		}
	}
	return time.Duration(xxhash.Sum64(b[:]) % uint64(r.cfg.Election))
}

// Tick carries out what is due.
func (r *Replica) Tick() {
	now := r.s.Now()
	r.reads.expire(r, now)
	if r.role == raft.StateLeader {
		return
	}
	if now >= r.clock.forgetAt {
		r.clock.forgetAt = model.Never
		// Learners and unpromotable replicas forget, too: one promoted without
		// knowing it must be able to grant.
		if err := r.rn.ForgetLeader(); err == nil {
			if r.lead != raft.None {
				r.cfg.Probe.Hit(probe.LeaderForgotten)
			}
			r.s.Touched(r.cfg.Group.ID)
		}
	}
	if now >= r.clock.campaignAt {
		// Campaign does nothing while unpromotable or with membership changes
		// unapplied, and says nothing of it: rearm always.
		_ = r.rn.Campaign()
		r.clock.rearm(r)
		r.s.Touched(r.cfg.Group.ID)
	}
}

// Deadline is when Tick has something to do.
func (r *Replica) Deadline() model.Mono {
	d := r.reads.deadline
	if r.reads.idle() {
		d = model.Never
	}
	if r.role == raft.StateLeader {
		return d
	}
	return min(d, r.clock.forgetAt, r.clock.campaignAt)
}

// Beat is a leader's tick, once per heartbeat interval.
func (r *Replica) Beat() {
	if r.role != raft.StateLeader {
		return
	}
	r.rn.Tick()
	if r.beats++; r.beats%26 == 0 {
		r.retrySnapshots(nil)
	}
	r.s.Touched(r.cfg.Group.ID)
}

// retrySnapshots reports snapshots under way as failed: a lost one would keep
// its replica waiting until the leader changes. A new one is small, and the
// receiver goes on copying where it was.
func (r *Replica) retrySnapshots(only func(uint64) bool) {
	var ids []uint64
	r.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if pr.State == tracker.StateSnapshot && (only == nil || only(id)) {
			ids = append(ids, id)
		}
	})
	for _, id := range ids {
		r.cfg.Probe.Hit(probe.SnapshotLost)
		r.rn.ReportSnapshot(id, raft.SnapshotFailure)
	}
}

// PeerDown says that the stream to a node was lost.
func (r *Replica) PeerDown(node model.NodeID) {
	on := func(id uint64) bool { return r.peers[id].Node == node }
	maps.DeleteFunc(r.sent, func(id uint64, _ sentTo) bool { return on(id) })
	if r.role == raft.StateLeader {
		r.retrySnapshots(on)
		for _, p := range r.cfg.Group.Replicas {
			if p.Node == node {
				r.rn.ReportUnreachable(uint64(p.ID))
			}
		}
		r.s.Touched(r.cfg.Group.ID)
		return
	}
	if r.lead != raft.None && on(r.lead) {
		// Shorten the wait; the pre-vote still decides.
		now := r.s.Now()
		r.clock.forgetAt = now
		r.clock.campaignAt = min(r.clock.campaignAt, now.Add(r.cfg.Heartbeat/2+r.jitter()/2))
	}
}

// silent is raft's logger: the default one prints wall-clock times. What raft
// would die of is a broken invariant and panics with its own words.
type silent struct{}

func (silent) Debug(...any)              {}
func (silent) Debugf(string, ...any)     {}
func (silent) Error(...any)              {}
func (silent) Errorf(string, ...any)     {}
func (silent) Info(...any)               {}
func (silent) Infof(string, ...any)      {}
func (silent) Warning(...any)            {}
func (silent) Warningf(string, ...any)   {}
func (silent) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (silent) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (silent) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (silent) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
