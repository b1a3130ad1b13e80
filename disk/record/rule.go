package record

import (
	"bytes"
	"fmt"

	"github.com/tapedeck/tapedeck/disk"
)

// survey reads a journal before it is opened and judges what it finds. Nothing
// is changed while it runs.
type survey struct {
	e    Engine
	from uint64
	mark uint64

	live    []Found // generations from the manifest's on, sorted
	old     []Found // below it: left by a Drop that was cut short
	bare    []Found // live ones without a record
	records []Record
	last    uint64 // sequence of the last record kept
	known   bool   // last is meaningful
	cut     *cut
}

// cut is the one tail that may be thrown away: bytes at and after size.
type cut struct {
	gen    Found
	file   File
	size   int
	frames int // intact frames of the file below size
}

// newest is the generation that new ones must exceed.
func (s *survey) newest() disk.Generation {
	if len(s.live) == 0 {
		return disk.Generation{}
	}
	return s.live[len(s.live)-1].Generation
}

func (s *survey) run() error {
	found, stray, err := s.e.List()
	if err != nil {
		return fmt.Errorf("list the journal's files: %w", err)
	}
	if len(stray) > 0 {
		return &Refused{
			File: stray[0], Cause: fmt.Sprintf("%d files here do not belong to a journal", len(stray)),
			Advice: "move them out of the journal's folder if you put them there; nothing was changed",
		}
	}
	for i, g := range found {
		if i > 0 && g.Compare(found[i-1].Generation) == 0 {
			return refuse(GenerationName(g.Generation), 0, "is there twice, with two ids")
		}
		if g.Number < s.from {
			s.old = append(s.old, g)
		} else {
			s.live = append(s.live, g)
		}
	}
	if err := s.checkFirst(); err != nil {
		return err
	}
	// Before generation 1 there was nothing. The start of any other that the
	// manifest names is durable, and says what came before it.
	s.known = s.from <= 1
	for i := range s.live {
		if err := s.generation(i); err != nil {
			return err
		}
		if !s.known {
			return refuse(GenerationName(s.live[i].Generation), 0,
				"the manifest names this generation, and its start is missing")
		}
	}
	if s.last < s.mark {
		file, size := s.end()
		return refuse(file, size, "the journal ends at record %d; record %d was durable", s.last, s.mark)
	}
	return nil
}

// checkFirst holds the oldest live generation to the manifest.
func (s *survey) checkFirst() error {
	fresh := s.from <= 1 && s.mark == 0
	switch {
	case len(s.live) == 0 && fresh:
		return nil
	case len(s.live) == 0:
		return refuse("journal", 0, "generation %d, which the manifest names, is missing", max(s.from, 1))
	case s.live[0].Number != max(s.from, 1):
		return refuse(GenerationName(s.live[0].Generation), 0,
			"is the oldest generation; the manifest names generation %d", max(s.from, 1))
	}
	return nil
}

// end names the place where the journal ends, for messages.
func (s *survey) end() (file string, size int) {
	if s.cut != nil {
		return s.cut.file.Name, s.cut.size
	}
	for i := len(s.live) - 1; i >= 0; i-- {
		if n := len(s.live[i].Files); n > 0 {
			f := s.live[i].Files[n-1]
			data, _ := s.e.Read(f) // only for the message
			return f.Name, len(data)
		}
	}
	return "journal", 0
}

// generation reads the i-th live generation.
func (s *survey) generation(i int) error {
	g, before := s.live[i], len(s.records)
	frames := 0
	for j, f := range g.Files {
		if f.First != uint64(frames)+1 {
			return refuse(f.Name, 0, "begins with frame %d of its generation; the files before it end at frame %d",
				f.First, frames)
		}
		data, err := s.e.Read(f)
		if err != nil {
			return fmt.Errorf("read journal file %s: %w", f.Name, err)
		}
		inFile := 0
		for pos := 0; pos < len(data); {
			size, cause, err := s.frame(g, f, data, pos, frames)
			if err != nil {
				return err
			}
			if cause != "" {
				lastFile := i == len(s.live)-1 && j == len(g.Files)-1
				if err := s.judge(g, f, data, pos, frames, lastFile, cause); err != nil {
					return err
				}
				s.cut = &cut{gen: g, file: f, size: pos, frames: inFile}
				break
			}
			pos += size
			frames++
			inFile++
		}
	}
	if len(s.records) == before {
		s.bare = append(s.bare, g)
	}
	return nil
}

// frame takes up the frame at pos. A cause means that it is not intact; an error
// that it is, and yet cannot be right.
func (s *survey) frame(g Found, f File, data []byte, pos, frames int) (size int, cause string, err error) {
	start, end, ok := s.e.Unwrap(data[pos:])
	if !ok {
		return 0, "no whole frame is here", nil
	}
	fr, n, cause := decode(data[pos+start : pos+end])
	switch {
	case cause != "":
		return 0, cause, nil
	case n != end-start:
		return 0, fmt.Sprintf("a frame of %d bytes is wrapped in %d", n, end-start), nil
	case fr.id != g.ID:
		return 0, fmt.Sprintf("a frame belongs to generation id %016x, not %016x", fr.id, g.ID), nil
	}
	if (frames == 0) != (fr.Type == TypeStart) {
		return 0, "", refuse(f.Name, pos, "a generation's start must be its first frame and nothing else")
	}
	if fr.Type == TypeStart {
		if fr.Group != g.Number || fr.Index != uint64(g.Part) {
			return 0, "", refuse(f.Name, pos, "the start says generation %d.%d", fr.Group, fr.Index)
		}
		if s.known && fr.Sequence != s.last {
			return 0, "", refuse(f.Name, pos, "the generation follows record %d, but the one before ends at %d",
				fr.Sequence, s.last)
		}
		s.last, s.known = fr.Sequence, true
		return end, "", nil
	}
	if fr.Sequence != s.last+1 {
		return 0, "", refuse(f.Name, pos, "record %d follows record %d", fr.Sequence, s.last)
	}
	s.last = fr.Sequence
	fr.Generation = g.Number
	s.records = append(s.records, fr.Record)
	return end, "", nil
}

// judge decides whether the tail at pos may be cut: nil, or why not.
func (s *survey) judge(g Found, f File, data []byte, pos, frames int, lastFile bool, cause string) error {
	if !lastFile {
		return refuse(f.Name, pos, "%s, and later files follow, so this was durable", cause)
	}
	bad := s.last + 1
	found, synced := lookAhead(data[pos:], g.ID)
	if frames == 0 {
		// A start is durable before anything follows it, and before a manifest
		// names its generation.
		const startMost = HeaderSize + 16 // with its wrapping
		named := g.Number == s.from && g.Compare(s.live[0].Generation) == 0 && (s.from > 1 || s.mark > 0)
		if found > 0 || len(data)-pos > startMost || named {
			return refuse(f.Name, pos, "%s, and the generation was in use, so this was durable", cause)
		}
		return nil
	}
	if witness := max(s.mark, synced); bad <= witness {
		return refuse(f.Name, pos, "%s; this is record %d, and all up to %d were durable", cause, bad, witness)
	}
	return nil
}

// lookAhead searches every position for intact frames of a generation. It
// returns how many there are and their greatest synced bound.
func lookAhead(data []byte, id uint64) (found int, synced uint64) {
	mark := le.AppendUint64(nil, id)
	for at := generationAt; at < len(data); at++ {
		i := bytes.Index(data[at:], mark)
		if i < 0 {
			break
		}
		at += i
		if fr, _, cause := decode(data[at-generationAt:]); cause == "" {
			found++
			synced = max(synced, fr.synced)
		}
	}
	return found, synced
}

// apply carries out the verdict: cut, make durable what was read, read again.
func (s *survey) apply() error {
	if len(s.live) == 0 {
		return nil
	}
	if c := s.cut; c != nil {
		if err := s.e.Cut(c.gen, c.file, int64(c.size)); err != nil {
			return fmt.Errorf("cut journal file %s at byte %d: %w", c.file.Name, c.size, err)
		}
	}
	// What was read may never have been synced, and is about to be relied on.
	if err := s.e.Settle(s.live[len(s.live)-1]); err != nil {
		return fmt.Errorf("make the journal's end durable: %w", err)
	}
	if c := s.cut; c != nil {
		return s.recount(c)
	}
	return nil
}

// recount reads a file that was cut once more: what it holds must be what was kept.
func (s *survey) recount(c *cut) error {
	data, err := s.e.Read(c.file)
	if err != nil {
		return fmt.Errorf("read journal file %s again: %w", c.file.Name, err)
	}
	frames := 0
	for pos := 0; pos < len(data); frames++ {
		start, end, ok := s.e.Unwrap(data[pos:])
		if !ok {
			break
		}
		if _, _, cause := decode(data[pos+start : pos+end]); cause != "" {
			break
		}
		pos += end
	}
	if frames != c.frames || len(data) != c.size {
		return refuse(c.file.Name, c.size, "after the cut %d frames in %d bytes are there, not %d in %d",
			frames, len(data), c.frames, c.size)
	}
	return nil
}
