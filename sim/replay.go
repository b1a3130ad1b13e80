package sim

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/node"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// replayLater holds what a checkpoint and the journal give to the live state,
// shortly after the checkpoint, at the share of checkpoints that the options say.
func (n *simNode) replayLater() {
	if n.w.replays.hit(n.w.opts.Harm.Replay) {
		n.w.loop.after(time.Millisecond, n.live(n.replay))
	}
}

// replay opens a copy of the folder, as if the process had died now, and compares
// each group's machine with the live one at the index that the live one applied.
func (n *simNode) replay() {
	w := n.w
	if n.harm.damaged {
		return
	}
	copied := n.disk.Clone()
	copied.Heal()
	copied.Crash(simdisk.CrashMode{Keep: simdisk.KeepAll}, nil)
	fs := copied.FS()
	host, err := node.Open(node.Config{Core: core.Config{Self: n.id, Timing: w.opts.Timing, Limits: w.opts.Limits},
		FS: fs, Journal: w.newEngine(fs), NewDisk: 1, Random: 1})
	if err != nil {
		w.violate("live state equals replayed state", "%s: a copy of its folder does not open: %v", n.id, err)
		return
	}
	defer host.Close()
	loaded := host.Loaded()
	for _, id := range n.host.Shard().Replicas() {
		v := n.host.Shard().Replica(id).View()
		m, self, ok := loaded.Replay(id, v.Applied, w.opts.Limits, nobody{})
		if !ok || self != v.Replica {
			continue // the live one applied what a snapshot brought, or began just now
		}
		w.probe("state replayed")
		if got, want := xxhash.Sum64(m.Snapshot()), xxhash.Sum64(v.Machine.Snapshot()); got != want {
			w.violate("live state equals replayed state", "%s group %d at index %d: replayed state is %016x, live %016x",
				n.id, id, v.Applied, got, want)
		}
	}
}

// nobody is the host of a machine that only applies: nothing it asks for is done.
type nobody struct{}

var _ group.Host = nobody{}

func (nobody) Now() model.Mono                              { return 0 }
func (nobody) Wall() model.Wall                             { return 0 }
func (nobody) WallTrusted() bool                            { return false }
func (nobody) Propose([]byte) bool                          { return false }
func (nobody) Reply(group.Ref, call.Response, *model.Error) {}
func (nobody) ReadIndex(group.Ref)                          {}
func (nobody) Wake(model.Mono)                              {}
func (nobody) Ask(uint64, model.GroupID, call.Request)      {}
func (nobody) Rand() uint64                                 { return 0 }
func (nobody) Catalog() model.Catalog                       { return nil }
func (nobody) NotLeader() *model.Error                      { return nil }
func (nobody) Leading() bool                                { return false }
func (nobody) SegmentAppend([]byte)                         {}
func (nobody) SegmentRoll(model.Offset)                     {}
func (nobody) SegmentDrop(model.Offset)                     {}
func (nobody) Read(uint64, model.Offset, int)               {}
func (nobody) ReadAt(uint64, model.Wall)                    {}
