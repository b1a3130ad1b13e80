package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/disk/segment"
)

// Files at the top of a data folder. Each is framed: magic u32, crc32c u32 over
// the rest, length u32, then the content; written whole to a temporary name,
// synced, renamed, and the folder synced.
// IdentityFile is in each node's data folder, and in no other.
const IdentityFile = "IDENTITY"

const (
	manifestFile     = "MANIFEST"
	checkpointPrefix = "checkpoint-"
	segmentsDir      = "segments"
	journalDir       = "journal"
	frameMagic       = 0x4b444154 // "TADK"
	frameHeader      = 12

	temporarySuffix = ".tmp"
	mountDir        = "lost+found" // in a folder where a file system is mounted; never touched
)

const wipeAdvice = "what was acknowledged may be missing here, so nothing was changed: move this data folder's " +
	"content aside and let the node rejoin empty; its peers hold the data"

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// identity is who this data folder is. It is written at open and on the
// journal's lane, which never run at once.
type identity struct {
	model.Incarnation
	// founded: this folder is part of a cluster. It is set before the core hears
	// of it, so a founded folder without a founding has lost its journal.
	founded bool
	// refused is why the folder must not be used any more; "" while it may.
	refused string
	// node is whose folder this is: under another name it would answer for
	// replicas that are not its own.
	node model.NodeID
}

// Code implements wire.Coder.
func (i *identity) Code(c *wire.Codec) {
	c.Version(3)
	wire.Uint(c, &i.Disk)
	wire.Uint(c, &i.Boot)
	c.Bool(&i.founded)
	wire.String(c, &i.refused)
	wire.String(c, &i.node)
}

// manifest names what recovery starts from.
type manifest struct {
	self       model.Incarnation // of IDENTITY, not part of the file
	checkpoint uint64            // number of the checkpoint file; 0: none yet
	generation uint64            // first journal generation to replay
	durable    uint64            // journal sequence known durable when written
}

// Code implements wire.Coder.
func (m *manifest) Code(c *wire.Codec) {
	c.Version(1)
	wire.Uint(c, &m.checkpoint)
	wire.Uint(c, &m.generation)
	wire.Uint(c, &m.durable)
}

func checkpointFile(n uint64) string { return checkpointPrefix + strconv.FormatUint(n, 10) }

// writeFile replaces a file durably.
func writeFile(f disk.FS, name string, content []byte) error {
	frame := make([]byte, frameHeader, frameHeader+len(content))
	frame = append(frame, content...)
	binary.LittleEndian.PutUint32(frame, frameMagic)
	binary.LittleEndian.PutUint32(frame[8:], uint32(len(content)))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[8:], crcTable))
	tmp := name + temporarySuffix
	if err := f.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	file, err := f.Create(tmp)
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	_, err = file.WriteAt(frame, 0)
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = f.Rename(tmp, name)
	}
	if err == nil {
		err = f.SyncDir(".")
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// readFile returns a file's content, nil if there is none.
func readFile(f disk.FS, name string) ([]byte, error) {
	file, err := f.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	frame := make([]byte, size)
	if n, err := file.ReadAt(frame, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(frame)) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	refuse := func(cause string) error {
		return &record.Refused{File: name, Cause: cause, Advice: wipeAdvice}
	}
	switch {
	case len(frame) < frameHeader || binary.LittleEndian.Uint32(frame) != frameMagic:
		return nil, refuse("does not begin like a file of this broker")
	case int(binary.LittleEndian.Uint32(frame[8:])) != len(frame)-frameHeader:
		return nil, refuse("has another length than it says")
	case crc32.Checksum(frame[8:], crcTable) != binary.LittleEndian.Uint32(frame[4:]):
		return nil, refuse("does not match its checksum")
	}
	return frame[frameHeader:], nil
}

// Open recovers the data folder: identity (the boot counter is raised and
// fsynced), manifest, journal, segments. A damaged folder is refused with
// *record.Refused, which says where and what to do.
//
// A start that finds no space on the disk fails with what to do, and an error
// that wraps disk.ErrNoSpace.
func Open(cfg Config) (*Host, error) {
	h, err := open(cfg)
	return h, advised(err)
}

func open(cfg Config) (*Host, error) {
	cfg.Core = cfg.Core.WithDefaults()
	h := &Host{cfg: cfg, stores: map[model.GroupID]*store{}}
	if err := h.letGoAtStart(); err != nil {
		return nil, err
	}
	if err := h.identify(); err != nil {
		return nil, err
	}
	h.ids = uint64(h.manifest.self.Disk) ^ h.manifest.self.Boot*0xd6e8feb86659fd93
	h.recover.Incarnation = h.manifest.self
	if err := h.readManifest(); err != nil {
		return nil, err
	}
	mark := record.Mark{Sequence: h.manifest.durable}
	log, records, err := record.Open(cfg.Journal, h.manifest.generation, mark, h.nextID())
	if err != nil {
		return nil, inJournal(err)
	}
	h.log = log
	h.recover.Generation, h.recover.Sequence = log.Generation(), log.Durable()
	h.take(records)
	if err := h.openStores(); err != nil {
		_ = h.Close() // the first error is the one that counts
		return nil, err
	}
	h.shard = core.New(cfg.Core)
	return h, nil
}

// take keeps the journal's records for the core.
func (h *Host) take(records []record.Record) {
	for _, r := range records {
		h.recover.Records = append(h.recover.Records, core.JournalRecord{Type: core.RecordType(r.Type),
			Group: model.GroupID(r.Group), Index: r.Index, Term: r.Term, Payload: r.Payload})
	}
}

// inJournal names the journal's files as the data folder does.
func inJournal(err error) error {
	var r *record.Refused
	if !errors.As(err, &r) || r.File == journalDir {
		return err
	}
	in := *r
	in.File = journalDir + "/" + r.File
	return &in
}

func (h *Host) identify() error {
	var id identity
	content, err := readFile(h.cfg.FS, IdentityFile)
	if err != nil {
		return err
	}
	if content == nil {
		if err := h.mustBeEmpty(); err != nil {
			return err
		}
		id.Disk, id.node = h.cfg.NewDisk, h.cfg.Core.Self
	} else if err := wire.Decode(content, &id); err != nil {
		return &record.Refused{File: IdentityFile, Cause: err.Error(), Advice: "this build cannot read the folder"}
	}
	if id.refused != "" {
		return &record.Refused{File: IdentityFile, Cause: id.refused, Advice: wipeAdvice}
	}
	if id.node != h.cfg.Core.Self {
		return &record.Refused{File: IdentityFile, Cause: fmt.Sprintf("this is the data folder of node %s, not of %s",
			id.node, h.cfg.Core.Self), Advice: "nothing is wrong with it and nothing was changed: " +
			"start the node with its own folder, or this folder with its own node's id"}
	}
	id.Boot = id.NextBoot(h.cfg.Random)
	h.identity, h.manifest.self = id, id.Incarnation
	return writeFile(h.cfg.FS, IdentityFile, wire.Encode(&id))
}

// checkFounded holds what was loaded to what the identity knows.
func (h *Host) checkFounded(loaded *core.Loaded) error {
	switch {
	case loaded.Founded() == h.identity.founded:
		return nil
	case h.identity.founded:
		return &record.Refused{File: journalDir, Cause: "holds nothing of the cluster that this folder is part of, " +
			"as " + IdentityFile + " says: files were removed", Advice: wipeAdvice}
	}
	return h.setFounded() // a crash came between the two
}

func (h *Host) setFounded() error {
	h.identity.founded = true
	return writeFile(h.cfg.FS, IdentityFile, wire.Encode(&h.identity))
}

// holdsData says that something of this name in a data folder is what a node knows.
func holdsData(name string) bool {
	return name == manifestFile || name == segmentsDir || name == journalDir || strings.HasPrefix(name, checkpointPrefix)
}

// FolderKind says what a folder is that a node is to be started on.
type FolderKind uint8

// Kinds of folders.
const (
	EmptyFolder   FolderKind = iota // nothing, or only what is nobody's data
	NodeFolder                      // a node's, maybe a damaged one
	ForeignFolder                   // something else is in it, and nothing of a node
)

// KindOf tells a folder's kind by the names of what is in it. foreign is the first
// name that is no node's.
func KindOf(names []string) (kind FolderKind, foreign string) {
	for _, name := range names {
		plain := strings.TrimSuffix(name, temporarySuffix)
		switch {
		case plain == IdentityFile, holdsData(name):
			return NodeFolder, ""
		case name == mountDir, plain == reserveFile, IsAside(name):
		case foreign == "":
			kind, foreign = ForeignFolder, name
		}
	}
	return kind, foreign
}

// mustBeEmpty refuses a folder that lost its identity but not its data: to take
// it for a new one would forget what it promised.
func (h *Host) mustBeEmpty() error {
	files, err := h.cfg.FS.ReadDir(".")
	if err != nil {
		return fmt.Errorf("look into the data folder: %w", err)
	}
	for _, f := range files {
		name := f.Name()
		if holdsData(name) {
			return &record.Refused{File: IdentityFile, Cause: "is missing, but the folder holds " + name,
				Advice: wipeAdvice}
		}
	}
	return nil
}

func (h *Host) readManifest() error {
	content, err := readFile(h.cfg.FS, manifestFile)
	if err != nil {
		return err
	}
	if content == nil {
		return h.sweepCheckpoints()
	}
	if err := wire.Decode(content, &h.manifest); err != nil {
		return &record.Refused{File: manifestFile, Cause: err.Error(), Advice: "this build cannot read the folder"}
	}
	if err := h.sweepCheckpoints(); err != nil {
		return err
	}
	return h.readCheckpoint()
}

// readCheckpoint reads the one that the manifest names.
func (h *Host) readCheckpoint() (err error) {
	if h.manifest.checkpoint == 0 {
		return nil
	}
	name := checkpointFile(h.manifest.checkpoint)
	if h.recover.Checkpoint, err = readFile(h.cfg.FS, name); err != nil {
		return err
	}
	if h.recover.Checkpoint == nil {
		return &record.Refused{File: name, Cause: "is missing, though " + manifestFile + " names it",
			Advice: wipeAdvice}
	}
	return nil
}

// sweepCheckpoints removes those that the manifest does not name: a crash came
// before the manifest that would have, or before the old one was removed.
func (h *Host) sweepCheckpoints() error {
	files, err := h.cfg.FS.ReadDir(".")
	if err != nil {
		return fmt.Errorf("look for old checkpoints: %w", err)
	}
	for _, f := range files {
		name := f.Name()
		if !strings.HasPrefix(name, checkpointPrefix) || name == checkpointFile(h.manifest.checkpoint) {
			continue
		}
		if err := h.cfg.FS.Remove(name); err != nil {
			return fmt.Errorf("remove an old checkpoint: %w", err)
		}
	}
	return nil
}

// openStores opens each partition's segments, cut to what the checkpoint and the
// journal account for, and removes those of partitions that are no more.
func (h *Host) openStores() error {
	loaded, marks, err := h.recover.Load(h.cfg.Core.Self, h.cfg.Core.Limits)
	if err != nil {
		return &record.Refused{File: journalDir, Cause: err.Error(), Advice: wipeAdvice}
	}
	if err := h.checkFounded(loaded); err != nil {
		return err
	}
	h.recover.Loaded = loaded
	if err := h.cfg.FS.MkdirAll(segmentsDir); err != nil {
		return fmt.Errorf("make the segments folder: %w", err)
	}
	for _, m := range marks {
		s, err := segment.Open(h.cfg.FS, segmentDir(m.Group), m.Start, m.End)
		var damaged *segment.Damaged
		if errors.As(err, &damaged) {
			return &record.Refused{File: damaged.File, Position: damaged.Position, Cause: damaged.Cause, Advice: wipeAdvice}
		}
		if err != nil {
			return fmt.Errorf("open the segments of group %d: %w", m.Group, err)
		}
		h.stores[m.Group] = &store{Store: s, group: m.Group}
	}
	dirs, err := h.cfg.FS.ReadDir(segmentsDir)
	if err != nil {
		return fmt.Errorf("list the segments: %w", err)
	}
	for _, d := range dirs {
		g, err := strconv.ParseUint(d.Name(), 10, 64)
		if err != nil || h.stores[model.GroupID(g)] != nil {
			continue
		}
		s, err := segment.Open(h.cfg.FS, segmentsDir+"/"+d.Name(), 0, 0)
		if err == nil {
			err = s.Remove()
		}
		if err != nil {
			return fmt.Errorf("remove the segments of deleted group %d: %w", g, err)
		}
	}
	return nil
}
