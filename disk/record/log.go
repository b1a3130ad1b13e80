package record

import (
	"errors"
	"fmt"

	"github.com/tapedeck/tapedeck/disk"
)

// Log is an open journal. One goroutine. Its first error poisons it: every later
// call returns that error, because after a failed write or sync nobody knows
// what is on the disk. Only opening it again, through the rule, can tell.
type Log struct {
	e       Engine
	j       disk.Journal
	gen     disk.Generation
	last    uint64 // highest sequence appended
	durable uint64 // highest sequence known durable; durable <= last
	buf     []byte
	err     error
}

// errClosed is what a closed log is poisoned with.
var errClosed = errors.New("the journal is closed")

// Open lets the rule judge what is there, and opens. from is the generation's
// number that the manifest names, 0 if there is no manifest yet; mark is what
// the manifest knows to be durable. It returns the records of all generations
// from that one on, in order; they are durable now.
//
// New records go to a fresh part of the newest generation's number, with the
// given id, which must be random and not 0. Generations below from are removed.
// Damage that may hide durable records gives *Refused, and nothing is changed.
func Open(e Engine, from uint64, mark Mark, id uint64) (*Log, []Record, error) {
	l, records, err := open(e, from, mark, id)
	if err != nil {
		_ = e.Close() // the first error is the one that counts
		return nil, nil, err
	}
	return l, records, nil
}

func open(e Engine, from uint64, mark Mark, id uint64) (*Log, []Record, error) {
	s := &survey{e: e, from: from, mark: mark.Sequence}
	if err := s.run(); err != nil {
		return nil, nil, err
	}
	if err := s.apply(); err != nil {
		return nil, nil, err
	}
	j, err := e.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("open the journal: %w", err)
	}
	l := &Log{e: e, j: j, last: s.last, durable: s.last}
	next := disk.Generation{Number: max(from, 1), ID: id}
	if newest := s.newest(); newest.Number > 0 {
		next.Number, next.Part = newest.Number, newest.Part+1
	}
	if err := l.start(next); err != nil {
		return nil, nil, errors.Join(err, j.Close())
	}
	// A node that starts again and again must not leave a part each time. The
	// oldest one stays: the manifest may name it, and counts on its start.
	for _, g := range s.bare {
		if g.Number != next.Number || g.Generation == s.live[0].Generation {
			continue
		}
		if err := e.Remove(g); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("remove an empty generation: %w", err), j.Close())
		}
	}
	if len(s.old) > 0 {
		if err := l.Drop(from); err != nil {
			return nil, nil, errors.Join(err, j.Close())
		}
	}
	return l, s.records, nil
}

// Examine lets the rule judge a journal that nobody has open, as Open would, and
// changes nothing. It returns the records that Open would return; torn is a tail
// that Open would cut, nil if there is none. A journal that Open would refuse
// gives *Refused.
func Examine(e Engine, from uint64, mark Mark) (records []Record, torn *Torn, err error) {
	s := &survey{e: e, from: from, mark: mark.Sequence}
	err = s.run()
	if cerr := e.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, nil, err
	}
	if s.cut != nil {
		torn = &Torn{File: s.cut.file.Name, Position: int64(s.cut.size)}
	}
	return s.records, torn, nil
}

// Torn is where a write was cut short that nobody was told of.
type Torn struct {
	File     string // as the engine names it
	Position int64
}

// start rolls to a generation and makes its start durable.
func (l *Log) start(g disk.Generation) error {
	if g.ID == 0 {
		return errors.New("a generation's id must be random, not 0")
	}
	if err := l.j.Roll(g); err != nil {
		return fmt.Errorf("start generation %d.%d: %w", g.Number, g.Part, err)
	}
	l.gen, l.durable = g, l.last
	start := Record{Type: TypeStart, Sequence: l.last, Group: g.Number, Index: uint64(g.Part)}
	l.buf = appendFrame(l.buf[:0], &start, l.last, g.ID)
	if err := l.j.Append(l.buf); err != nil {
		return fmt.Errorf("write the start of generation %d.%d: %w", g.Number, g.Part, err)
	}
	if err := l.j.Sync(); err != nil {
		return fmt.Errorf("sync the start of generation %d.%d: %w", g.Number, g.Part, err)
	}
	return nil
}

// poison keeps the first error.
func (l *Log) poison(err error) error {
	if l.err == nil && err != nil {
		l.err = err
	}
	return l.err
}

// Append frames a record and hands it to the engine; it is durable after the
// next Sync. Sequence and Generation of r are ignored. The payload is copied.
func (l *Log) Append(r Record) (seq uint64, err error) {
	if l.err != nil {
		return 0, l.err
	}
	if r.Type == TypeStart || len(r.Payload) > MaxPayload {
		return 0, l.poison(fmt.Errorf(
			"record of type %d and %d bytes cannot be framed: type 0 is reserved, %d bytes are the most",
			r.Type, len(r.Payload), MaxPayload))
	}
	r.Sequence = l.last + 1
	l.buf = appendFrame(l.buf[:0], &r, l.durable, l.gen.ID)
	if err := l.j.Append(l.buf); err != nil {
		return 0, l.poison(fmt.Errorf("append record %d to the journal: %w", r.Sequence, err))
	}
	const keep = 1 << 20 // bytes of buffer kept between calls
	if cap(l.buf) > keep {
		l.buf = nil
	}
	l.last = r.Sequence
	return l.last, nil
}

// Sync makes everything appended durable and raises Durable.
func (l *Log) Sync() error {
	if l.err != nil {
		return l.err
	}
	if err := l.j.Sync(); err != nil {
		return l.poison(fmt.Errorf("sync the journal at record %d: %w", l.last, err))
	}
	l.durable = l.last
	return nil
}

// Durable is the highest sequence known to be on disk.
func (l *Log) Durable() uint64 { return l.durable }

// Last is the highest sequence appended.
func (l *Log) Last() uint64 { return l.last }

// Generation is the current generation's number. The next one must be greater.
func (l *Log) Generation() uint64 { return l.gen.Number }

// Err is the error that poisoned the log, or nil.
func (l *Log) Err() error { return l.err }

// Roll makes everything appended durable and starts the generation of the given
// number, durable on return. id must be random and not 0.
func (l *Log) Roll(number, id uint64) error {
	if l.err != nil {
		return l.err
	}
	if number <= l.gen.Number {
		return l.poison(fmt.Errorf("generation %d cannot follow generation %d", number, l.gen.Number))
	}
	return l.poison(l.start(disk.Generation{Number: number, ID: id}))
}

// Drop removes all generations whose number is below before, which a durable
// manifest must not name any more. Files may go in steps, in later Syncs.
func (l *Log) Drop(before uint64) error {
	if l.err != nil {
		return l.err
	}
	if before > l.gen.Number {
		return l.poison(fmt.Errorf("drop below generation %d would drop the current one, %d", before, l.gen.Number))
	}
	if err := l.j.Drop(before); err != nil {
		return l.poison(fmt.Errorf("drop generations below %d: %w", before, err))
	}
	return nil
}

// Close closes the files. It does not sync: what was not synced was not promised.
func (l *Log) Close() error {
	if l.err == errClosed {
		return nil
	}
	l.err = errClosed
	return errors.Join(l.j.Close(), l.e.Close())
}
