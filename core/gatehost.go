package core

import (
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// gateHost is the shard as its gateway sees it.
type gateHost struct{ s *Shard }

// Now implements gateway.Host.
func (h gateHost) Now() model.Mono { return h.s.now.Mono }

// Self implements gateway.Host.
func (h gateHost) Self() model.NodeID { return h.s.cfg.Self }

// Rand implements gateway.Host.
func (h gateHost) Rand() uint64 { return h.s.random() }

// Catalog implements gateway.Host.
func (h gateHost) Catalog() model.Catalog {
	if h.s.meta == nil {
		return nil
	}
	return h.s.meta.Catalog()
}

// Leader implements gateway.Host.
func (h gateHost) Leader(g model.GroupID) (model.NodeID, bool) {
	if m := h.s.byGroup[g]; m != nil {
		return m.r.LeaderNode()
	}
	return "", false
}

// Ask implements gateway.Host.
func (h gateHost) Ask(to model.NodeID, ask uint64, g model.GroupID, req call.Request) {
	h.s.ask(to, ask, g, req)
}

// Withdraw implements gateway.Host.
func (h gateHost) Withdraw(to model.NodeID, ask uint64) {
	if to == h.s.cfg.Self {
		h.s.withdrawn(askKey{to, ask})
		return
	}
	if c := h.s.to(h.s.peer(to)); c != nil {
		item(c, itemCancel)
		wire.Uint(c, &ask)
	}
}

// Reply implements gateway.Host.
func (h gateHost) Reply(id uint64, result call.ClientResult, err *model.Error) {
	if id&innerRequest == 0 {
		h.s.emit(Reply{id, result, err})
		return
	}
	if a, ok := h.s.groupAsks[id]; ok {
		delete(h.s.groupAsks, id)
		a.resp, a.err = result, err
		h.s.askDone = append(h.s.askDone, a)
	}
}

// Up implements gateway.Host.
func (h gateHost) Up(n model.NodeID) bool {
	p := h.s.peer(n)
	return n == h.s.cfg.Self || p != nil && p.inc.Boot != 0 && !p.down
}

// Peers implements gateway.Host.
func (h gateHost) Peers() []model.Node { return h.s.cfg.Peers }

// Reachable implements gateway.Host.
func (h gateHost) Reachable(n model.NodeID) bool {
	if n == h.s.cfg.Self {
		return true
	}
	p := h.s.peer(n)
	return p != nil && h.s.reachable(p)
}

// Status implements gateway.Host.
func (h gateHost) Status() []call.GroupStatus {
	out := make([]call.GroupStatus, 0, len(h.s.members))
	for _, m := range h.s.members {
		st := call.GroupStatus{Group: m.g.group, Term: m.r.View().Term}
		st.Leader, _ = m.r.LeaderNode()
		out = append(out, st)
	}
	return out
}
