package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"

	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// reads coalesces linearizable reads: at most one round of heartbeats is under
// way; what arrives meanwhile shares the next. A round started before a read
// arrived cannot serve it.
type reads struct {
	round    uint64
	running  []group.Ref // served by the round under way
	waiting  []group.Ref // for the next
	deadline model.Mono
	known    bool // the round's index is known; waiting for apply
	index    uint64
}

func (q *reads) idle() bool { return len(q.running) == 0 }

// ReadIndex asks for a linearizable point: ReadIndexDone or a NOT_LEADER reply.
func (r *Replica) ReadIndex(ref group.Ref) {
	if !r.leading {
		r.s.Reply(ref, r.host.NotLeader())
		return
	}
	r.reads.waiting = append(r.reads.waiting, ref)
	r.s.Touched(r.cfg.Group.ID)
}

func (q *reads) confirmed(r *Replica, rs raft.ReadState) {
	if len(rs.RequestCtx) == 8 && binary.LittleEndian.Uint64(rs.RequestCtx) == q.round && !q.idle() {
		q.known, q.index = true, rs.Index
		if rs.Index > r.applied {
			r.cfg.Probe.Hit(probe.ReadAheadOfApply)
		}
	}
}

// advance finishes a round whose index is applied and starts the next.
func (q *reads) advance(r *Replica) {
	if !q.idle() && q.known && r.applied >= q.index && r.leading {
		done := q.running
		q.running, q.known = nil, false
		for _, ref := range done {
			r.machine.ReadIndexDone(r.host, ref)
		}
	}
	if q.idle() && len(q.waiting) > 0 && r.leading {
		q.running, q.waiting = q.waiting, nil
		q.round++
		q.deadline = r.s.Now().Add(r.cfg.ReadIndexWait)
		r.rn.ReadIndex(binary.LittleEndian.AppendUint64(nil, q.round))
	}
}

// expire gives up a round that found no quorum in time.
func (q *reads) expire(r *Replica, now model.Mono) {
	if !q.idle() && now >= q.deadline {
		r.cfg.Probe.Hit(probe.ReadsWithoutQuorum)
		q.fail(r)
	}
}

func (q *reads) fail(r *Replica) {
	refs := append(q.running, q.waiting...)
	q.running, q.waiting, q.known = nil, nil, false
	q.round++
	for _, ref := range refs {
		r.s.Reply(ref, r.host.NotLeader())
	}
}
