package replica

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/model"
)

// A replica that is probed gets the same entries again at each of its heartbeat
// responses until it acknowledges them, which it does once they are on its disk.
// Up to MaxSizePerMsg at every heartbeat and every read's confirmation is more
// than a replica that comes back can take: it falls behind for being sent too
// much, and everything else waits in line behind it. So the same entries go
// again only after a while, longer each time, or once the stream to it is known
// to be lost. An append held back is as good as one lost on the way.

// maxRepeat bounds the wait before the same entries go again.
const maxRepeat = 5 * time.Second

// sentTo is what was last sent to a replica.
type sentTo struct {
	term, before uint64 // this leader's term, index of the entry before the first
	again        model.Mono
	wait         time.Duration
}

// repeats says that an append is to be held back.
func (r *Replica) repeats(m *pb.Message) bool {
	if m.GetType() != pb.MsgApp || len(m.GetEntries()) == 0 {
		return false
	}
	now, last := r.s.Now(), r.sent[m.GetTo()]
	if last.term != m.GetTerm() || last.before != m.GetIndex() {
		r.sent[m.GetTo()] = sentTo{m.GetTerm(), m.GetIndex(), now.Add(r.cfg.Election), r.cfg.Election}
		return false
	}
	if now < last.again {
		return true
	}
	last.wait = min(2*last.wait, maxRepeat)
	last.again = now.Add(last.wait)
	r.sent[m.GetTo()] = last
	return false
}
