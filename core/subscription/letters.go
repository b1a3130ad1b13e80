package subscription

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// letters is a partition's replicated state of dead letters. Moves of one
// partition go one after the other, under a producer of its own, whose sequence
// counts per target partition: however often a move's batch is sent, it is
// stored once.
type letters struct {
	producer model.ProducerID // 0: none yet
	epoch    model.Epoch
	next     []letterSequence // by topic and partition
	move     *move            // under way; nil: none
}

// letterSequence is the sequence of the next letter to a target partition.
type letterSequence struct {
	topic     model.TopicID
	partition model.Partition
	next      model.Sequence
}

// move is a dead letter on its way. It carries the message: retention of its
// topic cannot take it any more.
type move struct {
	offset    model.Offset
	topic     model.TopicID   // where to
	born      uint64          // catalog version that knew that topic
	partition model.Partition // of it
	sequence  model.Sequence
	batch     []byte // unstamped; never handed out, only copies of it are
	void      bool   // a seek came after: its end acks nothing
}

func compareLetters(a, b letterSequence) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
}

// sequence is the next letter's to a target partition.
func (l *letters) sequence(t model.TopicID, p model.Partition) model.Sequence {
	i, ok := slices.BinarySearchFunc(l.next, letterSequence{topic: t, partition: p}, compareLetters)
	if !ok {
		return 0
	}
	return l.next[i].next
}

func (l *letters) setSequence(s letterSequence) {
	i, ok := slices.BinarySearchFunc(l.next, s, compareLetters)
	if ok {
		l.next[i] = s
	} else {
		l.next = slices.Insert(l.next, i, s)
	}
}

func (l *letters) code(c *wire.Codec) {
	wire.Uint(c, &l.producer)
	wire.Uint(c, &l.epoch)
	wire.Slice(c, &l.next, func(c *wire.Codec, s *letterSequence) {
		wire.Uint(c, &s.topic)
		wire.Uint(c, &s.partition)
		wire.Uint(c, &s.next)
	})
	moving := l.move != nil
	c.Bool(&moving)
	if !moving {
		return
	}
	if c.Decoding {
		l.move = &move{}
	}
	l.move.code(c)
	c.Bool(&l.move.void)
	if c.Decoding {
		l.move.batch = slices.Clone(l.move.batch)
	}
}

func (m *move) code(c *wire.Codec) {
	wire.Uint(c, &m.offset)
	wire.Uint(c, &m.topic)
	wire.Uint(c, &m.born)
	wire.Uint(c, &m.partition)
	wire.Uint(c, &m.sequence)
	c.Bytes(&m.batch)
}

// check says which invariant the dead letters of a partition break.
func (p *partition) checkLetters() error {
	l := &p.letters
	for i := 1; i < len(l.next); i++ {
		if compareLetters(l.next[i-1], l.next[i]) >= 0 {
			return fmt.Errorf("sequences of dead letters are out of order")
		}
	}
	if mv := l.move; mv != nil {
		if l.producer == 0 || l.sequence(mv.topic, mv.partition) != mv.sequence+1 {
			return fmt.Errorf("the dead letter of offset %d has a sequence of nobody", mv.offset)
		}
		if !mv.void && p.isAcked(mv.offset) {
			return fmt.Errorf("the dead letter of offset %d is acked", mv.offset)
		}
	}
	return nil
}

// letterCommand begins a move: from then on the message is as good as moved.
type letterCommand struct {
	id       model.SubscriptionID
	source   model.Partition
	fence    model.Generation
	producer model.ProducerID
	epoch    model.Epoch
	move     move
}

// letteredCommand ends a move: its message is stored, or its topic is no more,
// and it has to be moved elsewhere.
type letteredCommand struct {
	id       model.SubscriptionID
	source   model.Partition
	topic    model.TopicID
	target   model.Partition
	sequence model.Sequence
	lost     bool
}

func (*letterCommand) kind() kind   { return kindLetter }
func (*letteredCommand) kind() kind { return kindLettered }

// Code implements wire.Coder.
func (v *letterCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Uint(c, &v.source)
	wire.Uint(c, &v.fence)
	wire.Uint(c, &v.producer)
	wire.Uint(c, &v.epoch)
	v.move.code(c)
}

// Code implements wire.Coder.
func (v *letteredCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Uint(c, &v.source)
	wire.Uint(c, &v.topic)
	wire.Uint(c, &v.target)
	wire.Uint(c, &v.sequence)
	c.Bool(&v.lost)
}

func (v *letterCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	if sub == nil || int(v.source) >= len(sub.partitions) || v.producer == 0 {
		return outcome{}
	}
	part := &sub.partitions[v.source]
	l := &part.letters
	if part.fence != v.fence || part.isAcked(v.move.offset) || l.move != nil {
		return outcome{}
	}
	if l.producer != v.producer || l.epoch != v.epoch {
		*l = letters{producer: v.producer, epoch: v.epoch}
	}
	if l.sequence(v.move.topic, v.move.partition) != v.move.sequence || v.move.sequence+1 == 0 {
		return outcome{}
	}
	l.setSequence(letterSequence{v.move.topic, v.move.partition, v.move.sequence + 1})
	mv := v.move
	l.move = &mv
	return outcome{}
}

func (v *letteredCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	if sub == nil || int(v.source) >= len(sub.partitions) {
		return outcome{}
	}
	part := &sub.partitions[v.source]
	mv := part.letters.move
	if mv == nil || mv.topic != v.topic || mv.partition != v.target || mv.sequence != v.sequence {
		return outcome{}
	}
	part.letters.move = nil
	if !mv.void && !v.lost {
		part.acked.add(interval{mv.offset, mv.offset + 1})
		part.settle()
	}
	return outcome{}
}

// dropAcked forgets the move's hold on a message that was acked after all: its
// copy is still made.
func (p *partition) dropAcked() {
	if mv := p.letters.move; mv != nil && !mv.void && p.isAcked(mv.offset) {
		void := *mv // an ack that is taken back in whole must find it as it was
		void.void = true
		p.letters.move = &void
	}
}

// condemned is the first message whose attempts are used up, or that is being moved.
func (p *partition) condemned(t *terms) (model.Offset, bool) {
	if mv := p.letters.move; mv != nil && !mv.void {
		return mv.offset, true
	}
	for _, f := range p.failed {
		if t.attempts > 0 && f.attempts >= t.attempts {
			return f.offset, true
		}
	}
	return 0, false
}
