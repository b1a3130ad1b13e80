package node

import (
	"errors"
	"fmt"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/wire"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/disk/segment"
)

// Finding is something wrong with a data folder.
type Finding struct {
	File     string
	Position int64 // byte in File
	Cause    string
}

// Report is what a check of a data folder read and found.
type Report struct {
	Disk, Starts      uint64
	Records           int // of the journal
	Groups            int // with segments
	Batches           int // in segments
	Findings          []Finding
	Torn              *record.Torn // the journal's end, cut at the next start; nothing is wrong with that
	Founded, Readable bool         // Readable: the state could be put together, so segments were checked
}

func (r *Report) say(file string, position int64, cause string, args ...any) {
	r.Findings = append(r.Findings, Finding{file, position, fmt.Sprintf(cause, args...)})
}

// refused adds what an error says is wrong; other errors are given back.
func (r *Report) refused(err error) error {
	var x *record.Refused
	if !errors.As(err, &x) {
		return err
	}
	r.say(x.File, x.Position, "%s", x.Cause)
	return nil
}

// Verify checks a data folder that no node is using, and changes nothing: the
// identity, manifest and checkpoint, the journal by the rule that a start goes by,
// and every byte of every segment that the two account for. The error is about
// reading, not about what was read.
func Verify(f disk.FS, e record.Engine) (*Report, error) {
	r := &Report{}
	h := &Host{cfg: Config{FS: f}}
	content, err := readFile(f, IdentityFile)
	switch {
	case err != nil:
		if err := r.refused(err); err != nil {
			return nil, err
		}
	case content == nil:
		if err := r.refused(h.mustBeEmpty()); err != nil {
			return nil, err
		}
		if len(r.Findings) == 0 {
			return r, nil // an empty folder
		}
	default:
		if err := wire.Decode(content, &h.identity); err != nil {
			r.say(IdentityFile, 0, "%v", err)
		}
	}
	if h.identity.refused != "" {
		r.say(IdentityFile, 0, "the folder is not to be used: %s", h.identity.refused)
	}
	r.Disk, r.Starts, r.Founded = uint64(h.identity.Disk), h.identity.Starts(), h.identity.founded
	if err := h.manifestOnly(r); err != nil {
		return nil, err
	}
	if err := h.verifyJournal(r, e); err != nil {
		return nil, err
	}
	return r, h.verifySegments(r)
}

func (h *Host) manifestOnly(r *Report) error {
	content, err := readFile(h.cfg.FS, manifestFile)
	if err != nil || content == nil {
		return r.refused(err)
	}
	if err := wire.Decode(content, &h.manifest); err != nil {
		r.say(manifestFile, 0, "%v", err)
		return nil
	}
	return r.refused(h.readCheckpoint())
}

func (h *Host) verifyJournal(r *Report, e record.Engine) error {
	records, torn, err := record.Examine(e, h.manifest.generation, record.Mark{Sequence: h.manifest.durable})
	if err != nil {
		return r.refused(inJournal(err))
	}
	r.Records, r.Torn = len(records), torn
	h.take(records)
	return nil
}

// verifySegments needs what says which segments there have to be, whole.
func (h *Host) verifySegments(r *Report) error {
	if len(r.Findings) > 0 {
		return nil
	}
	h.recover.Incarnation = h.identity.Incarnation
	loaded, marks, err := h.recover.Load("", core.Limits{})
	if err != nil {
		r.say(journalDir, 0, "%v", err)
		return nil
	}
	if r.Readable = true; h.identity.founded && !loaded.Founded() {
		r.say(journalDir, 0, "holds nothing of the cluster that this folder is part of, as %s says", IdentityFile)
	}
	for _, m := range marks {
		n, found, err := segment.Verify(h.cfg.FS, segmentDir(m.Group), m.Start, m.End)
		if err != nil {
			return err
		}
		r.Groups++
		r.Batches += n
		for _, d := range found {
			r.say(d.File, d.Position, "%s", d.Cause)
		}
	}
	return nil
}
