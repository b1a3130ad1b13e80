package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
	"github.com/tapedeck/tapedeck/core/wire"
)

// A data folder that is set back to an old copy of itself has forgotten votes and
// messages that it promised. Each packet says how often its sender's folder was
// started, where its journal ended at this start, and how far it is durable now;
// the others remember the highest of it. A folder that comes with less is an old
// copy: nothing it says is heard, and it is told so. What is remembered is in the
// checkpoint and, now and then, in the journal.
//
// A copy that cannot be told from a current one, since nobody remembers better,
// counts as a lost machine.

const (
	// livesEvery spaces the journal's records of them.
	livesEvery = 10 * time.Second
	// livesStep is how many records a journal grows by before it is worth one: what
	// is written because of others' such records must not bring about more of them.
	livesStep = 64
	// maxLives bounds how many folders are remembered beside those in use.
	maxLives = 64
)

// life is the most that is known of a data folder.
type life struct {
	disk    model.DiskID
	boot    uint64
	durable uint64 // sequence of a journal record that it said is durable
	saved   uint64 // durable as last journaled here; not part of the format
}

// Code implements wire.Coder.
func (l *life) Code(c *wire.Codec) {
	wire.Uint(c, &l.disk)
	wire.Uint(c, &l.boot)
	wire.Uint(c, &l.durable)
	if c.Decoding {
		l.saved = l.durable
	}
}

// lives are sorted by disk.
type lives []life

// Code implements wire.Coder.
func (ls *lives) Code(c *wire.Codec) {
	wire.Slice(c, (*[]life)(ls), func(c *wire.Codec, l *life) { l.Code(c) })
}

func (ls lives) find(d model.DiskID) (int, bool) {
	return slices.BinarySearchFunc(ls, d, func(l life, d model.DiskID) int {
		switch {
		case l.disk < d:
			return -1
		case l.disk > d:
			return 1
		}
		return 0
	})
}

// setBack says that a packet comes from an earlier life of a folder, or from an
// old copy of it.
func (ls lives) setBack(h *header) bool {
	i, ok := ls.find(h.from.Disk)
	return ok && ls[i].beats(h.from, h.base)
}

// beats says that a life that began with the given journal cannot follow this one.
func (l *life) beats(inc model.Incarnation, base uint64) bool {
	known := model.Incarnation{Disk: l.disk, Boot: l.boot}
	switch {
	case inc.Boot == l.boot:
		return false
	case inc.Starts() <= known.Starts():
		return true
	}
	return base < l.durable
}

// remember takes up what a packet says of its sender's folder.
func (s *Shard) remember(h *header) {
	i, ok := s.lives.find(h.from.Disk)
	if !ok {
		if s.forgetLives(); len(s.lives) >= maxLives+2*len(s.peers) {
			return
		}
		i, _ = s.lives.find(h.from.Disk)
		s.lives = slices.Insert(s.lives, i, life{disk: h.from.Disk})
	}
	l := &s.lives[i]
	l.durable = max(l.durable, h.durable)
	if l.boot != h.from.Boot {
		l.boot = h.from.Boot
		s.livesAt = s.now.Mono // a new life is worth a record at once
		return
	}
	if s.livesAt == model.Never && l.durable >= l.saved+livesStep {
		s.livesAt = s.now.Mono.Add(livesEvery)
	}
}

// forgetLives drops folders that no node has any more.
func (s *Shard) forgetLives() {
	inUse := map[model.DiskID]bool{}
	for _, p := range s.peers {
		inUse[p.inc.Disk], inUse[p.registered] = true, true
	}
	for _, n := range s.Nodes() {
		inUse[n.Disk] = true
	}
	s.lives = slices.DeleteFunc(s.lives, func(l life) bool { return !inUse[l.disk] })
}

// saveLives writes what is known to the journal. Nobody waits for it.
func (s *Shard) saveLives() {
	s.livesAt = model.Never
	if s.founding == nil {
		return // nothing depends on this folder yet
	}
	for i := range s.lives {
		s.lives[i].saved = s.lives[i].durable
	}
	s.journalAppend(JournalRecord{Type: RecordLives, Payload: wire.Encode(&s.lives)}, false)
}

// tellSetBack answers a folder that is an old copy, or the delayed packet of an
// earlier life, which then nobody hears.
func (s *Shard) tellSetBack(p *peer, to model.Incarnation) {
	if s.now.Mono < p.toldAt {
		return
	}
	p.toldAt = s.now.Mono.Add(helloInterval)
	s.cfg.Probe.Hit(probe.SetBackTold)
	i, _ := s.lives.find(to.Disk)
	var c wire.Codec
	s.header(to).Code(&c)
	item(&c, itemSetBack)
	s.lives[i].Code(&c)
	s.emit(Send{p.node.ID, c.Buf})
}

// toldSetBack ends this node: it has promised what it no longer knows of.
func (s *Shard) toldSetBack(p *peer, l *life) {
	if l.disk != s.self.Disk || !l.beats(s.self, s.journal.base) {
		return
	}
	s.cfg.Probe.Hit(probe.SetBackHeard)
	s.refused = fmt.Sprintf("node %s remembers a later state of this data folder: started %d times with %d journal "+
		"records, here it began start %d with %d; an old copy was put in its place, and what was written since is missing",
		p.node.ID, model.Incarnation{Boot: l.boot}.Starts(), l.durable, s.self.Starts(), s.journal.base)
}
