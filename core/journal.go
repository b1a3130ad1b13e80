package core

import (
	"fmt"
	"time"

	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/meta"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
	"github.com/tapedeck/tapedeck/core/replica"
	"github.com/tapedeck/tapedeck/core/wire"
)

// retryHint is what a caller is told to wait when nothing better is known.
const retryHint = 50 * time.Millisecond

// queued is a journal record under way and who waits for it.
type queued struct {
	sequence uint64
	member   *member
	then     func()
}

// journalState is the shard's view of its journal.
type journalState struct {
	sequence   uint64 // of the last record appended, counted from this start
	base       uint64 // of the last record found at this start, counted over all
	durable    uint64 // highest known durable, counted over all
	queue      []queued
	generation uint64
	bytes      int64 // appended in this generation
	records    int
	marked     uint64     // sequence of the last sync mark
	synced     uint64     // sequence of the last record that asked for a sync
	markAt     model.Mono // when idle until then, a sync mark goes out

	checkpoint   uint64 // id of the one under way; 0: none
	checkpoints  uint64
	checkpointAt model.Mono // not before, unless the journal is long
}

// append queues a record. member's replica hears of its durability, then runs too.
func (s *Shard) append(rec JournalRecord, sync bool, m *member, then func()) uint64 {
	j := &s.journal
	j.sequence++
	if m != nil || then != nil {
		j.queue = append(j.queue, queued{j.sequence, m, then})
	}
	j.bytes += int64(len(rec.Payload)) + 96
	j.records++
	if sync {
		j.synced = j.sequence
		if rec.Type != RecordMark {
			j.markAt = s.now.Mono.Add(s.cfg.Timing.MarkAfter)
			if s.cfg.Choice.Rare(choice.MarkNow) {
				j.markAt = s.now.Mono
			}
		}
	}
	s.emit(JournalAppend{j.sequence, rec, sync})
	return j.sequence
}

func (s *Shard) journalAppend(rec JournalRecord, sync bool) uint64 {
	return s.append(rec, sync, nil, nil)
}

func (s *Shard) journalDone(upto uint64) {
	j := &s.journal
	if upto > j.sequence {
		panic(fmt.Sprintf("journal says record %d is durable; %d were written", upto, j.sequence))
	}
	j.durable = max(j.durable, j.base+upto)
	var thens []func()
	for len(j.queue) > 0 && j.queue[0].sequence <= upto {
		q := j.queue[0]
		j.queue[0] = queued{}
		j.queue = j.queue[1:]
		if q.member != nil && !q.member.gone {
			q.member.r.Durable(upto) // the first call of a group takes all its writes up to here
		}
		if q.then != nil {
			thens = append(thens, q.then)
		}
	}
	for _, then := range thens {
		then()
	}
}

// journalTick writes a sync mark when the journal has been idle: a witness that
// what came before it was durable, so that damage there is never taken for a torn tail.
func (s *Shard) journalTick() {
	j := &s.journal
	if s.now.Mono < j.markAt {
		return
	}
	j.markAt = model.Never
	if j.synced > j.marked {
		j.marked = s.journalAppend(JournalRecord{Type: RecordMark}, true)
	}
}

func (s *Shard) journalNext() model.Mono {
	j := &s.journal
	if s.founding != nil && j.checkpoint == 0 && j.records > 0 {
		return min(j.markAt, j.checkpointAt)
	}
	return j.markAt
}

// checkpointState is the whole shard in one blob.
type checkpointState struct {
	founding *meta.Founding
	seen     uint64
	lives    lives
	members  []memberState
}

type memberState struct {
	definition definition
	applied    replica.Applied
}

// Code implements wire.Coder.
func (c *checkpointState) Code(w *wire.Codec) {
	w.Version(2)
	founded := c.founding != nil
	w.Bool(&founded)
	if founded {
		if w.Decoding {
			c.founding = &meta.Founding{}
		}
		c.founding.Code(w)
	}
	wire.Uint(w, &c.seen)
	c.lives.Code(w)
	wire.Slice(w, &c.members, func(w *wire.Codec, m *memberState) {
		m.definition.Code(w)
		m.applied.Code(w)
	})
}

// maybeCheckpoint starts a checkpoint when the journal has grown long or old.
// The new generation begins, in the journal's FIFO, with each group's hard state
// and every entry above its applied index; the state itself goes to the manifest.
func (s *Shard) maybeCheckpoint() {
	j := &s.journal
	if j.checkpoint != 0 || s.founding == nil {
		return
	}
	due := j.bytes >= s.cfg.Limits.CheckpointBytes || j.records > 0 && s.now.Mono >= j.checkpointAt
	if !due && (j.records == 0 || !s.cfg.Choice.Rare(choice.CheckpointNow)) {
		return
	}
	st := checkpointState{founding: s.founding, seen: s.seen, lives: s.lives}
	var bases []JournalRecord
	var marks []SegmentMark
	for _, m := range s.members {
		applied, payload, ok := m.r.Checkpoint()
		if !ok || m.emptying {
			s.cfg.Probe.Hit(probe.CheckpointWaits)
			j.checkpointAt = s.now.Mono.Add(retryHint)
			return // a snapshot is being installed, or the store emptied; soon
		}
		st.members = append(st.members, memberState{m.g, applied})
		bases = append(bases, JournalRecord{Type: RecordBase, Group: m.id,
			Index: applied.Index, Term: applied.Term, Payload: payload})
		if p, ok := m.partition(); ok {
			marks = append(marks, markOf(m.id, p, m.resetAt))
		}
		if m.resetAt != nil { // the generation that says it is about to go
			bases = append(bases, JournalRecord{Type: RecordReset, Group: m.id, Index: uint64(*m.resetAt)})
		}
	}
	j.generation++
	s.emit(JournalRoll{j.generation})
	j.bytes, j.records = 0, 0
	for i, b := range bases {
		s.append(b, i == len(bases)-1, nil, nil)
	}
	j.records = 0
	j.checkpoints++
	j.checkpoint = j.checkpoints
	s.emit(Checkpoint{ID: j.checkpoint, Generation: j.generation, State: wire.Encode(&st), Segments: marks})
}

func (s *Shard) checkpointDone(ev CheckpointDone) {
	if ev.ID != s.journal.checkpoint {
		return
	}
	s.journal.checkpoint = 0
	s.journal.checkpointAt = s.now.Mono.Add(s.cfg.Timing.CheckpointAfter)
	if ev.Err != nil {
		s.journal.records++ // still owed
		s.journal.checkpointAt = s.now.Mono.Add(s.cfg.Timing.CheckpointAfter / 10)
	}
}
