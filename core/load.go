package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tapedeck/tapedeck/core/meta"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/replica"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Loaded is a data folder's content, put together and found sound.
type Loaded struct {
	self       model.NodeID
	disk       model.DiskID
	founding   *meta.Founding
	groups     map[model.GroupID]*loadedGroup
	generation uint64
	seen       uint64 // newest catalog version acted on
	lives      lives
}

// Founded says that the folder is part of a cluster.
func (l *Loaded) Founded() bool { return l.founding != nil }

type loadedGroup struct {
	definition definition
	loader     *replica.Loader
	reset      *model.Offset
}

// Load puts checkpoint and journal together. It fails when they contradict each
// other or a log ends below its commit index: then this folder must not be used,
// since what is missing may have been acknowledged. The marks say to which
// bounds the host must cut each partition's stored segments; a partition without
// a mark is to be removed. Without a self, as when a folder is only looked at, its
// disk id tells whose it is.
func (r *Recovered) Load(self model.NodeID, limits Limits) (*Loaded, []SegmentMark, error) {
	l := &Loaded{self: self, disk: r.Incarnation.Disk, groups: map[model.GroupID]*loadedGroup{}, generation: r.Generation}
	if r.Checkpoint != nil {
		var st checkpointState
		if err := wire.Decode(r.Checkpoint, &st); err != nil {
			return nil, nil, fmt.Errorf("the checkpoint named by the manifest: %w", err)
		}
		l.founding, l.seen, l.lives = st.founding, st.seen, st.lives
		for _, m := range st.members {
			g := &loadedGroup{definition: m.definition, loader: l.fresh(&m.definition)}
			g.loader.Checkpoint(m.applied)
			l.groups[m.definition.group.ID] = g
		}
	}
	for i := range r.Records {
		if err := l.record(&r.Records[i]); err != nil {
			return nil, nil, fmt.Errorf("journal record %d (group %d, type %d): %w",
				i, r.Records[i].Group, r.Records[i].Type, err)
		}
	}
	var marks []SegmentMark
	for _, id := range slices.Sorted(maps.Keys(l.groups)) {
		g := l.groups[id]
		if err := g.loader.Finish(); err != nil {
			return nil, nil, fmt.Errorf("group %d: %w", id, err)
		}
		if g.definition.group.Kind != model.GroupPartition {
			continue
		}
		mark, err := g.mark(limits.withDefaults())
		if err != nil {
			return nil, nil, fmt.Errorf("group %d: %w", id, err)
		}
		marks = append(marks, mark)
	}
	return l, marks, nil
}

func (l *Loaded) record(rec *JournalRecord) error {
	g := l.groups[rec.Group]
	switch rec.Type {
	case RecordBootstrap:
		l.founding = &meta.Founding{}
		return wire.Decode(rec.Payload, l.founding)
	case RecordGroup:
		g = &loadedGroup{}
		if err := wire.Decode(rec.Payload, &g.definition); err != nil {
			return err
		}
		l.seen = max(l.seen, g.definition.created)
		g.loader = l.fresh(&g.definition)
		l.groups[rec.Group] = g
		return nil
	case RecordDrop:
		l.seen = max(l.seen, rec.Index)
		delete(l.groups, rec.Group)
		return nil
	case RecordMark:
		return nil
	case RecordLives:
		return wire.Decode(rec.Payload, &l.lives) // a later one knows all that an earlier one did
	}
	if g == nil {
		return fmt.Errorf("its group was never created here")
	}
	switch rec.Type {
	case RecordReady:
		was := g.loader.Snapshots()
		err := g.loader.Ready(rec.Payload)
		if g.loader.Snapshots() > was {
			g.reset = nil // the snapshot accounts for what was stored since
		}
		return err
	case RecordBase:
		return g.loader.Base(rec.Payload)
	case RecordReset:
		at := model.Offset(rec.Index)
		g.reset = &at
		return nil
	}
	return fmt.Errorf("its type is unknown to this build")
}

// fresh is the state of a replica that has written nothing yet.
func (l *Loaded) fresh(d *definition) *replica.Loader {
	r, _ := d.group.On(l.self, l.disk)
	for _, x := range d.group.Replicas {
		if l.self == "" && x.Disk == l.disk {
			r = x
		}
	}
	return replica.NewLoader(d.group, r.ID)
}

// mark is where the stored segments of a partition begin and end for certain.
func (g *loadedGroup) mark(limits Limits) (SegmentMark, error) {
	p := newPartition(g.definition.group, &Config{Limits: limits})
	if g.loader.Machine() != nil {
		if err := p.Restore(g.loader.Machine()); err != nil {
			return SegmentMark{}, err
		}
	}
	return markOf(g.definition.group.ID, p, g.reset), nil
}

// start takes up what the host found on disk.
func (s *Shard) start(rec *Recovered) {
	s.self = rec.Incarnation
	s.started = s.now.Mono
	l := rec.Loaded
	if l == nil {
		var err error
		if l, _, err = rec.Load(s.cfg.Self, s.cfg.Limits); err != nil {
			panic(fmt.Sprintf("start with a folder that Load refuses: %v", err))
		}
	}
	s.journal.generation = rec.Generation
	s.journal.checkpointAt = s.now.Mono.Add(s.cfg.Timing.CheckpointAfter)
	s.journal.records = len(rec.Records)
	for i := range rec.Records {
		s.journal.bytes += int64(len(rec.Records[i].Payload)) + 96
	}
	s.founding, s.seen, s.lives = l.founding, l.seen, l.lives
	s.journal.base, s.journal.durable = rec.Sequence, rec.Sequence
	s.scrub.at = s.now.Mono.Add(s.cfg.Timing.ScrubEvery)
	if s.founding != nil && l.groups[model.MetaGroup] == nil && !s.named(s.founding) {
		// It was let join, and crashed before its first replica was durable: it has
		// promised nothing, and asks again.
		s.founding = nil
	}
	for _, id := range slices.Sorted(maps.Keys(l.groups)) {
		g := l.groups[id]
		if err := s.addMember(g.definition, g.loader); err != nil {
			panic(err)
		}
		s.byGroup[id].resetAt = g.reset
	}
	if s.founding != nil {
		s.begin()
	} else {
		s.maybeFound()
	}
	s.hello()
}

// begin starts the first groups, unless they came from the journal, and follows the catalog.
func (s *Shard) begin() {
	if s.byGroup[model.MetaGroup] == nil {
		s.followFounding()
	}
	if s.meta != nil {
		s.version = s.meta.Catalog().Version()
		s.followCatalog()
	}
}

// followFounding creates the meta replica; the catalog it starts with names the
// other groups of the founding.
func (s *Shard) followFounding() {
	for _, g := range s.founding.Groups() {
		if g.ID != model.MetaGroup {
			continue
		}
		if _, here := s.replicaHere(&g); !here {
			panic("this node takes part in a founding that does not name it")
		}
		s.createMember(g, 0)
	}
}
