package subscription

import (
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// memberOf is the member a request speaks for; empty when for none.
func memberOf(req call.Request) model.MemberID {
	switch req := req.(type) {
	case *call.Grant:
		return req.Member
	case *call.Leave:
		return req.Member
	}
	return ""
}

func (m *Machine) serveMove(h group.Host, w *wait, st *subscription, req *call.MoveCursors) {
	if req.Snapshot != "" {
		m.serveRestore(h, w, st, req)
		return
	}
	if len(req.To) == 0 {
		m.finish(h, w, nil, model.Invalid("partitions", "name no partition to move"))
		return
	}
	c := &seekCommand{id: st.id}
	named := make(map[model.Partition]bool, len(req.To))
	for _, to := range req.To {
		err := st.inRange(to.Partition)
		if err == nil && named[to.Partition] {
			err = model.Invalid("partitions", "name partition %d twice", to.Partition)
		}
		if err != nil {
			m.finish(h, w, nil, err)
			return
		}
		named[to.Partition] = true
		c.to = append(c.to, place{to.Partition, to.Offset})
	}
	m.hold(w)
	m.proposeFor(h, c, w)
}

// seekApplied: the memory of the partitions moved is void by their new fences.
func (m *Machine) seekApplied(h group.Host, p *proposal, id model.SubscriptionID, out outcome) {
	for _, w := range p.waits {
		resp := &call.Moved{Generation: out.generation}
		for _, to := range out.moved {
			resp.To = append(resp.To, call.PartitionOffset{Partition: to.partition, Offset: to.offset})
		}
		m.finish(h, w, resp, out.err)
	}
	m.advance(h, id)
}

// serveLeave ends a session at once. Whoever is no member has left already.
func (m *Machine) serveLeave(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.Leave) {
	mb := st.member(req.Member)
	if mb == nil {
		m.finish(h, w, &call.Empty{}, nil)
		return
	}
	l := leaving{mb.id, mb.joined}
	if !ls.leavingNow(req.Member) {
		ls.leaves = append(ls.leaves, l)
	}
	m.park(w)
}

func (m *Machine) serveHeartbeat(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.Heartbeat) {
	if st.member(req.Member) == nil || ls.leavingNow(req.Member) {
		m.finish(h, w, nil, st.sessionOver(req.Member))
		return
	}
	ls.renew(req.Member, h.Now())
	m.finish(h, w, &call.Empty{}, nil)
}

func (s *subscription) sessionOver(m model.MemberID) *model.Error {
	err := model.Reasoned(model.FailedPrecondition, model.ReasonFenced, 0,
		"the session of member %q has ended; pull to begin another", m)
	err.Expected = uint64(s.generation)
	return err
}

func (m *Machine) finishDescribe(h group.Host, w *wait, st *subscription, ls *leadSubscription) {
	resp := &call.Description{Generation: st.generation}
	for _, mb := range st.members {
		state := call.MemberState{ID: mb.id, Static: mb.static,
			Partitions: slices.Clone(ls.ownedBy(st, mb.id))}
		if s := ls.sessions[mb.id]; s != nil {
			state.IdleFor = int64(h.Now().Sub(s.heard))
		}
		resp.Members = append(resp.Members, state)
	}
	for i := range st.partitions {
		p, part := model.Partition(i), &st.partitions[i]
		mem := ls.at(st, p)
		resp.Cursors = append(resp.Cursors, call.CursorState{Partition: p, Cursor: part.cursor,
			Owner: part.owner, Fence: part.fence, Leased: mem.out(part) + part.leased(),
			Waits: m.waits(h, st, ls.burials[p])})
	}
	m.finish(h, w, resp, nil)
}
