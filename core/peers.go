package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/meta"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
	"github.com/tapedeck/tapedeck/core/replica"
	"github.com/tapedeck/tapedeck/core/wire"
)

// peer is another node as seen from here.
type peer struct {
	node       model.Node
	inc        model.Incarnation // zero: unknown
	empty      bool              // it said so, in the incarnation above
	backs      uint64            // the cluster it would found, as it said then
	heard      model.Mono        // last packet
	known      bool              // heard is set
	registered model.DiskID      // its folder as the catalog names it
	later      bool              // not configured: it joined
	joinAt     model.Mono        // meta is not asked again to let it join before
	down       bool              // its stream was lost and nothing was heard since
	toldAt     model.Mono        // it is not told again before that its folder is an old copy
	seen       window            // ids of requests taken from this incarnation
	warned     bool              // its configuration was complained of
	diskLow    bool              // it said so last
	skew       int64             // its wall clock minus ours, nanoseconds, when last heard
	out        wire.Codec        // the packet being put together
}

const (
	helloInterval = 200 * time.Millisecond
	reachableFor  = 5 * time.Second
	packetBytes   = 4 << 20 // a packet this large is sent off within the step
)

// Kinds of items in a packet. Numbers are part of the format.
const (
	itemHello    uint8 = 1
	itemRaft     uint8 = 2
	itemRequest  uint8 = 3
	itemResponse uint8 = 4
	itemCancel   uint8 = 5
	itemSetBack  uint8 = 6
)

// header precedes a packet's items.
type header struct {
	from, to model.Incarnation // to is zero in a packet that holds but a hello
	wall     model.Wall
	// The sender's journal: its last record when this life began, and the highest
	// one known durable. Counted over all lives.
	base, durable uint64
	low           bool // the sender's disk is nearly full
}

func (h *header) Code(c *wire.Codec) {
	c.Version(3)
	wire.Uint(c, &h.from.Disk)
	wire.Uint(c, &h.from.Boot)
	wire.Uint(c, &h.to.Disk)
	wire.Uint(c, &h.to.Boot)
	wire.Int(c, &h.wall)
	wire.Uint(c, &h.base)
	wire.Uint(c, &h.durable)
	c.Bool(&h.low)
}

// header is of a packet to the given incarnation.
func (s *Shard) header(to model.Incarnation) *header {
	return &header{from: s.self, to: to, wall: s.now.Wall, base: s.journal.base, durable: s.journal.durable,
		low: s.diskLow}
}

// hello introduces a node: its incarnation is in the header.
type hello struct {
	answer   bool // please answer
	peers    uint64
	address  string
	backs    uint64         // empty: the cluster this node would found; 0: none yet
	founding *meta.Founding // nil: my folder is empty
	join     *model.Group   // the meta group, for one that was let join,
	version  uint64         // as of this version of the catalog
}

func (h *hello) Code(c *wire.Codec) {
	c.Bool(&h.answer)
	wire.Uint(c, &h.peers)
	wire.String(c, &h.address)
	wire.Uint(c, &h.backs)
	founded := h.founding != nil
	c.Bool(&founded)
	if founded {
		if c.Decoding {
			h.founding = &meta.Founding{}
		}
		h.founding.Code(c)
	}
	join := h.join != nil
	c.Bool(&join)
	if join {
		if c.Decoding {
			h.join = &model.Group{}
		}
		meta.CodeGroup(c, h.join)
		wire.Uint(c, &h.version)
	}
}

func (s *Shard) peer(n model.NodeID) *peer {
	i, ok := slices.BinarySearchFunc(s.peers, n, func(p *peer, n model.NodeID) int { return compare(p.node.ID, n) })
	if !ok {
		return nil
	}
	return s.peers[i]
}

// to returns the packet being put together for a peer whose incarnation is
// known, or nil: what would be sent to an unknown one is lost like on a cut link.
func (s *Shard) to(p *peer) *wire.Codec {
	if p == nil || p.inc.Boot == 0 {
		return nil
	}
	if n := len(p.out.Buf); n >= packetBytes || n > 0 && s.cfg.Choice.Rare(choice.PacketEnds) {
		s.flushPeer(p)
	}
	if len(p.out.Buf) == 0 {
		p.out.Buf = make([]byte, 0, 512)
		s.header(p.inc).Code(&p.out)
	}
	return &p.out
}

func (s *Shard) flushPeer(p *peer) {
	if len(p.out.Buf) > 0 {
		s.emit(Send{p.node.ID, p.out.Buf})
		p.out.Buf = nil
	}
}

func (s *Shard) flush() {
	for _, p := range s.peers {
		s.flushPeer(p)
	}
}

func item(c *wire.Codec, kind uint8) { c.Buf = append(c.Buf, kind) }

func (s *Shard) sendRaft(g model.GroupID, to model.Replica, m *pb.Message) {
	p := s.peer(to.Node)
	if p == nil || p.inc.Disk != to.Disk {
		return // a wiped node is not the replica this message is for
	}
	if c := s.to(p); c != nil {
		item(c, itemRaft)
		wire.Uint(c, &g)
		(&replica.Message{Message: m}).Code(c)
	}
}

// hello goes to every peer not known yet, and from an empty node to all, until
// it is part of a cluster.
func (s *Shard) hello() {
	s.helloAt = model.Never
	for _, p := range s.peers {
		// One whose stream was lost may have nothing to say by itself, and is
		// passed over by the gateway until it is heard.
		if (p.inc.Boot == 0 || p.down) && (!p.later || p.node.Address != "") || s.founding == nil {
			s.sendHello(p, true)
			s.helloAt = s.now.Mono.Add(helloInterval)
		}
	}
	if s.founding == nil {
		s.maybeFound()
	}
}

func (s *Shard) sendHello(p *peer, answer bool) { s.sendHelloWith(p, answer, nil) }

func (s *Shard) sendHelloWith(p *peer, answer bool, join *model.Group) {
	c := wire.Codec{}
	s.header(model.Incarnation{}).Code(&c)
	item(&c, itemHello)
	h := hello{answer: answer, peers: s.peersHash(), address: s.selfNode().Address, backs: s.backs,
		founding: s.founding, join: join}
	if join != nil {
		h.version = s.meta.Catalog().Version()
	}
	h.Code(&c)
	s.emit(Send{p.node.ID, c.Buf})
}

// peersHash is of the configured names: nodes that disagree must not found together.
func (s *Shard) peersHash() uint64 {
	names := []model.NodeID{s.cfg.Self}
	for _, p := range s.peers {
		if !p.later {
			names = append(names, p.node.ID)
		}
	}
	slices.Sort(names)
	var b []byte
	for _, n := range names {
		b = append(append(b, n...), 0)
	}
	return xxhash.Sum64(b)
}

// packet takes a peer's packet. Damaged ones are dropped as a whole from the
// damage on; the transport's streams make that a peer's bug, not weather.
func (s *Shard) packet(from model.NodeID, data []byte) {
	c := wire.Codec{Buf: data, Decoding: true}
	var h header
	if h.Code(&c); c.Err != nil || h.from.Boot == 0 || h.from.Disk == 0 {
		return
	}
	p := s.peer(from)
	if p == nil {
		if p = s.stranger(from); p == nil {
			return
		}
	}
	if s.lives.setBack(&h) {
		s.tellSetBack(p, h.from)
		return
	}
	if !s.incarnation(p, h.from) {
		return
	}
	s.remember(&h)
	p.heard, p.known, p.down = s.now.Mono, true, false
	p.skew, p.diskLow = int64(h.wall-s.now.Wall), h.low
	if h.to != s.self && h.to != (model.Incarnation{}) {
		s.cfg.Probe.Hit(probe.FormerLife)
		s.sendHello(p, false) // it speaks to a former life of this node
		return
	}
	for len(c.Buf) > 0 {
		kind := c.Buf[0]
		c.Buf = c.Buf[1:]
		if kind != itemHello && h.to != s.self {
			return
		}
		s.item(p, kind, &c)
		if c.Err != nil {
			return
		}
	}
}

// incarnation fences former lives of a peer and notices new ones.
func (s *Shard) incarnation(p *peer, inc model.Incarnation) bool {
	switch {
	case p.inc == inc:
		return true
	case p.inc.Disk == inc.Disk && inc.Boot < p.inc.Boot:
		return false
	case p.inc.Boot != 0 && p.inc.Disk != inc.Disk && inc.Disk != p.registered && !p.down && s.reachable(p):
		// Two folders under one name at the same time: the one that was here
		// first stays, or each would have the other's replicas replaced for ever.
		s.cfg.Probe.Hit(probe.TwoFolders)
		return false
	case p.inc.Boot != 0 && p.inc.Disk != inc.Disk && p.registered == p.inc.Disk:
		s.cfg.Probe.Hit(probe.OtherFolder)
		s.note("node %s comes with another data folder (disk %x, was %x): it was wiped, and is not the replica it was",
			p.node.ID, uint64(inc.Disk), uint64(p.inc.Disk))
	}
	if p.inc.Boot != 0 {
		s.peerDown(p.node.ID) // whatever was under way there died with it
		s.forgetAsks(p.node.ID)
	}
	p.inc, p.empty, p.backs, p.seen = inc, false, 0, window{}
	return true
}

func (s *Shard) item(p *peer, kind uint8, c *wire.Codec) {
	switch kind {
	case itemHello:
		var h hello
		if h.Code(c); c.Err == nil {
			s.helloed(p, &h)
		}
	case itemRaft:
		var g model.GroupID
		var m replica.Message
		wire.Uint(c, &g)
		if m.Code(c); c.Err == nil {
			mb := s.byGroup[g]
			if mb != nil && uint64(mb.r.Self()) == m.GetTo() && mb.r.From(m.GetFrom(), p.node.ID, p.inc.Disk) &&
				!s.overfull(mb, m.Message) {
				mb.r.Step(m.Message)
			}
		}
	case itemRequest:
		s.remoteRequest(p, c)
	case itemResponse:
		s.remoteResponse(p, c)
	case itemCancel:
		var ask uint64
		wire.Uint(c, &ask)
		s.withdrawn(askKey{p.node.ID, ask})
	case itemSetBack:
		var l life
		if l.Code(c); c.Err == nil {
			s.toldSetBack(p, &l)
		}
	default:
		c.Fail(fmt.Errorf("packet item %d is unknown to this build", kind))
	}
}

func (s *Shard) peerDown(n model.NodeID) {
	if p := s.peer(n); p != nil {
		p.down = true
		s.helloAt = min(s.helloAt, s.now.Mono.Add(helloInterval))
	}
	for _, m := range s.members {
		m.r.PeerDown(n)
		if m.copying != nil && m.copying.from == n {
			m.copying.retryAt = s.now.Mono.Add(helloInterval)
		}
		s.plan(m)
	}
	s.gate.PeerDown(n)
}

// wallTrusted compares this node's wall clock with the median of all nodes heard
// of lately. Of an even number both middle ones count: with two nodes nobody can
// tell whose clock is off, so neither trusts its own.
func (s *Shard) wallTrusted() bool {
	skews := []int64{0}
	for _, p := range s.peers {
		if s.reachable(p) {
			skews = append(skews, p.skew)
		}
	}
	slices.Sort(skews)
	for _, median := range [2]int64{skews[(len(skews)-1)/2], skews[len(skews)/2]} {
		if max(median, -median) > int64(s.cfg.Timing.MaxSkew) {
			s.cfg.Probe.Hit(probe.ClockNotTrusted)
			return false
		}
	}
	return true
}

func (s *Shard) reachable(p *peer) bool {
	return p.known && s.now.Mono.Sub(p.heard) < reachableFor
}

func (s *Shard) note(format string, args ...any) { s.emit(Note{fmt.Sprintf(format, args...)}) }

func (s *Shard) ask(to model.NodeID, ask uint64, g model.GroupID, req call.Request) {
	if to == s.cfg.Self {
		s.deliver(origin{node: to, ask: ask}, g, req)
		return
	}
	if c := s.to(s.peer(to)); c != nil {
		body := call.Encode(nil, req)
		item(c, itemRequest)
		wire.Uint(c, &ask)
		wire.Uint(c, &g)
		c.Bytes(&body)
	}
}
