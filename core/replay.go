package core

import (
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// Replay makes a group's machine of what the folder holds, as a restart would:
// its checkpoint, then the entries up to and with upto. It says whose replica it
// is. False: there is no such group, or its log does not reach from one to the other.
func (l *Loaded) Replay(id model.GroupID, upto uint64, limits Limits, h group.Host) (m group.Machine,
	self model.ReplicaID, ok bool) {
	g := l.groups[id]
	if g == nil || l.founding == nil {
		return nil, 0, false
	}
	s := Shard{cfg: Config{Limits: limits.withDefaults()}, founding: l.founding}
	m = s.blank(g.definition.group)
	if state := g.loader.Machine(); state != nil {
		if err := m.Restore(state); err != nil {
			return nil, 0, false
		}
	}
	r, _ := g.definition.group.On(l.self, l.disk)
	return m, r.ID, g.loader.Replay(m, h, upto)
}
