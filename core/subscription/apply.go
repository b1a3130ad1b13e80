package subscription

import (
	"fmt"
	"math"
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// outcome is what applying a command tells those who wait for it.
type outcome struct {
	err        *model.Error
	generation model.Generation // seek: the one it began
	moved      []place          // seek to a snapshot: where it went
	kept       call.CursorSnapshot
	skipped    []call.Range       // skip: what lay between old and new cursors
	acks       [][]call.AckResult // ack: by ack and item
	lapses     []*model.Error     // lapse, return: by item
	ended      []bool             // lapse: by item; that delivery's end was counted before
	leases     []leased           // lease: by pull
}

func (v *initCommand) apply(s *state) outcome {
	if s.subscriptions[v.id] != nil {
		return outcome{}
	}
	sub := &subscription{id: v.id, ref: v.ref, topic: v.topic, mode: v.mode, keyed: v.keyed, born: v.born,
		generation: 1}
	for _, cursor := range v.cursors {
		sub.partitions = append(sub.partitions, partition{cursor: cursor, fence: 1})
	}
	s.subscriptions[v.id] = sub
	return outcome{}
}

func (v *growCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	for sub != nil && uint32(len(sub.partitions)) < v.partitions {
		sub.partitions = append(sub.partitions, partition{fence: sub.generation})
	}
	return outcome{}
}

func (v *dropCommand) apply(s *state) outcome {
	if sub := s.subscriptions[v.id]; sub != nil && v.version >= sub.born {
		delete(s.subscriptions, v.id)
	}
	return outcome{}
}

func (v *membersCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	if sub == nil {
		return outcome{err: gone(v.id)}
	}
	for _, l := range v.lapses {
		_, _ = sub.lapse(l) // who is gone is told nothing
	}
	next, raised := sub.generation+1, false
	for _, l := range v.leaves {
		i, ok := sub.search(l.member)
		if !ok || sub.members[i].joined != l.joined {
			continue
		}
		sub.endSession(l.joined, slices.Contains(v.died, l.joined))
		sub.members = slices.Delete(sub.members, i, i+1)
		for p := range sub.partitions {
			if part := &sub.partitions[p]; part.owner == l.member {
				part.owner, part.fence, raised = "", next, true
			}
		}
	}
	if raised {
		sub.generation = next
	}
	for _, j := range v.joins {
		i, ok := sub.search(j.member)
		switch {
		case ok:
			sub.members[i].static = j.static
		case uint32(len(sub.members)) < v.limit && j.member != "":
			sub.joins++
			sub.members = slices.Insert(sub.members, i, member{id: j.member, static: j.static, joined: sub.joins})
		}
	}
	return outcome{}
}

func (v *assignCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	if sub == nil || sub.generation != v.generation {
		return outcome{}
	}
	next, raised := sub.generation+1, false
	for _, ch := range v.changes {
		if int(ch.partition) >= len(sub.partitions) || sub.member(ch.owner) == nil {
			continue
		}
		part := &sub.partitions[ch.partition]
		// A second change in one generation would give it two owners.
		if part.owner == ch.owner || part.fence == next {
			continue
		}
		part.owner, part.fence, raised = ch.owner, next, true
	}
	if raised {
		sub.generation = next
	}
	return outcome{}
}

func (v *ackCommand) apply(s *state) outcome {
	out := outcome{acks: make([][]call.AckResult, 0, len(v.acks))}
	for _, a := range v.acks {
		results := make([]call.AckResult, 0, len(a.items))
		for _, item := range a.items {
			results = append(results, s.ack(&a, item, int(v.limit)))
		}
		out.acks = append(out.acks, results)
	}
	return out
}

func (s *state) ack(a *ack, item ackItem, limit int) call.AckResult {
	sub := s.subscriptions[a.id]
	if sub == nil {
		return call.AckResult{Partition: item.partition, Err: gone(a.id)}
	}
	if err := sub.inRange(item.partition); err != nil {
		return call.AckResult{Partition: item.partition, Err: err}
	}
	part := &sub.partitions[item.partition]
	if item.void || !sub.accepts(a.member, a.generation, item.partition) {
		return call.AckResult{Partition: item.partition, Cursor: part.cursor, Err: sub.fenced(a, item.partition)}
	}
	if sub.shared() && item.end() > part.edge() {
		return call.AckResult{Partition: item.partition, Cursor: part.cursor, Err: model.Invalid("offsets",
			"partition %d: offset %d was not delivered", item.partition, item.end()-1)}
	}
	err := part.ack(item, limit)
	return call.AckResult{Partition: item.partition, Cursor: part.cursor, Err: err}
}

// ack takes an item in whole, or not at all when it would leave more ranges
// ahead of the cursor than may be.
func (p *partition) ack(item ackItem, limit int) *model.Error {
	before := *p
	if len(p.acked)+len(item.ahead) > limit {
		before.acked, before.failed = slices.Clone(p.acked), slices.Clone(p.failed)
		before.slots = slices.Clone(p.slots)
	}
	p.cursor = max(p.cursor, item.next)
	p.acked.dropBelow(p.cursor)
	for _, x := range item.ahead {
		p.acked.add(interval{max(x.from, p.cursor), x.to})
	}
	p.settle()
	if len(p.acked) > limit && len(p.acked) > len(before.acked) {
		*p = before
		return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, holesRetry,
			"partition %d: %d ranges are acknowledged ahead of the cursor %d, the limit is %d; acknowledge what lies between",
			item.partition, len(p.acked), p.cursor, limit)
	}
	return nil
}

// accepts is the fence: whether a member may ack what a pull in this generation
// delivered. The generation cannot be one that has not been yet.
func (s *subscription) accepts(m model.MemberID, g model.Generation, p model.Partition) bool {
	part := &s.partitions[p]
	return m != "" && (part.owner == m || s.shared()) && g >= part.fence && g <= s.generation
}

func (s *subscription) inRange(p model.Partition) *model.Error {
	if int(p) < len(s.partitions) {
		return nil
	}
	return model.Invalid("partition", "%d does not exist; %s has partitions 0 to %d", p, s.ref, len(s.partitions)-1)
}

func (s *subscription) fenced(a *ack, p model.Partition) *model.Error {
	err := s.fencedAt(a.generation, p)
	if s.partitions[p].owner != a.member && !s.shared() {
		err.Message = fmt.Sprintf("partition %d is not (any more) %q's; drop what was delivered and pull again", p, a.member)
	}
	return err
}

func (s *subscription) fencedAt(g model.Generation, p model.Partition) *model.Error {
	err := model.Reasoned(model.FailedPrecondition, model.ReasonFenced, 0,
		"partition %d: generation %d is below the fence %d; drop what was delivered and pull again",
		p, g, s.partitions[p].fence)
	if g > s.generation {
		err.Message = fmt.Sprintf("partition %d: generation %d was never given; the current one is %d", p, g, s.generation)
	}
	err.Expected = uint64(s.generation)
	return err
}

func (v *seekCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	if sub == nil {
		return outcome{err: gone(v.id)}
	}
	for _, to := range v.to {
		if err := sub.inRange(to.partition); err != nil {
			return outcome{err: err}
		}
	}
	sub.generation++
	for _, to := range v.to {
		part := &sub.partitions[to.partition]
		*part = partition{cursor: to.offset, owner: part.owner, fence: sub.generation, letters: part.letters,
			frontier: to.offset}
		if part.letters.move != nil {
			part.letters.move.void = true
		}
	}
	return outcome{generation: sub.generation}
}

func (v *skipCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	if sub == nil {
		return outcome{err: gone(v.id)}
	}
	var out outcome
	for _, to := range v.to {
		if int(to.partition) >= len(sub.partitions) {
			continue
		}
		part := &sub.partitions[to.partition]
		if to.offset > part.cursor {
			out.skipped = append(out.skipped, call.Range{Partition: to.partition, From: part.cursor, To: to.offset})
			part.cursor = to.offset
			part.settle()
		}
	}
	return out
}

func (v *lapseCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	if sub == nil {
		return outcome{err: gone(v.id)}
	}
	out := outcome{lapses: make([]*model.Error, len(v.lapses)), ended: make([]bool, len(v.lapses))}
	for i, l := range v.lapses {
		out.ended[i], out.lapses[i] = sub.lapse(l)
	}
	return out
}

// lapse counts that a message came back, unless it is acked, or was counted since
// the lapse was proposed: then ended.
func (s *subscription) lapse(l lapse) (ended bool, err *model.Error) {
	if err := s.inRange(l.partition); err != nil {
		return false, err
	}
	part := &s.partitions[l.partition]
	if part.fence != l.fence {
		return false, s.fencedAt(l.fence, l.partition)
	}
	if !part.isAcked(l.offset) && part.attempts(l.offset) != l.before {
		return true, nil
	}
	if err = part.fail(l.offset, int(l.limit)); err != nil {
		err.Message = fmt.Sprintf("partition %d: %s", l.partition, err.Message)
	}
	return false, err
}

// fail counts an attempt of a message that is not acked.
func (p *partition) fail(o model.Offset, limit int) *model.Error {
	switch i := p.failedAt(o); {
	case p.isAcked(o):
	case i < len(p.failed) && p.failed[i].offset == o:
		p.failed[i].attempts += min(1, math.MaxUint32-p.failed[i].attempts)
	case len(p.failed) >= limit:
		return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, holesRetry,
			"%d messages came back and wait, the limit; acknowledge some of them first", limit)
	default:
		p.failed = slices.Insert(p.failed, i, failure{offset: o, attempts: 1})
	}
	return nil
}

func gone(id model.SubscriptionID) *model.Error {
	return model.Errorf(model.NotFound, "the subscription (id %d) was deleted", id)
}
