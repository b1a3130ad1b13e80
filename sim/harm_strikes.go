package sim

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/node"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// harms are the nemesis' habits that concern disks.
func (m *nemesis) harms() []habit {
	h := &m.w.opts.Harm
	return []habit{
		{"full disk", h.Full, h.FullFor, m.drawFull},
		{"failing disk", h.Fail, 0, m.drawFail},
		{"damage", h.Damage, h.DamageFor, m.drawDamage},
		{"wipe", h.Wipe, h.WipeFor, m.drawWipe},
		{"set back", h.SetBack, h.SetBackFor, m.drawOn(strikeSetBack)},
	}
}

func (m *nemesis) drawFull(s *stream) *Strike {
	k := &Strike{Kind: strikeFull, Node: m.target(s).id, Free: s.Uint64N(2 * m.w.opts.Limits.FreeLow)}
	if s.IntN(3) == 0 {
		k.Free = 0
	}
	return k
}

// full leaves a disk little room, or none, for a while.
func (m *nemesis) full(n *simNode, free uint64) func() {
	watched := n.harm.watching
	n.fill(free)
	if n.up && !watched && m.w.opts.Harm.Full == 0 {
		n.watchDisk()
	}
	return func() {
		n.disk.Heal()
		m.w.fault(n.id, kindNotice, "its disk has room again")
	}
}

func (n *simNode) fill(free uint64) {
	n.harm.watching = true
	n.disk.SetFree(free)
	n.w.fault(n.id, kindNotice, "its disk has %d bytes left", free)
	n.w.probe("disk full")
}

// drawFail draws a call that is to fail, on some of the files.
func (m *nemesis) drawFail(s *stream) *Strike {
	return &Strike{Kind: strikeFail, Node: m.target(s).id, Call: pick(s, "sync", "sync", "write", "read"),
		Where: pick(s, "journal", "segments", "", "checkpoint-", "MANIFEST")}
}

func (n *simNode) failing(op simdisk.Op, where string) {
	n.disk.Fail(op, where, 1)
	n.w.fault(n.id, kindNotice, "a call of kind %d on %q will fail", op, where)
	n.w.probe("disk fails")
}

func (m *nemesis) drawDamage(s *stream) *Strike {
	n, how := m.target(s), s.Uint64()
	if !m.w.mayHarm(n) {
		return nil
	}
	k := &Strike{Kind: strikeDamage, Node: n.id, Draw: how, Unsynced: []string{string(m.w.drawUnsynced(s))}}
	k.Where = whereDamaged(newStream(how, "damage"))
	k.Stays = s.IntN(2) != 0
	return k
}

func whereDamaged(s *stream) string { return pick(s, "journal/", "segments/", "") }

// damage stops a node, changes durable bytes of its folder, and starts it, at
// once or later. What the start does not refuse the node must mend by itself.
func (m *nemesis) damage(n *simNode, k *Strike) func() {
	if !m.w.mayHarm(n) {
		return nil
	}
	n.crash(k.unsyncedAt(0))
	draw := newStream(k.Draw, "damage")
	whereDamaged(draw) // it was drawn when the strike was
	if !n.corrupt(draw, k.Where) {
		n.start()
		return nil
	}
	if !k.Stays {
		n.start()
	}
	n.watchMending(n.disk)
	return func() {
		if !n.up {
			n.start()
		}
	}
}

// watchMending looks now and then whether a damaged folder is sound again: the
// scrub, or a reader, met the damage, and another replica had the batch.
func (n *simNode) watchMending(folder *simdisk.Disk) {
	n.w.loop.after(time.Second, func() {
		switch {
		case !n.harm.damaged || n.harm.retired || n.disk != folder:
			return // rebuilt, or gone
		case n.up && n.unsound(nil) == "":
			n.harm.damaged = false
			n.w.fault(n.id, kindNotice, "its damage is mended")
			if n.host.Shard().Load().Repaired > 0 {
				n.w.probe("damage mended by another replica")
			} else {
				n.w.probe("damage gone with its file")
			}
			return
		}
		n.watchMending(folder)
	})
}

// unsound says what is wrong in a copy of the folder as it is now; "" is nothing.
// Files of which but, if not nil, says so are let pass.
func (n *simNode) unsound(but func(file string) bool) string {
	copied := n.disk.Clone()
	copied.Heal()
	copied.Crash(simdisk.CrashMode{Keep: simdisk.KeepAll}, nil)
	fs := copied.FS()
	r, err := node.Verify(fs, n.w.newEngine(fs))
	if err != nil {
		return err.Error()
	}
	for _, f := range r.Findings {
		if but == nil || !but(f.File) {
			return fmt.Sprintf("%s at byte %d: %s", f.File, f.Position, f.Cause)
		}
	}
	return ""
}

// unmended says what a running node owes to its damaged folder.
func (n *simNode) unmended() string {
	if !n.up || !n.harm.damaged {
		return ""
	}
	return n.unsound(n.outlived)
}

// outlived says that retention let go of all that a segment file holds. Nobody reads
// it again; it stays until the next checkpoint, which an idle node is in no hurry for.
func (n *simNode) outlived(file string) bool {
	dir, name := path.Split(file)
	group, err := strconv.ParseUint(path.Base(dir), 10, 64)
	r := n.host.Shard().Replica(model.GroupID(group))
	if err != nil || r == nil {
		return false
	}
	m, ok := r.Machine().(holder)
	if !ok {
		return false
	}
	for _, f := range n.disk.Files() {
		base, next := strings.CutPrefix(f.Name, dir)
		if begins, ok := fileBase(base); next && ok && base > name && begins <= m.LogStart() {
			n.w.probe("damage to what retention let go of")
			return true
		}
	}
	return false
}

// fileBase is the first offset of a segment file, as its name says.
func fileBase(name string) (model.Offset, bool) {
	digits, _, _ := strings.Cut(name, ".")
	base, err := strconv.ParseUint(digits, 10, 64)
	return model.Offset(base), err == nil
}

// corrupt changes durable bytes of a node that is down: a bit, a write that did
// not reach its place, or one that reached another's. where restricts it to
// files of a prefix. False: there was nothing that may be damaged.
func (n *simNode) corrupt(s *stream, where string) bool {
	name, off, size, ok := n.victim(s, where)
	if !ok {
		return false
	}
	old := append([]byte(nil), n.disk.Bytes(name)[off:off+size]...)
	kind := pick(s, "flipped bit", "flipped bit", "lost write", "misdirected write")
	var err error
	switch kind {
	case "flipped bit":
		err = n.disk.FlipBit(name, 8*off+s.Int64N(8*size))
	case "lost write":
		err = n.disk.Overwrite(name, off, make([]byte, min(size, 512)))
	default:
		other := make([]byte, min(size, 512))
		for i := range other {
			other[i] = byte(s.Uint32())
		}
		err = n.disk.Overwrite(name, off, other)
	}
	if err != nil || string(old) == string(n.disk.Bytes(name)[off:off+size]) {
		return false
	}
	n.harm.damaged = true
	n.w.fault(n.id, kindNotice, "%s in %s at byte %d", kind, name, off)
	n.w.probe(kind)
	return true
}

// kindOfFile is the folder of a file, or its name without a number.
func kindOfFile(name string) string {
	kind, _, _ := strings.Cut(name, "/")
	return strings.TrimRight(kind, "0123456789")
}

// victim picks a stretch of durable bytes whose damage recovery or a reader can
// see: any of a segment's, a checkpoint's, of MANIFEST and IDENTITY, and of a
// journal those of records that a later one says were durable. Each kind of file is
// as likely as any other: a folder has one manifest and many segments.
func (n *simNode) victim(s *stream, where string) (name string, off, size int64, ok bool) {
	files, kinds := map[string][]string{}, []string(nil)
	for _, f := range n.disk.Files() {
		if f.Size > 0 && strings.HasPrefix(f.Name, where) && !strings.HasSuffix(f.Name, ".tmp") {
			kind := kindOfFile(f.Name)
			if files[kind] == nil {
				kinds = append(kinds, kind)
			}
			files[kind] = append(files[kind], f.Name)
		}
	}
	which, at := s.Uint64(), s.Uint64()
	if len(kinds) == 0 {
		return "", 0, 0, false
	}
	slices.Sort(kinds)
	names := files[kinds[which%uint64(len(kinds))]]
	name = names[which/uint64(len(kinds))%uint64(len(names))]
	data := n.disk.Bytes(name)
	if !strings.HasPrefix(name, "journal/") {
		off = int64(at % uint64(len(data)))
		return name, off, min(512, int64(len(data))-off), true
	}
	frames := witnessed(data, n.engine.Unwrap)
	if len(frames) == 0 {
		return "", 0, 0, false
	}
	f := frames[at%uint64(len(frames))]
	return name, f[0], f[1], true
}

// witnessed lists the frames of a journal's file, as [start, length), that later
// frames of the same file say were durable. Its first one, the generation's
// start, is durable before any other is written.
// unwrap is the engine's.
func witnessed(data []byte, unwrap func(data []byte) (start, end int, ok bool)) [][2]int64 {
	const sequence, synced = 8, 16
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	var frames [][2]int64
	var seqs []uint64
	most := uint64(0)
	for at := 0; at < len(data); {
		start, end, ok := unwrap(data[at:])
		if !ok || end-start < record.HeaderSize {
			break
		}
		f := data[at+start : at+end]
		if crc32.Checksum(f[4:], castagnoli) != binary.LittleEndian.Uint32(f) {
			break // torn by a crash: no witness
		}
		frames = append(frames, [2]int64{int64(at + start), int64(len(f))})
		seqs = append(seqs, binary.LittleEndian.Uint64(f[sequence:]))
		most = max(most, binary.LittleEndian.Uint64(f[synced:]))
		at += end
	}
	var out [][2]int64
	for i, f := range frames {
		// The last frame is the witness: of itself it tells nothing.
		if i > 0 && i+1 < len(frames) && seqs[i] <= most {
			out = append(out, f)
		}
	}
	return out
}

func (m *nemesis) drawWipe(s *stream) *Strike {
	n := m.target(s)
	if !m.w.mayHarm(n) {
		return nil
	}
	return &Strike{Kind: strikeWipe, Node: n.id, Unsynced: []string{string(m.w.drawUnsynced(s))}}
}

// wipe stops a node and takes its folder away; it comes back empty.
func (m *nemesis) wipe(n *simNode, k *Strike) func() {
	if !m.w.mayHarm(n) {
		return nil
	}
	n.crash(k.unsyncedAt(0))
	n.wipe()
	return func() {
		if !n.up {
			n.start()
		}
	}
}

// setBack takes a copy of a folder, and after a while puts it in its place.
func (m *nemesis) setBack(n *simNode) func() {
	if n.harm.retired || !n.up {
		return nil
	}
	old, folder := n.disk.Clone(), n.disk
	return func() {
		if n.disk != folder || !m.w.mayHarm(n) {
			return
		}
		n.crash(keepUnsynced)
		n.setBackTo(old)
		n.start()
	}
}

// setBackTo gives a node that is down an earlier state of its folder.
func (n *simNode) setBackTo(old *simdisk.Disk) {
	old.Crash(simdisk.CrashMode{Keep: simdisk.KeepAll}, nil)
	old.Heal()
	n.disk, n.harm.damaged, n.harm.past = old, true, true
	n.w.fault(n.id, kindNotice, "its folder is an old copy")
	n.w.probe("set back")
}
