package partition

import (
	"math"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// remembered is an accepted batch of a producer: a retry of it gets its offset.
type remembered struct {
	sequence model.Sequence
	count    uint32
	base     model.Offset
	time     model.Wall
}

// producer is what a partition remembers of one. The batches, at most
// model.ProducerMemory, are those of the current epoch; their sequences are
// contiguous and end at next.
type producer struct {
	id    model.ProducerID
	epoch model.Epoch
	next  model.Sequence
	last  model.Wall // age clock at its last batch or fence
	ring  []remembered
	head  int // the oldest in ring once it is full

	older, newer *producer // neighbours by last
}

// begin turns to a new epoch, or to a new start of it, at the given sequence.
func (p *producer) begin(epoch model.Epoch, at model.Sequence) {
	p.epoch, p.next = epoch, at
	p.ring, p.head = p.ring[:0], 0
}

func (p *producer) remember(b remembered) {
	p.next = b.sequence + model.Sequence(b.count)
	if len(p.ring) < model.ProducerMemory {
		p.ring = append(p.ring, b)
		return
	}
	p.ring[p.head] = b
	p.head = (p.head + 1) % model.ProducerMemory
}

// at returns the i-th oldest remembered batch.
func (p *producer) at(i int) *remembered { return &p.ring[(p.head+i)%len(p.ring)] }

// find returns the batch that began at the sequence and had as many messages.
func (p *producer) find(s model.Sequence, count uint32) *remembered {
	for i := len(p.ring) - 1; i >= 0; i-- {
		b := p.at(i)
		if b.sequence == s && b.count == count {
			return b
		}
		if b.sequence < s {
			return nil
		}
	}
	return nil
}

// oldest is the first sequence remembered; next when no batch is.
func (p *producer) oldest() model.Sequence {
	if len(p.ring) == 0 {
		return p.next
	}
	return p.at(0).sequence
}

// producers is the table, by id and in order of last activity. The order is
// part of the replicated state: it is the order of the log.
type producers struct {
	byID           map[model.ProducerID]*producer
	oldest, newest *producer
}

func (t *producers) get(id model.ProducerID) *producer { return t.byID[id] }

func (t *producers) len() int { return len(t.byID) }

// touch returns the producer, made if need be, as the newest one, active at last.
func (t *producers) touch(id model.ProducerID, last model.Wall) *producer {
	p := t.byID[id]
	if p == nil {
		if t.byID == nil {
			t.byID = map[model.ProducerID]*producer{}
		}
		p = &producer{id: id}
		t.byID[id] = p
	} else {
		t.unlink(p)
	}
	p.last = last
	p.older, p.newer = t.newest, nil
	if t.newest != nil {
		t.newest.newer = p
	} else {
		t.oldest = p
	}
	t.newest = p
	return p
}

func (t *producers) unlink(p *producer) {
	if p.older != nil {
		p.older.newer = p.newer
	} else {
		t.oldest = p.newer
	}
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		t.newest = p.older
	}
}

// expire forgets the producers whose last activity was at or before the moment.
func (t *producers) expire(upto model.Wall) {
	for t.oldest != nil && t.oldest.last <= upto {
		p := t.oldest
		t.unlink(p)
		delete(t.byID, p.id)
	}
}

// fit says how a batch relates to what is known of its producer.
type fit uint8

const (
	fits       fit = iota
	fitFenced      // of an older epoch
	fitUnknown     // nothing is known of (producer, epoch), and it does not begin at 0
	fitGap         // messages before it are missing
	fitPast        // begins below the next sequence: a retry, or an overlap
	fitInvalid     // can never be accepted
)

// standing is what is known of a producer: its epoch and next sequence.
type standing struct {
	known bool
	epoch model.Epoch
	next  model.Sequence
}

// fitOf judges a batch of a producer; start is the producer's consent to begin
// anew where nothing is known. Leader and apply share it.
func fitOf(s standing, v batch.View, start bool) fit {
	seq := v.Sequence()
	switch {
	case v.Epoch() == 0 || uint64(seq) > math.MaxUint64-uint64(v.Count()):
		return fitInvalid
	case s.known && v.Epoch() < s.epoch:
		return fitFenced
	case !s.known || v.Epoch() > s.epoch:
		if seq == 0 || start {
			return fits
		}
		return fitUnknown
	case seq > s.next:
		return fitGap
	case seq < s.next:
		return fitPast
	}
	return fits
}
