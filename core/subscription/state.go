package subscription

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

const snapshotVersion = 5

// state is what the group replicates. Subscriptions are keyed by id: one
// created again under its old name starts from nothing.
type state struct {
	subscriptions map[model.SubscriptionID]*subscription
}

// subscription is one subscription's replicated state.
type subscription struct {
	id         model.SubscriptionID
	ref        string
	topic      model.TopicID
	mode       model.Mode
	keyed      bool   // shared: messages of one key are out with one member at a time
	deliveries uint64 // shared: pulls that were given something; numbers them
	born       uint64 // catalog version that knew it: only a catalog at least as new may say that it is gone
	generation model.Generation
	joins      uint64   // members ever joined; numbers them
	members    []member // by id
	partitions []partition
	kept       []kept // by name
}

// member is a consumer whose session has not ended.
type member struct {
	id     model.MemberID
	static bool
	joined uint64 // its number among all that ever joined, from 1
	// Shared mode: the last pull that was given something, by its sequence (0: it
	// named none) and by its delivery.
	sequence, delivery uint64
	token              uint64 // of its delivery: asked again, it gets the same
}

// partition is one partition's replicated state.
type partition struct {
	cursor model.Offset
	owner  model.MemberID // empty: none
	fence  model.Generation
	acked  intervals // ahead of the cursor, none touching it
	// failed are the messages that were given and came back, ascending, none of them acked.
	failed  []failure
	letters letters
	// Shared mode: what is out, ascending, and the end of what was ever looked at.
	slots    []slot
	frontier model.Offset
}

// failure is how often a message was nacked, or its lease or its member's
// session ended with it first in line.
type failure struct {
	offset   model.Offset
	attempts uint32
	until    model.Mono // shared mode: held back so long, by the leader's note
}

// settle moves the cursor over what is acked there, and forgets what lies below.
func (p *partition) settle() {
	p.cursor = p.acked.free(p.cursor)
	p.acked.dropBelow(p.cursor)
	p.dropAcked()
	p.failed = slices.DeleteFunc(p.failed, func(f failure) bool { return p.isAcked(f.offset) })
	p.settleSlots()
}

// failedAt finds the first failure at or above an offset.
func (p *partition) failedAt(o model.Offset) int {
	i, _ := slices.BinarySearchFunc(p.failed, o, func(f failure, o model.Offset) int { return cmp.Compare(f.offset, o) })
	return i
}

// attempts is how often a message came back.
func (p *partition) attempts(o model.Offset) uint32 {
	if i := p.failedAt(o); i < len(p.failed) && p.failed[i].offset == o {
		return p.failed[i].attempts
	}
	return 0
}

// lapse is that a message's delivery ends now.
func (p *partition) lapse(number model.Partition, o model.Offset) lapse {
	return lapse{number, p.fence, o, p.attempts(o), maxFailed}
}

// isAcked says whether a message is done with.
func (p *partition) isAcked(o model.Offset) bool { return o < p.cursor || p.acked.has(o) }

func (s *state) ids() []model.SubscriptionID { return slices.Sorted(maps.Keys(s.subscriptions)) }

// member finds a member; nil when there is none.
func (s *subscription) member(id model.MemberID) *member {
	i, ok := s.search(id)
	if !ok {
		return nil
	}
	return &s.members[i]
}

func (s *subscription) search(id model.MemberID) (int, bool) {
	return slices.BinarySearchFunc(s.members, id, func(m member, id model.MemberID) int {
		return strings.Compare(string(m.id), string(id))
	})
}

// snapshot is the state in the order it is encoded.
type snapshot struct{ subscriptions []*subscription }

// Code implements wire.Coder.
func (v *snapshot) Code(c *wire.Codec) {
	c.Version(snapshotVersion)
	wire.Slice(c, &v.subscriptions, func(c *wire.Codec, s **subscription) {
		if c.Decoding {
			*s = &subscription{}
		}
		(*s).code(c)
	})
}

func (s *subscription) code(c *wire.Codec) {
	wire.Uint(c, &s.id)
	wire.String(c, &s.ref)
	wire.Uint(c, &s.topic)
	wire.Uint(c, &s.mode)
	c.Bool(&s.keyed)
	wire.Uint(c, &s.deliveries)
	wire.Uint(c, &s.born)
	wire.Uint(c, &s.generation)
	wire.Uint(c, &s.joins)
	wire.Slice(c, &s.members, func(c *wire.Codec, m *member) {
		wire.String(c, &m.id)
		c.Bool(&m.static)
		wire.Uint(c, &m.joined)
		wire.Uint(c, &m.sequence)
		wire.Uint(c, &m.delivery)
		wire.Uint(c, &m.token)
	})
	wire.Slice(c, &s.partitions, func(c *wire.Codec, p *partition) {
		wire.Uint(c, &p.cursor)
		wire.String(c, &p.owner)
		wire.Uint(c, &p.fence)
		codeIntervals(c, &p.acked)
		wire.Slice(c, &p.failed, func(c *wire.Codec, f *failure) {
			wire.Uint(c, &f.offset)
			wire.Uint(c, &f.attempts)
		})
		p.letters.code(c)
		p.codeSlots(c)
	})
	wire.Slice(c, &s.kept, codeKept)
}

func (s *state) encode() []byte {
	v := snapshot{}
	for _, id := range s.ids() {
		v.subscriptions = append(v.subscriptions, s.subscriptions[id])
	}
	return wire.Encode(&v)
}

// decode replaces the state; on an error it is as before.
func (s *state) decode(buf []byte) error {
	v := snapshot{}
	if err := wire.Decode(buf, &v); err != nil {
		return fmt.Errorf("coordinator snapshot: %w", err)
	}
	read := make(map[model.SubscriptionID]*subscription, len(v.subscriptions))
	last := model.SubscriptionID(0)
	for _, sub := range v.subscriptions {
		if sub.id <= last {
			return fmt.Errorf("coordinator snapshot: subscription %d follows %d", sub.id, last)
		}
		last = sub.id
		if err := sub.check(); err != nil {
			return fmt.Errorf("coordinator snapshot: subscription %d: %w", sub.id, err)
		}
		read[sub.id] = sub
	}
	s.subscriptions = read
	return nil
}

// check says which invariant a subscription breaks.
func (s *subscription) check() error {
	if s.generation == 0 {
		return fmt.Errorf("generation is 0")
	}
	if err := s.checkKept(); err != nil {
		return err
	}
	for i, m := range s.members {
		if i > 0 && s.members[i-1].id >= m.id {
			return fmt.Errorf("member %q follows %q", m.id, s.members[i-1].id)
		}
		if m.joined == 0 || m.joined > s.joins {
			return fmt.Errorf("member %q has number %d of %d", m.id, m.joined, s.joins)
		}
	}
	for i, p := range s.partitions {
		if p.fence == 0 || p.fence > s.generation {
			return fmt.Errorf("partition %d: fence %d is outside [1, generation %d]", i, p.fence, s.generation)
		}
		if err := p.acked.check(p.cursor); err != nil {
			return fmt.Errorf("partition %d: acked %w", i, err)
		}
		if err := p.checkLetters(); err != nil {
			return fmt.Errorf("partition %d: %w", i, err)
		}
		for k, f := range p.failed {
			if k > 0 && p.failed[k-1].offset >= f.offset || p.isAcked(f.offset) || f.attempts == 0 {
				return fmt.Errorf("partition %d: offset %d cannot have failed", i, f.offset)
			}
		}
		if err := s.checkSlots(&p); err != nil {
			return fmt.Errorf("partition %d: %w", i, err)
		}
		if p.owner != "" && s.member(p.owner) == nil {
			return fmt.Errorf("partition %d: owner %q is not a member", i, p.owner)
		}
	}
	return nil
}
