package replica

import (
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/group"
)

// Replay applies the entries up to and with upto to a machine in the state of the
// applied index. False: the log does not reach from there to upto.
func (l *Loader) Replay(m group.Machine, h group.Host, upto uint64) bool {
	if upto < l.applied || upto > l.last() {
		return false
	}
	for _, e := range l.entries[:upto-l.applied] {
		if e.GetType() == pb.EntryNormal && len(e.GetData()) > 0 {
			m.Apply(h, group.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Data: e.GetData()})
		}
	}
	return true
}
