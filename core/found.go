package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/meta"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Founding a cluster. A node with an empty folder founds only when every
// configured peer says that its folder is empty, too, and that it would found the
// same, or when told to by Config.Bootstrap. What it founds names each node's data folder, so nodes that
// heard the same answers found the same cluster, and a node that finds itself
// named, by folder, in a peer's founding takes it over. A wiped node has a new
// folder id, is not named, and stays out: the empty voter it would otherwise
// play could vote committed data away.

// bootstrapWait is how long a node told to found waits for peers to say that
// they are empty and take part.
const bootstrapWait = 2 * time.Second

func (s *Shard) helloed(p *peer, h *hello) {
	if err := h.check(); err != nil {
		if !p.warned {
			p.warned = true
			s.note("node %s introduces itself wrongly: %v", p.node.ID, err)
		}
		return
	}
	if h.answer {
		s.sendHello(p, false)
	}
	if h.address != "" && p.node.Address != h.address && p.later {
		p.node.Address = h.address
		s.emit(Peer{p.node})
	}
	if h.peers != s.peersHash() && !p.warned && !p.later && s.founding == nil && h.founding == nil {
		p.warned = true
		s.note("node %s is configured with other peers than this node: give every node the same list", p.node.ID)
	}
	p.empty, p.backs = h.founding == nil, h.backs
	switch {
	case s.founding == nil && h.join != nil && h.founding != nil:
		s.join(h.founding, h.join, h.version)
	case h.join != nil && h.founding != nil && h.founding.Cluster == s.founding.Cluster:
		s.beginMetaAgain(h.join, h.version)
	case s.founding == nil && h.founding != nil:
		s.joinFounding(p, h.founding)
	case s.founding != nil && h.founding == nil && !s.isFounder(p):
		s.letJoin(p)
	case s.founding == nil:
		s.maybeFound()
	case h.founding != nil && h.founding.Cluster != s.founding.Cluster && !p.warned:
		p.warned = true
		s.note("node %s belongs to another cluster (%x, this is %x): its packets mean nothing here",
			p.node.ID, h.founding.Cluster, s.founding.Cluster)
	}
}

// joinFounding takes over a peer's founding that names this data folder.
func (s *Shard) joinFounding(p *peer, f *meta.Founding) {
	if s.named(f) {
		s.found(f)
		return
	}
	if !p.warned {
		p.warned = true
		s.note("this data folder is empty, and node %s belongs to cluster %x, which does not know it: "+
			"this node joins with new replicas once the cluster takes it in", p.node.ID, f.Cluster)
	}
}

// named says whether a founding names this data folder.
func (s *Shard) named(f *meta.Founding) bool {
	return slices.ContainsFunc(f.Nodes, func(n model.Node) bool { return n.ID == s.cfg.Self && n.Disk == s.self.Disk })
}

// isFounder says that a peer's folder is named by the founding: it takes the
// founding over by itself.
func (s *Shard) isFounder(p *peer) bool {
	for _, n := range s.founding.Nodes {
		if n.ID == p.node.ID && n.Disk == p.inc.Disk {
			return true
		}
	}
	return false
}

// beginMetaAgain replaces this node's replica of meta, which is out of its group
// and so cannot learn it from the catalog. One record does both: with a crash
// between two, the node would find no replica and begin as the founder it was.
func (s *Shard) beginMetaAgain(g *model.Group, version uint64) {
	m := s.byGroup[model.MetaGroup]
	id, here := s.joinsHere(g)
	if m == nil || !here || id == m.r.Self() || version <= s.seen || version <= s.meta.Catalog().Version() {
		return
	}
	s.endMember(m)
	s.createMember(*g, version)
	s.version = s.meta.Catalog().Version()
}

// check refuses what no node says: it would be founded or joined for good.
func (h *hello) check() error {
	if h.founding != nil {
		if err := h.founding.Validate(); err != nil {
			return err
		}
	}
	if g := h.join; g != nil && (h.founding == nil || g.ID != model.MetaGroup || g.Kind != model.GroupMeta ||
		len(g.Replicas) == 0) {
		return fmt.Errorf("group %d of kind %d is not a meta group that can be joined", g.ID, g.Kind)
	}
	return nil
}

// joinsHere says which replica of a group begins here as one that joins. Taken
// for a founder it would vote with an empty log.
func (s *Shard) joinsHere(g *model.Group) (model.ReplicaID, bool) {
	r, ok := g.On(s.cfg.Self, s.self.Disk)
	return r.ID, ok && r.Joined
}

// join makes this node part of a cluster that took its folder in.
func (s *Shard) join(f *meta.Founding, g *model.Group, version uint64) {
	if _, here := s.joinsHere(g); !here {
		return
	}
	s.foundThen(f, func() { s.createMember(*g, version) })
}

// maybeFound founds when every configured peer has said that it is empty, and
// that it would found the very same cluster. An empty answer alone grows old: by
// the time it counts, its sender may have founded with others. One that would
// found this cluster can only ever have founded this one.
func (s *Shard) maybeFound() {
	if s.founding != nil || s.foundSeq != 0 {
		return
	}
	f, missing := s.mayFound()
	backs := f.Cluster
	if missing > 0 {
		backs = 0
	}
	if backs != s.backs {
		s.backs = backs
		for _, p := range s.peers {
			s.sendHello(p, false)
		}
	}
	if missing > 0 && (!s.cfg.Bootstrap || s.now.Mono.Sub(s.started) < bootstrapWait) {
		return
	}
	for _, p := range s.peers {
		if !p.later && missing == 0 && p.backs != backs {
			return
		}
	}
	if err := f.Validate(); err != nil {
		s.note("this cluster cannot be founded: %v", err)
		return
	}
	s.found(f)
}

// mayFound is what this node would found with the peers that are known to be
// empty, and how many it lacks. Who is not configured here has to join.
func (s *Shard) mayFound() (f *meta.Founding, missing int) {
	f = &meta.Founding{Nodes: []model.Node{s.selfNode()}, Coordinators: s.cfg.Coordinators}
	for _, p := range s.peers {
		switch {
		case p.later:
		case p.inc.Boot != 0 && p.empty:
			n := p.node
			n.Disk = p.inc.Disk
			f.Nodes = append(f.Nodes, n)
		default:
			missing++
		}
	}
	slices.SortFunc(f.Nodes, func(a, b model.Node) int { return compare(a.ID, b.ID) })
	f.Cluster = clusterID(f.Nodes)
	return f, missing
}

func (s *Shard) selfNode() model.Node {
	n := model.Node{ID: s.cfg.Self, Disk: s.self.Disk}
	for _, p := range s.cfg.Peers {
		if p.ID == s.cfg.Self {
			n.Address = p.Address
		}
	}
	return n
}

// clusterID is a hash of the founding folders' ids: random as they are, and the
// same on every node that heard the same answers.
func clusterID(nodes []model.Node) uint64 {
	var c wire.Codec
	for i := range nodes {
		wire.String(&c, &nodes[i].ID)
		wire.Uint(&c, &nodes[i].Disk)
	}
	return xxhash.Sum64(c.Buf)
}

// found makes a founding durable; only then does this node act on it.
func (s *Shard) found(f *meta.Founding) { s.foundThen(f, func() {}) }

func (s *Shard) foundThen(f *meta.Founding, then func()) {
	if s.foundSeq != 0 {
		return
	}
	rec := JournalRecord{Type: RecordBootstrap, Payload: wire.Encode(f)}
	s.foundSeq = s.append(rec, true, nil, func() {
		s.founding = f
		then()
		s.begin()
		for _, p := range s.peers {
			s.sendHello(p, false) // who is still asking learns it at once
		}
	})
}
