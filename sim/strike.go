package sim

import (
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// Strike is one fault, spelled out: a run that is given the strikes of another in
// place of habits does the same things at the same times.
type Strike struct {
	At   time.Duration // since faults began
	For  time.Duration // until it is mended, if it is to be mended
	Kind string        // one of StrikeKinds
	Node model.NodeID  // whom it befalls; empty: all
	Peer model.NodeID  // the other end of a link

	Unsynced []string      // of a crash; of a power cut one per node; of harm that begins with one
	Again    bool          // of a crash: power fails once more just after recovery
	By       time.Duration // of a jump
	Free     uint64        // bytes left on a full disk
	Call     string        // which call of a disk fails: sync, write, read
	Where    string        // on files of which prefix
	Draw     uint64        // damage is drawn from it
	Stays    bool          // damage: the node is not started before it is mended
}

// The kinds of strikes.
const (
	strikeCrash    = "crash"
	strikePowerCut = "power-cut"
	strikePause    = "pause"
	strikeCut      = "cut"
	strikeOneWay   = "one-way"
	strikeIsolate  = "isolate"
	strikeHold     = "hold"
	strikeReset    = "reset"
	strikeSlow     = "slow-disk"
	strikeJump     = "jump"
	strikeFull     = "full-disk"
	strikeFail     = "failing-disk"
	strikeDamage   = "damage"
	strikeWipe     = "wipe"
	strikeSetBack  = "set-back"
)

// StrikeKinds are all kinds of strikes.
func StrikeKinds() []string {
	return []string{strikeCrash, strikePowerCut, strikePause, strikeCut, strikeOneWay, strikeIsolate, strikeHold,
		strikeReset, strikeSlow, strikeJump, strikeFull, strikeFail, strikeDamage, strikeWipe, strikeSetBack}
}

// carryOut does what a strike says and returns what mends it, or nil. A strike on
// a node that is not there does nothing.
func (m *nemesis) carryOut(k *Strike) (mend func()) {
	n, peer := m.w.node(k.Node), m.w.node(k.Peer)
	linked := n != nil && peer != nil && n != peer
	switch k.Kind {
	case strikePowerCut:
		return m.powerCut(k)
	case strikeCut, strikeOneWay, strikeHold, strikeReset:
		if linked {
			return m.link(k.Kind, n, peer)
		}
		return nil
	}
	if n == nil {
		return nil
	}
	switch k.Kind {
	case strikeCrash:
		return m.crash(n, k)
	case strikePause:
		n.pause()
		return n.resume
	case strikeIsolate:
		return m.isolate(n)
	case strikeSlow:
		return m.slowDisk(n)
	case strikeJump:
		m.jump(n, k.By)
	case strikeFull:
		return m.full(n, k.Free)
	case strikeFail:
		n.failing(diskCalls[k.Call], k.Where)
	case strikeDamage:
		return m.damage(n, k)
	case strikeWipe:
		return m.wipe(n, k)
	case strikeSetBack:
		return m.setBack(n)
	}
	return nil
}

// diskCalls are the calls that can be made to fail.
var diskCalls = map[string]simdisk.Op{"sync": simdisk.OpSync, "write": simdisk.OpWrite, "read": simdisk.OpRead}

// unsyncedAt is what a strike says of the i-th node's unsynced data.
func (k *Strike) unsyncedAt(i int) unsynced {
	if len(k.Unsynced) == 0 {
		return loseUnsynced
	}
	return unsynced(k.Unsynced[min(i, len(k.Unsynced)-1)])
}

// String is a strike as a scenario's command.
func (k *Strike) String() string {
	w := words{"strike", k.Kind}
	if k.Node != "" {
		w.add(string(k.Node))
	}
	if k.Peer != "" {
		w.add(string(k.Peer))
	}
	w.named("at", k.At.String())
	if k.For > 0 {
		w.named("for", k.For.String())
	}
	if len(k.Unsynced) > 0 {
		w.named("unsynced", strings.Join(k.Unsynced, ","))
	}
	if k.Again {
		w.named("again", "true")
	}
	if k.By != 0 {
		w.named("by", k.By.String())
	}
	if k.Kind == strikeFull {
		w.named("free", uitoa(k.Free))
	}
	if k.Call != "" {
		w.named("call", k.Call)
	}
	if k.Where != "" {
		w.named("where", k.Where)
	}
	if k.Draw != 0 {
		w.named("draw", uitoa(k.Draw))
	}
	if k.Stays {
		w.named("stays", "true")
	}
	return w.String()
}

// words are a command being written.
type words []string

// String is the command.
func (w words) String() string { return strings.Join(w, " ") }

func (w *words) add(word string)          { *w = append(*w, word) }
func (w *words) named(name, value string) { *w = append(*w, name+"="+value) }

// Plan is a run's options with the strikes that befell it in place of its habits.
func Plan(o Options, strikes []Strike) Options {
	o = o.clone()
	o.Planned, o.Strikes, o.Faults = true, strikes, FaultOptions{}
	o.Harm = HarmOptions{Replay: o.Harm.Replay, Full: o.Harm.Full, FailFor: o.Harm.FailFor}
	return o
}
