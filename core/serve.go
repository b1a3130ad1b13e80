package core

import (
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Calls of groups here, from this node's gateway and from other nodes, and the
// answers on their way back.

func (s *Shard) remoteRequest(p *peer, c *wire.Codec) {
	var ask uint64
	var g model.GroupID
	var body []byte
	wire.Uint(c, &ask)
	wire.Uint(c, &g)
	c.Bytes(&body)
	if c.Err != nil || ask&copyAsk == 0 && !p.seen.take(ask) {
		return
	}
	req, err := call.Decode(body)
	if err != nil {
		s.respond(p.node.ID, ask, nil, model.Errorf(model.Unimplemented, "node %s: %v", s.cfg.Self, err))
		return
	}
	s.deliver(origin{node: p.node.ID, ask: ask}, g, req)
}

func (s *Shard) remoteResponse(p *peer, c *wire.Codec) {
	var ask uint64
	var err *model.Error
	var body []byte
	wire.Uint(c, &ask)
	call.CodeError(c, &err)
	c.Bytes(&body)
	if c.Err != nil {
		return
	}
	var resp call.Response
	if err == nil {
		r, derr := call.Decode(body)
		if derr != nil {
			err = model.Errorf(model.Internal, "answer of node %s: %v", p.node.ID, derr)
		}
		resp = r
	}
	s.answered(ask, p.node.ID, resp, err)
}

// deliver hands a request to a group here; a group that is not here has no leader here either.
func (s *Shard) deliver(o origin, g model.GroupID, req call.Request) {
	m := s.byGroup[g]
	if m == nil {
		s.replyOrigin(o, nil, model.Reasoned(model.FailedPrecondition, model.ReasonNotLeader, retryHint,
			"node %s has no replica of group %d", s.cfg.Self, g))
		return
	}
	if t, ok := req.(*call.TransferLeader); ok {
		s.transfer(o, m, t.To)
		return
	}
	if m.r.Transferring() {
		s.replyOrigin(o, nil, m.NotLeader()) // a moment later another leads
		return
	}
	if _, ok := req.(*call.Append); ok {
		if err := s.room(m); err != nil {
			s.replyOrigin(o, nil, err)
			return
		}
	}
	if len(s.refs) >= 4*s.cfg.Limits.Requests {
		s.replyOrigin(o, nil, model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, retryHint,
			"node %s has %d calls waiting", s.cfg.Self, len(s.refs)))
		return
	}
	s.lastRef++
	o.member = m
	s.refs[s.lastRef] = o
	s.asked[askKey{o.node, o.ask}] = s.lastRef
	m.machine.Handle(m, s.lastRef, req)
	s.touch(m)
}

// transfer hands a group's leadership to its replica on a node.
func (s *Shard) transfer(o origin, m *member, to model.NodeID) {
	if !m.r.Leading() {
		if n, ok := m.r.LeaderNode(); ok && n == to {
			s.replyOrigin(o, nil, nil) // it leads already
			return
		}
		s.replyOrigin(o, nil, m.NotLeader())
		return
	}
	for _, r := range m.r.Group().Replicas {
		switch {
		case r.Node != to:
			continue
		case r.ID == m.r.Self() || m.r.TransferTo(r.ID):
			s.replyOrigin(o, nil, nil)
		default:
			s.replyOrigin(o, nil, model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, retryHint,
				"the replica on node %s is not up to date, or publishes are under way; try again", to))
		}
		return
	}
	s.replyOrigin(o, nil, model.Errorf(model.FailedPrecondition, "node %q holds no replica of the group", to))
}

func (s *Shard) replyRef(ref group.Ref, resp call.Response, err *model.Error) {
	o, ok := s.refs[ref]
	if !ok {
		return
	}
	s.forgetRef(ref, o)
	s.replyOrigin(o, resp, err)
}

func (s *Shard) forgetRef(ref group.Ref, o origin) {
	delete(s.refs, ref)
	delete(s.asked, askKey{o.node, o.ask})
}

func (s *Shard) withdrawn(k askKey) {
	ref, ok := s.asked[k]
	if !ok {
		return
	}
	o := s.refs[ref]
	s.forgetRef(ref, o)
	o.member.machine.Cancel(o.member, ref)
	s.touch(o.member)
}

func (s *Shard) replyOrigin(o origin, resp call.Response, err *model.Error) {
	if o.node == s.cfg.Self {
		s.answered(o.ask, s.cfg.Self, resp, err)
		return
	}
	s.respond(o.node, o.ask, resp, err)
}

func (s *Shard) respond(to model.NodeID, ask uint64, resp call.Response, err *model.Error) {
	c := s.to(s.peer(to))
	if c == nil {
		return
	}
	var body []byte
	if err == nil {
		if resp == nil {
			resp = &call.Empty{}
		}
		body = call.Encode(nil, resp)
	}
	item(c, itemResponse)
	wire.Uint(c, &ask)
	call.CodeError(c, &err)
	c.Bytes(&body)
}

// forgetAsks drops what a node's former life asked: its next life counts its
// asks anew, and must not get answers to questions it did not ask.
func (s *Shard) forgetAsks(n model.NodeID) {
	var asks []uint64
	for k := range s.asked { // order: sorted below
		if k.node == n {
			asks = append(asks, k.ask)
		}
	}
	slices.Sort(asks)
	for _, ask := range asks {
		s.withdrawn(askKey{n, ask})
	}
}

// window remembers which of the newest ids were taken. The network may repeat a
// packet; a call without a producer's sequence must still be made once. An id
// too old to be remembered counts as taken.
type window struct {
	high uint64
	bits [windowIDs / 64]uint64
}

const windowIDs = 4096

// take says whether the id is new, and remembers it.
func (w *window) take(id uint64) bool {
	if id+windowIDs <= w.high {
		return false
	}
	for ; w.high < id; w.high++ {
		if id-w.high > windowIDs {
			*w = window{high: id - windowIDs}
		}
		next := w.high + 1
		w.bits[next%windowIDs/64] &^= 1 << (next % 64)
	}
	bit := uint64(1) << (id % 64)
	if w.bits[id%windowIDs/64]&bit != 0 {
		return false
	}
	w.bits[id%windowIDs/64] |= bit
	return true
}

// answered routes an answer to whoever asked here: the gateway, or a copy under way.
func (s *Shard) answered(ask uint64, from model.NodeID, resp call.Response, err *model.Error) {
	if ask&copyAsk != 0 {
		s.copied(ask, from, resp, err)
		return
	}
	s.answers = append(s.answers, answer{ask, from, resp, err})
}
