package checker

import (
	"cmp"
	"slices"

	"github.com/tapedeck/tapedeck/core/model"
)

// gift is one message of one pull.
type gift struct {
	offset    model.Offset
	payload   uint64
	delivery  uint64
	attempt   uint32 // 0: not told
	member    int32
	start, by Moment // its lease began at start or later, and by then at the latest
	call      Moment
	epoch     model.Generation // of the pull
	op        int32
}

// single is an ack of one message.
type single struct {
	offset     model.Offset
	call, by   Moment // by is Open when it is not known to have happened
	generation model.Generation
	op         int32
}

type nackAt struct {
	offset model.Offset
	call   Moment
}

// membersOf is what a subscription's members did as a whole.
type membersOf struct {
	leaves map[int32]Moment   // the first call of a leave
	began  map[pullKey]Moment // the first call of a pull by its sequence
	lost   int                // pulls whose answers may have been lost
	unsure map[int32]Moment   // the first pull of a member whose answer is not known
}

// singly says that a subscription is judged message by message: what is acked
// leaves holes, and messages go to the dead letters.
func (s *sub) singly() bool {
	return s.create != nil && (s.create.Shared || s.create.DeadLetters != "")
}

func (j *judge) readLeave(op *Op) {
	s, m := j.sub(op.Leave.Subscription), j.intern(string(op.Leave.Member))
	if s.members.leaves == nil {
		s.members.leaves = map[int32]Moment{}
	}
	if _, there := s.members.leaves[m]; !there {
		s.members.leaves[m] = op.Call
	}
}

// began notes when a pull with this sequence was first called.
func (s *sub) began(member int32, op *Op) Moment {
	if s.members.began == nil {
		s.members.began = map[pullKey]Moment{}
	}
	if op.Pull.Sequence == 0 {
		return op.Call
	}
	key := pullKey{member, op.Pull.Sequence}
	if at, there := s.members.began[key]; there {
		return at
	}
	s.members.began[key] = op.Call
	return op.Call
}

// readLostPull notes a pull whose answer did not arrive: it may have given messages.
func (j *judge) readLostPull(op *Op) {
	s, m := j.sub(op.Pull.Subscription), j.intern(string(op.Pull.Member))
	s.began(m, op)
	s.members.lost++
	if s.members.unsure == nil {
		s.members.unsure = map[int32]Moment{}
	}
	if _, there := s.members.unsure[m]; !there {
		s.members.unsure[m] = op.Call
	}
}

func (j *judge) readGifts(s *sub, i int32, op *Op) {
	p, member := op.Pull, j.intern(string(op.Pull.Member))
	start := s.began(member, op)
	for n := range p.Messages {
		m := &p.Messages[n]
		sp := j.subPart(p.Subscription, m.Partition)
		sp.gifts = append(sp.gifts, gift{offset: m.Offset, payload: m.Payload, delivery: p.Delivery, attempt: m.Attempt,
			member: member, start: start, by: op.Return, call: op.Call, epoch: p.Generation, op: i})
	}
}

func (j *judge) readSingles(i int32, op *Op) {
	if !op.maybe() {
		return
	}
	sp := j.subPart(op.Ack.Subscription, op.Ack.Partition)
	for _, o := range op.Ack.Offsets {
		sp.singles = append(sp.singles, single{o, op.Call, op.by(), op.Ack.Generation, i})
	}
}

// judgeSingly draws the verdicts on a subscription whose messages are acked and
// given back one by one. Where a seek of unknown outcome may have moved cursors,
// nothing can be said.
func (j *judge) judgeSingly(s *sub, cursors map[model.Partition]model.Offset) {
	dead := j.deadLetters(s)
	for _, sp := range s.parts {
		if sp.wild != Open || s.deleted || sp.log.topic.deleted {
			continue
		}
		j.judgeAcks(s, sp)
		j.judgeSingles(s, sp)
		if s.create.Shared {
			j.judgeLeases(s, sp)
		}
		if s.create.KeyOrdered {
			j.judgeKeyHolders(s, sp, dead)
		}
		epochs := sp.split()
		last := &epochs[len(epochs)-1]
		last.base, last.known = sp.base(s, len(epochs)-1)
		last.last, last.lastTold = cursors[sp.number]
		j.judgeLostMessages(s, sp, last, dead)
	}
	j.judgeDeadLetters(s, dead)
}

// deadLetters counts a subscription's dead letters by payload; nil: not known.
func (j *judge) deadLetters(s *sub) map[uint64]int {
	if s.create.DeadLetters == "" || len(j.final.Logs) == 0 {
		return nil
	}
	dead := map[uint64]int{}
	for i := range j.final.Logs {
		if f := &j.final.Logs[i]; f.Topic == s.create.DeadLetters {
			for k := range f.Messages {
				dead[f.Messages[k].Payload]++
			}
		}
	}
	return dead
}

// judgeSingles: what was acked is not delivered by a pull called after the
// answer, until a seek.
func (j *judge) judgeSingles(s *sub, sp *subPart) {
	first := map[model.Offset][]single{}
	for _, a := range sp.singles {
		if a.by != Open {
			first[a.offset] = append(first[a.offset], a)
		}
	}
	for i := range sp.gifts {
		g := &sp.gifts[i]
		for _, a := range first[g.offset] {
			j.checked(Redelivered)
			if a.by < g.call && sp.seeksUpTo(a.generation) == sp.seeksUpTo(g.epoch) {
				j.fail(Redelivered, []int32{a.op, g.op}, "%s of %s: offset %d was delivered after its ack was answered",
					sp.log.name, s.name, g.offset)
			}
		}
	}
}

// judgeLeases: two deliveries of one message follow each other; between them
// the first one ended, and was counted unless its holder left.
func (j *judge) judgeLeases(s *sub, sp *subPart) {
	gifts := slices.Clone(sp.gifts)
	slices.SortStableFunc(gifts, func(a, b gift) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.delivery, b.delivery), cmp.Compare(a.by, b.by))
	})
	for i := range gifts {
		b := &gifts[i]
		if j.checked(AttemptsWrong); s.create.Attempts > 0 && b.attempt > s.create.Attempts {
			j.fail(AttemptsWrong, []int32{b.op}, "%s of %s: offset %d was delivered for the %dth time; %d are allowed",
				sp.log.name, s.name, b.offset, b.attempt, s.create.Attempts)
		}
		if i == 0 || gifts[i-1].offset != b.offset || gifts[i-1].delivery == b.delivery ||
			sp.seeksUpTo(gifts[i-1].epoch) != sp.seeksUpTo(b.epoch) {
			continue
		}
		j.judgeTwo(s, sp, &gifts[i-1], b)
	}
}

func (j *judge) judgeTwo(s *sub, sp *subPart, a, b *gift) {
	left, leaves := s.members.leaves[a.member]
	leaves = leaves && left < b.by
	least := a.attempt + 1
	if leaves || s.create.KeyOrdered { // it came back uncounted, maybe with an earlier one of its key
		least = a.attempt
	}
	if a.attempt != 0 && b.attempt != 0 {
		if j.checked(AttemptsWrong); b.attempt < least {
			j.fail(AttemptsWrong, []int32{a.op, b.op}, "%s of %s: offset %d has attempt %d after attempt %d",
				sp.log.name, s.name, b.offset, b.attempt, a.attempt)
		}
	}
	given := func(n nackAt) bool { return n.offset == a.offset && n.call < b.by }
	if leaves || s.create.KeyOrdered || slices.ContainsFunc(sp.nacks, given) {
		return
	}
	if j.checked(TwoHolders); b.by < a.start+s.create.Lease {
		j.fail(TwoHolders, []int32{a.op, b.op}, "%s of %s: offset %d was given twice within %d ms; no lease ends so soon",
			sp.log.name, s.name, a.offset, (b.by-a.start)/1_000_000)
	}
}

// judgeKeyHolders: a message goes to a member only if the one before it of its key is
// acked, or was given to that member.
func (j *judge) judgeKeyHolders(s *sub, sp *subPart, dead map[uint64]int) {
	acked := map[model.Offset]Moment{} // the first call of an ack
	for _, a := range sp.singles {
		if at, there := acked[a.offset]; !there || a.call < at {
			acked[a.offset] = a.call
		}
	}
	type holding struct {
		offset model.Offset
		member int32
	}
	had := map[holding]Moment{}
	for i := range sp.gifts {
		g := &sp.gifts[i]
		if at, there := had[holding{g.offset, g.member}]; !there || g.by < at {
			had[holding{g.offset, g.member}] = g.by
		}
	}
	before := j.keyPredecessors(sp)
	for i := range sp.gifts {
		g := &sp.gifts[i]
		prev, there := before[g.offset]
		if !there || sp.log.final == nil || prev < sp.log.final.LogStart || len(sp.seeks) > 0 {
			continue
		}
		if at, sent := acked[prev]; sent && at < g.by || dead[sp.log.payloadAt(prev)] > 0 {
			continue
		}
		if at, unsure := s.members.unsure[g.member]; unsure && at < g.by {
			continue // it may have been given to it in an answer that was lost
		}
		if at, there := had[holding{prev, g.member}]; j.checkedKey() && (!there || at > g.by) {
			j.fail(KeyOrder, []int32{g.op}, "%s of %s: offset %d was given to a member that does not hold offset %d of its key",
				sp.log.name, s.name, g.offset, prev)
		}
	}
}

func (j *judge) checkedKey() bool { j.checked(KeyOrder); return true }

// keyPredecessors is, for each offset that was given, the one before it of its key.
func (j *judge) keyPredecessors(sp *subPart) map[model.Offset]model.Offset {
	before, last := map[model.Offset]model.Offset{}, map[int32]model.Offset{}
	if sp.log.final == nil {
		return before
	}
	for i := range sp.log.final.Messages {
		m := &sp.log.final.Messages[i]
		sent := j.lookup(sp.log.topicID, m.Payload)
		if sent == nil || sent.key == 0 {
			continue
		}
		if prev, there := last[sent.key]; there {
			before[m.Offset] = prev
		}
		last[sent.key] = m.Offset
	}
	return before
}

// payloadAt is the payload at an offset of the final log; 0: none.
func (p *part) payloadAt(o model.Offset) uint64 {
	if p.final == nil || o < p.final.LogStart || o >= p.final.LogStart+model.Offset(len(p.final.Messages)) {
		return 0
	}
	return p.final.Messages[o-p.final.LogStart].Payload
}

// judgeLostMessages: of a drained subscription every message since the last seek
// was acked by somebody, or is a dead letter.
func (j *judge) judgeLostMessages(s *sub, sp *subPart, e *epoch, dead map[uint64]int) {
	f := sp.log.final
	if !j.final.Drained || f == nil || !e.known || s.create.DeadLetters != "" && dead == nil {
		return
	}
	gone, upTo := map[model.Offset]bool{}, model.Offset(0)
	for _, a := range sp.singles {
		gone[a.offset] = true
	}
	for i := range e.events {
		if ev := &e.events[i]; ev.kind == eventAck {
			upTo = max(upTo, ev.high)
		}
	}
	for i := range f.Messages {
		m := &f.Messages[i]
		if m.Offset < max(e.base, upTo) {
			continue
		}
		if j.checked(LostMessage); !gone[m.Offset] && dead[m.Payload] == 0 {
			j.fail(LostMessage, nil, "%s of %s: offset %d is passed, though nobody acked it and it is no dead letter",
				sp.log.name, s.name, m.Offset)
		}
	}
}

// judgeDeadLetters: a message has one copy per seek at most, and only after its
// attempts, each of which was seen or may have been lost on the way.
func (j *judge) judgeDeadLetters(s *sub, dead map[uint64]int) {
	if len(dead) == 0 {
		return
	}
	seeks, deliveries := 0, map[uint64]map[uint64]bool{}
	for i := range j.h.Ops {
		if op := &j.h.Ops[i]; op.Seek != nil && op.Seek.Subscription == s.name && op.maybe() {
			seeks++
		}
	}
	for _, sp := range s.parts {
		for i := range sp.gifts {
			g := &sp.gifts[i]
			if deliveries[g.payload] == nil {
				deliveries[g.payload] = map[uint64]bool{}
			}
			deliveries[g.payload][cmp.Or(g.delivery, uint64(g.op)+1<<32)] = true
		}
	}
	for i := range j.final.Logs {
		f := &j.final.Logs[i]
		if f.Topic != s.create.DeadLetters {
			continue
		}
		for k := range f.Messages {
			payload := f.Messages[k].Payload
			if j.checked(DeadLetterTwice); dead[payload] > 1+seeks {
				j.fail(DeadLetterTwice, nil, "%s/%d: offset %d is one of %d copies after %d seeks", f.Topic, f.Partition,
					f.Messages[k].Offset, dead[payload], seeks)
			}
			if j.checked(DeadLetterEarly); len(deliveries[payload])+s.members.lost < int(s.create.Attempts) {
				j.fail(DeadLetterEarly, nil, "%s/%d: offset %d was delivered %d times before, %d are allowed", f.Topic,
					f.Partition, f.Messages[k].Offset, len(deliveries[payload]), s.create.Attempts)
			}
		}
	}
}
