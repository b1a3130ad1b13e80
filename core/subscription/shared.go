package subscription

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// keyless is the hash of messages without a key: no order binds them. A key that
// happens to have it too (one of four thousand million) is taken for none.
var keyless = uint32(batch.KeyHash(nil) >> 32)

// slot is a message of a shared subscription that is not acked and is out with
// a member. Where keys are kept in order every message below the frontier that
// is not acked has one, those too that are with nobody.
type slot struct {
	offset   model.Offset
	session  uint64 // number of the member that holds it; 0: nobody
	delivery uint64 // the pull that gave it; 0 with nobody
	key      uint32 // where keys are kept in order
	// deadline is the leader's note: apply neither reads it nor tells it on.
	deadline model.Mono
}

func (s *slot) out() bool { return s.session != 0 }

func (s *subscription) shared() bool { return s.mode == model.ModeShared }

// session finds the member whose session has this number.
func (s *subscription) session(joined uint64) *member {
	i := slices.IndexFunc(s.members, func(m member) bool { return m.joined == joined })
	if i < 0 {
		return nil
	}
	return &s.members[i]
}

// held counts the messages that are out, with one session and with all.
func (s *subscription) held(session uint64) (own, all uint64) {
	for p := range s.partitions {
		for i := range s.partitions[p].slots {
			if sl := &s.partitions[p].slots[i]; sl.out() {
				all++
				if sl.session == session {
					own++
				}
			}
		}
	}
	return own, all
}

// room is how many messages more a session may be given; total 0: no limit.
func (s *subscription) room(session, member, total uint64) uint64 {
	own, all := s.held(session)
	room := member - min(own, member)
	if total != 0 {
		room = min(room, total-min(all, total))
	}
	return room
}

// edge is the end of what was ever looked at, or is acked there: a filter's passes
// lie beyond the frontier.
func (p *partition) edge() model.Offset { return p.acked.free(max(p.frontier, p.cursor)) }

func (p *partition) slotAt(o model.Offset) (int, bool) {
	return slices.BinarySearchFunc(p.slots, o, func(s slot, o model.Offset) int { return cmp.Compare(s.offset, o) })
}

// leased counts the messages that are out.
func (p *partition) leased() (n uint64) {
	for i := range p.slots {
		if p.slots[i].out() {
			n++
		}
	}
	return n
}

// settleSlots forgets those of messages that are acked.
func (p *partition) settleSlots() {
	if len(p.slots) == 0 {
		return
	}
	p.slots = slices.DeleteFunc(p.slots, func(s slot) bool { return p.isAcked(s.offset) })
}

// closed says whether a message is on its way to the dead letters: its attempts
// are used up, or it is being moved.
func (p *partition) closed(o model.Offset, attempts uint32) bool {
	if mv := p.letters.move; mv != nil && !mv.void && mv.offset == o {
		return true
	}
	return attempts > 0 && p.attempts(o) >= attempts
}

// taking is what one pull takes of one partition.
type taking struct {
	session, delivery uint64
	room              uint64 // messages still wanted
	attempts          uint32 // of a message at most; 0: without end
	window            int    // slots and failures of the partition together at most
	keyed             bool
}

// full says that a message not seen before may not be looked at: each that is
// out may come back, and has to be counted then.
func (p *partition) full(t *taking) bool { return len(p.slots)+len(p.failed) >= t.window }

// take leases what of [from, to) is open to the session, in order, and says what
// it was. keys has one hash per message, where keys are kept in order.
func (p *partition) take(t *taking, from, to model.Offset, keys []uint32) []model.Offset {
	if t.keyed {
		return p.takeKeyed(t, from, to, keys)
	}
	var taken []model.Offset
	fresh := make([]slot, 0, min(uint64(to-from), t.room))
	for o := p.acked.free(max(from, p.cursor)); o < to && uint64(len(taken)) < t.room; o = p.acked.free(o + 1) {
		if _, there := p.slotAt(o); there || p.closed(o, t.attempts) {
			continue
		}
		if p.attempts(o) == 0 && len(p.slots)+len(p.failed)+len(fresh) >= t.window {
			break
		}
		taken = append(taken, o)
		fresh = append(fresh, slot{offset: o, session: t.session, delivery: t.delivery})
	}
	if n := len(taken); n > 0 {
		p.frontier = max(p.edge(), taken[n-1]+1)
		p.slots = mergeSlots(p.slots, fresh)
		t.room -= uint64(n)
	}
	return taken
}

func mergeSlots(a, b []slot) []slot {
	out := make([]slot, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].offset < b[0].offset {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// keyHolders says who holds the messages of a key, going through a partition in order.
type keyHolders map[uint32]uint64

// blocked marks a key of which a message is with nobody: none after it may go out.
const blocked = ^uint64(0)

// open says whether the next message of a key may go to a session.
func (h keyHolders) open(key uint32, session uint64) bool {
	holder, held := h[key]
	return key == keyless || !held || holder == session
}

func (h keyHolders) note(s *slot, holder uint64) {
	if s.key != keyless {
		h[s.key] = holder
	}
}

// pass goes by a message that is not looked at closer.
func (h keyHolders) pass(s *slot) {
	if s.out() {
		h.note(s, s.session)
	} else {
		h.note(s, blocked)
	}
}

// takeKeyed goes on at the frontier only: the keys of all that lies below and is
// not acked are known, so that no message overtakes an earlier one of its key.
func (p *partition) takeKeyed(t *taking, from, to model.Offset, keys []uint32) (taken []model.Offset) {
	holders, next := keyHolders{}, 0
	for o := p.acked.free(max(from, p.cursor)); o < to && t.room > 0; o = p.acked.free(o + 1) {
		for ; next < len(p.slots) && p.slots[next].offset < o; next++ {
			holders.pass(&p.slots[next])
		}
		if o >= p.edge() {
			if o > p.acked.free(p.edge()) || p.full(t) || uint64(o-from) >= uint64(len(keys)) {
				break
			}
			p.slots = append(p.slots, slot{offset: o, key: keys[o-from]})
			p.frontier = o + 1
		}
		if next == len(p.slots) || p.slots[next].offset != o {
			break // an invariant says that it is there; nothing may go out without
		}
		s := &p.slots[next]
		if !s.out() && holders.open(s.key, t.session) && !p.closed(o, t.attempts) {
			s.session, s.delivery = t.session, t.delivery
			taken = append(taken, o)
			t.room--
		}
		holders.pass(s)
		next++
	}
	return taken
}

// giveBack takes messages from whoever has them, by place among the slots,
// ascending. Where keys are kept in order what follows of their keys comes back
// with them, uncounted.
func (s *subscription) giveBack(p *partition, at []int, count bool, limit int) {
	if len(at) == 0 {
		return
	}
	back := map[uint32]model.Offset{} // the first of a key
	for _, i := range at {
		sl := &p.slots[i]
		sl.session, sl.delivery = 0, 0
		if _, there := back[sl.key]; !there && sl.key != keyless {
			back[sl.key] = sl.offset
		}
		if count {
			_ = p.fail(sl.offset, limit) // there is room: see full
		}
	}
	if !s.keyed {
		p.slots = slices.DeleteFunc(p.slots, func(sl slot) bool { return !sl.out() })
		return
	}
	for i := at[0] + 1; i < len(p.slots); i++ {
		sl := &p.slots[i]
		if first, there := back[sl.key]; there && first < sl.offset {
			sl.session, sl.delivery = 0, 0
		}
	}
}

// endSession gives back all that a session holds; who died counts an attempt of each.
func (s *subscription) endSession(joined uint64, died bool) {
	for i := range s.partitions {
		part := &s.partitions[i]
		var at []int
		for k := range part.slots {
			if part.slots[k].session == joined {
				at = append(at, k)
			}
		}
		s.giveBack(part, at, died, maxFailed)
	}
}

// given lists what is still out of one delivery, as ranges with their attempts.
func (s *subscription) given(session, delivery uint64) (out []call.Range) {
	if delivery == 0 {
		return nil
	}
	for i := range s.partitions {
		var offsets []model.Offset
		for k := range s.partitions[i].slots {
			if sl := &s.partitions[i].slots[k]; sl.session == session && sl.delivery == delivery {
				offsets = append(offsets, sl.offset)
			}
		}
		out = s.partitions[i].ranges(out, model.Partition(i), offsets)
	}
	return out
}

// ranges joins offsets that follow each other, cut where one came back before.
func (p *partition) ranges(out []call.Range, n model.Partition, offsets []model.Offset) []call.Range {
	for len(offsets) > 0 {
		k := 1
		for k < len(offsets) && offsets[k] == offsets[k-1]+1 {
			k++
		}
		out = p.tries(out, call.Range{Partition: n, From: offsets[0], To: offsets[k-1] + 1})
		offsets = offsets[k:]
	}
	return out
}

// checkSlots says which invariant the slots of a partition break.
func (s *subscription) checkSlots(p *partition) error {
	holders := keyHolders{}
	for i := range p.slots {
		sl := &p.slots[i]
		switch {
		case i > 0 && p.slots[i-1].offset >= sl.offset || p.isAcked(sl.offset) || sl.offset >= p.edge():
			return fmt.Errorf("offset %d cannot be out", sl.offset)
		case !sl.out() && !s.keyed:
			return fmt.Errorf("offset %d is out with nobody", sl.offset)
		case sl.out() && s.session(sl.session) == nil:
			return fmt.Errorf("offset %d is out with session %d, which has ended", sl.offset, sl.session)
		case sl.out() != (sl.delivery != 0) || sl.delivery > s.deliveries:
			return fmt.Errorf("offset %d has delivery %d of %d", sl.offset, sl.delivery, s.deliveries)
		case s.keyed && sl.out() && !holders.open(sl.key, sl.session):
			return fmt.Errorf("offset %d is out before an earlier message of its key", sl.offset)
		}
		holders.pass(sl)
	}
	return nil
}

func (p *partition) codeSlots(c *wire.Codec) {
	wire.Uint(c, &p.frontier)
	last := model.Offset(0)
	wire.Slice(c, &p.slots, func(c *wire.Codec, s *slot) {
		gap := s.offset - last
		wire.Uint(c, &gap)
		s.offset = last + gap
		last = s.offset
		wire.Uint(c, &s.session)
		wire.Uint(c, &s.delivery)
		wire.Uint(c, &s.key)
	})
}
