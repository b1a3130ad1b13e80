package core

import (
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
	"github.com/tapedeck/tapedeck/core/replica"
)

// innerRequest marks requests that the shard makes of its own gateway; nobody
// outside waits for their replies.
const innerRequest = 1 << 63

// reportEvery spaces the reports of one change, and the requests to let one node join.
const reportEvery = time.Second

func (s *Shard) askMeta(req call.Request) {
	s.inner++
	s.gate.Request(s.inner|innerRequest, &call.Admin{Request: req}, s.now.Mono.Add(s.cfg.Timing.LeaderWait))
}

// groupAsk is what a group here asks of another group.
type groupAsk struct {
	member *member
	id     uint64
	resp   call.ClientResult
	err    *model.Error
}

// askGroup asks for a group here; the answer comes after the machine's turn.
func (s *Shard) askGroup(m *member, id uint64, g model.GroupID, req call.Request) {
	s.inner++
	inner := s.inner | innerRequest
	s.groupAsks[inner] = groupAsk{member: m, id: id}
	s.gate.RequestGroup(inner, g, req, s.now.Mono.Add(s.cfg.Timing.LeaderWait))
}

func (a *groupAsk) done(s *Shard) {
	asker, ok := a.member.machine.(group.Asker)
	if a.member.gone || !ok {
		return
	}
	resp, _ := a.resp.(call.Response)
	asker.AskDone(a.member, a.id, resp, a.err)
	s.touch(a.member)
}

// carry takes the change of members that meta wants for a group one step
// further. Only the leader acts; everyone else follows the raft log.
func (s *Shard) carry(m *member) {
	c := m.r.Group().Change
	if c.ID == 0 || !m.r.Leading() || s.now.Mono < m.reportAt {
		return
	}
	if m.id == model.MetaGroup && c.Removed {
		// The node's old replica of meta is out and hears no more of the catalog:
		// it is told here to begin its new one.
		if p := s.peer(c.Add.Node); p != nil {
			g := m.r.Group()
			s.sendHelloWith(p, false, &g)
		}
	}
	if c.Remove == m.r.Self() {
		// A leader does not lead its own removal while another can.
		for _, r := range append(slices.Clone(m.r.Group().Replicas), c.Add) {
			if r.ID != c.Remove && r.ID != 0 && m.r.TransferTo(r.ID) {
				return
			}
		}
	}
	switch m.r.Carry(c, c.Canceled || s.folderGone(c.Add)) {
	case replica.ChangeRemoved:
		m.reportAt = s.now.Mono.Add(reportEvery)
		s.askMeta(&call.ReportChange{Group: m.id, Change: c.ID, Removed: true})
	case replica.ChangeDone:
		m.reportAt = s.now.Mono.Add(reportEvery)
		s.askMeta(&call.ReportChange{Group: m.id, Change: c.ID})
	case replica.ChangeGivenUp:
		m.reportAt = s.now.Mono.Add(reportEvery)
		s.askMeta(&call.ReportChange{Group: m.id, Change: c.ID, GivenUp: true})
	}
}

// giveUpStranded ends a change whose leader is no more, at the replica that it
// was to add: those who could have led went with their folders, this one has
// nothing of the group yet, and so cannot have been made a voter. One that has
// something stays: it may be the only copy left.
func (s *Shard) giveUpStranded(m *member) {
	g := m.r.Group()
	if g.Change.ID == 0 || g.Change.Add.ID != m.r.Self() || m.r.Applied() != 0 || m.id == model.MetaGroup ||
		s.now.Mono < m.reportAt || !g.Stranded(s.Nodes()) {
		return
	}
	m.reportAt = s.now.Mono.Add(reportEvery)
	s.askMeta(&call.ReportChange{Group: m.id, Change: g.Change.ID, GivenUp: true})
}

// folderGone says that the folder a replica was to be made in is not its node's
// any more: the node came back with another one, or left.
func (s *Shard) folderGone(r model.Replica) bool {
	if r.ID == 0 {
		return false
	}
	for _, n := range s.Nodes() {
		if n.ID == r.Node {
			return n.Disk != r.Disk
		}
	}
	return true
}

// meetNode makes sure that packets can go to a node of the cluster.
func (s *Shard) meetNode(n model.Node) {
	if n.ID == s.cfg.Self {
		if at := s.selfNode().Address; s.announceAt == model.Never && at != "" && at != n.Address {
			s.announceAt = s.now.Mono
		}
		return
	}
	p := s.peer(n.ID)
	if p == nil {
		p = s.addPeer(n.ID)
	}
	if p.registered != n.Disk {
		if p.inc.Disk != n.Disk && p.inc.Disk == p.registered {
			// The folder known here is no more: get to know the one that is.
			p.inc = model.Incarnation{}
			s.helloAt = s.now.Mono
		}
		p.registered = n.Disk
	}
	if !p.later || n.Address == "" || p.node.Address == n.Address {
		return // what was configured here counts here
	}
	p.node.Address = n.Address
	s.emit(Peer{n})
	if p.inc.Boot == 0 {
		s.helloAt = s.now.Mono
	}
}

// announce tells meta where this node serves while the catalog has another
// address for it: it was started at a new one.
func (s *Shard) announce() {
	s.announceAt = model.Never
	self := s.selfNode()
	for _, n := range s.Nodes() {
		if n.ID == self.ID && n.Disk == self.Disk && n.Address != self.Address && self.Address != "" {
			s.announceAt = s.now.Mono.Add(reportEvery)
			s.askMeta(&call.JoinNode{Node: self.ID, Disk: self.Disk, Address: self.Address})
		}
	}
}

// addPeer makes room for a node that was not configured here. Its address is not
// known to the host before a Peer effect tells it.
func (s *Shard) addPeer(id model.NodeID) *peer {
	p := &peer{node: model.Node{ID: id}, later: true}
	at := 0
	for at < len(s.peers) && s.peers[at].node.ID < id {
		at++
	}
	s.peers = append(s.peers, nil)
	copy(s.peers[at+1:], s.peers[at:])
	s.peers[at] = p
	return p
}

// maxStrangers bounds the peers that are neither configured nor in the catalog.
const maxStrangers = 64

// stranger takes a first packet of a node that is not known: it may want to join.
func (s *Shard) stranger(from model.NodeID) *peer {
	if model.ValidateName("node", string(from)) != nil || from == s.cfg.Self {
		return nil
	}
	n := 0
	for _, p := range s.peers {
		if p.later {
			n++
		}
	}
	if n >= maxStrangers+len(s.Nodes()) {
		return nil
	}
	return s.addPeer(from)
}

// Nodes lists the nodes of the cluster as applied here.
func (s *Shard) Nodes() []*model.Node {
	if s.meta == nil {
		return nil
	}
	return s.meta.Catalog().Nodes()
}

// letJoin answers a node with an empty folder that is not among the founders: if
// meta knows the folder already, with its replica of the meta group; else meta
// is asked to take it in.
func (s *Shard) letJoin(p *peer) {
	cat := s.meta.Catalog()
	g, _ := cat.Group(model.MetaGroup)
	if r, ok := g.On(p.node.ID, p.inc.Disk); ok {
		if r.Joined {
			s.sendHelloWith(p, false, g)
		}
		return
	}
	if s.now.Mono < p.joinAt {
		return
	}
	p.joinAt = s.now.Mono.Add(reportEvery)
	s.cfg.Probe.Hit(probe.NodeJoins)
	s.askMeta(&call.JoinNode{Node: p.node.ID, Disk: p.inc.Disk, Address: p.node.Address})
}
