package core

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/meta"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Founding a cluster. A node with an empty folder founds only when every
// configured peer says that its folder is empty, too, or when told to by
// Config.Bootstrap. What it founds names each node's data folder, so nodes that
// heard the same answers found the same cluster, and a node that finds itself
// named, by folder, in a peer's founding takes it over. A wiped node has a new
// folder id, is not named, and stays out: the empty voter it would otherwise
// play could vote committed data away.

// bootstrapWait is how long a node told to found waits for peers to say that
// they are empty and take part.
const bootstrapWait = 2 * time.Second

func (s *Shard) helloed(p *peer, h *hello) {
	if h.answer {
		s.sendHello(p, false)
	}
	if h.peers != s.peersHash() && !p.warned {
		p.warned = true
		s.note("node %s is configured with other peers than this node: give every node the same list", p.node.ID)
	}
	p.empty = h.founding == nil
	switch {
	case s.founding == nil && h.founding != nil:
		s.joinFounding(p, h.founding)
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
	for _, n := range f.Nodes {
		if n.ID == s.cfg.Self && n.Disk == s.self.Disk {
			s.found(f)
			return
		}
	}
	if !p.warned {
		p.warned = true
		s.note("this data folder is empty, but node %s belongs to cluster %x, which does not know this folder: "+
			"it does not vote until it is added as a new replica; restore the folder if it was moved", p.node.ID, f.Cluster)
	}
}

// maybeFound founds when every peer has said that it is empty.
func (s *Shard) maybeFound() {
	if s.founding != nil || s.foundSeq != 0 {
		return
	}
	nodes := []model.Node{s.selfNode()}
	missing := 0
	for _, p := range s.peers {
		if p.inc.Boot != 0 && p.empty {
			n := p.node
			n.Disk = p.inc.Disk
			nodes = append(nodes, n)
		} else {
			missing++
		}
	}
	if missing > 0 && (!s.cfg.Bootstrap || s.now.Mono.Sub(s.started) < bootstrapWait) {
		return
	}
	f := &meta.Founding{Nodes: nodes, Coordinators: s.cfg.Coordinators}
	slices.SortFunc(f.Nodes, func(a, b model.Node) int { return compare(a.ID, b.ID) })
	f.Cluster = clusterID(f.Nodes)
	if err := f.Validate(); err != nil {
		s.note("this cluster cannot be founded: %v", err)
		return
	}
	s.found(f)
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
func (s *Shard) found(f *meta.Founding) {
	if s.foundSeq != 0 {
		return
	}
	rec := JournalRecord{Type: RecordBootstrap, Payload: wire.Encode(f)}
	s.foundSeq = s.append(rec, true, nil, func() {
		s.founding = f
		s.begin()
		for _, p := range s.peers {
			s.sendHello(p, false) // who is still asking learns it at once
		}
	})
}
