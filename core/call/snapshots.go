package call

import (
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// KeepCursors keeps a subscription's cursors under a name, or forgets them.
// Answered by KeptCursors with the one that was kept or forgotten.
type KeepCursors struct {
	Target
	Name   string
	Forget bool
}

// ListCursors asks for all that is kept. Answered by KeptCursors.
type ListCursors struct{ Target }

// KeptCursors are snapshots of cursors, by name.
type KeptCursors struct{ Snapshots []CursorSnapshot }

// CursorSnapshot is where a subscription's cursors were at one moment.
type CursorSnapshot struct {
	Name    string
	Created model.Wall // of the coordinator's clock: for people alone
	Cursors []PartitionOffset
}

// Kinds of calls about snapshots of cursors.
func (*KeepCursors) Kind() Kind { return 46 }
func (*ListCursors) Kind() Kind { return 47 }
func (*KeptCursors) Kind() Kind { return 48 }

// Code implements wire.Coder.
func (m *KeepCursors) Code(c *wire.Codec) {
	m.code(c)
	wire.String(c, &m.Name)
	c.Bool(&m.Forget)
}

// Code implements wire.Coder.
func (m *ListCursors) Code(c *wire.Codec) { m.code(c) }

// Code implements wire.Coder.
func (m *KeptCursors) Code(c *wire.Codec) {
	wire.Slice(c, &m.Snapshots, func(c *wire.Codec, s *CursorSnapshot) {
		wire.String(c, &s.Name)
		wire.Int(c, &s.Created)
		wire.Slice(c, &s.Cursors, codePartitionOffset)
	})
}

type (
	// Snapshot keeps a subscription's cursors under a name, or forgets them.
	Snapshot struct {
		Subscription string
		Name         string
		Forget       bool
	}
	// ListSnapshots lists what is kept.
	ListSnapshots struct{ Subscription string }
	// SnapshotsResult answers both: the one kept or forgotten, or all.
	SnapshotsResult struct{ Snapshots []CursorSnapshot }
)

func (*Snapshot) client()      {}
func (*ListSnapshots) client() {}
