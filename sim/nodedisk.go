package sim

import (
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// unsynced says what a crash does to data that was written and not synced.
type unsynced string

// Fates of unsynced data.
const (
	keepUnsynced unsynced = "keep" // only the process dies
	loseUnsynced unsynced = "lose" // a power cut at its worst
	tearUnsynced unsynced = "torn" // any part of it stays, in any order, cut anywhere
)

var diskKeeps = map[unsynced]simdisk.Keep{
	keepUnsynced: simdisk.KeepAll, loseUnsynced: simdisk.KeepNone, tearUnsynced: simdisk.KeepSome,
}

// dying carries out part of the disk work that was waiting, none of its syncs,
// and then lets the disk lose what it may.
func (n *simNode) dying(keep unsynced) {
	s := n.w.crashes
	how, upTo := s.Uint64(), s.Uint64()
	works := append(n.journal.doing[:len(n.journal.doing):len(n.journal.doing)], n.journal.queue...)
	if keep != loseUnsynced && len(works) > 0 && how%4 > 0 {
		n.disk.FailSync("", 1<<30)
		n.host.DoJournal(works[:1+upTo%uint64(len(works))])
	}
	n.disk.Crash(simdisk.CrashMode{Keep: diskKeeps[keep]}, s.Rand)
	n.closeEngine()
}

// newEngine is a journal engine over a node's disk.
func (w *World) newEngine(fsys disk.FS) record.Engine {
	if w.opts.Journal.New == nil {
		return simdisk.NewEngine(fsys, "journal")
	}
	return w.opts.Journal.New(fsys, "journal")
}

// closeEngine frees what the engine of a boot that is over holds outside of the
// simulation; nothing reaches the disk by it.
func (n *simNode) closeEngine() {
	if n.engine == nil {
		return
	}
	if err := n.engine.Close(); err != nil {
		n.w.violate("journal engine", "%s: its engine does not close: %v", n.id, err)
	}
}

// closeEngines is the end of a run.
func (w *World) closeEngines() {
	for _, n := range w.nodes {
		n.closeEngine()
	}
}
