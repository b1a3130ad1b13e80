package checker

import (
	"cmp"
	"slices"
	"sort"

	"github.com/tapedeck/tapedeck/core/model"
)

// part is one partition as all observations together show it.
type part struct {
	topicID int32
	topic   *topic
	name    string    // topic/number
	final   *FinalLog // nil: not told; merged from its lines, Messages being the last line's

	slots map[model.Offset]int32 // into list
	list  []slot                 // by offset once sortOffsets ran; slots is gone then

	marks []mark // high watermarks told; sorted by return once judged
	tops  []model.Offset
	times []model.Wall // highest append time in list[:i+1]
}

// slot is one offset of a partition.
type slot struct {
	offset   model.Offset
	payload  uint64
	appended model.Wall // 0: not told
	known    Moment     // by when some answer had told of it
	ackBy    Moment     // by when its publisher was told; Open: never
	producer model.ProducerID
	epoch    model.Epoch
	sequence model.Sequence
	op       int32 // first to tell
	ackOp    int32
	there    bool
	seen     bool // a reader got it
	inFinal  bool
}

// mark is a high watermark as told by an answer, or implied by one.
type mark struct {
	call, by Moment
	high     model.Offset
	op       int32
	fresh    bool // the answer claims to be current, so it must not lag behind
}

// slot finds or makes the slot of an offset; the pointer is good until the next call.
func (p *part) slot(o model.Offset) *slot {
	i, there := p.slots[o]
	if !there {
		i = int32(len(p.list))
		p.slots[o] = i
		p.list = append(p.list, slot{})
	}
	return &p.list[i]
}

func (p *part) watermark(i int32, op *Op, high model.Offset, fresh bool) {
	p.marks = append(p.marks, mark{op.Call, op.Return, high, i, fresh})
}

// sortOffsets ends the collecting.
func (p *part) sortOffsets() {
	p.slots = nil
	slices.SortFunc(p.list, func(a, b slot) int { return cmp.Compare(a.offset, b.offset) })
	p.times = make([]model.Wall, len(p.list))
	for i := range p.list {
		p.times[i] = p.list[i].appended
		if i > 0 {
			p.times[i] = max(p.times[i], p.times[i-1])
		}
	}
}

// at finds the slot of an offset after sortOffsets; nil: nobody saw it.
func (p *part) at(o model.Offset) *slot {
	i := sort.Search(len(p.list), func(i int) bool { return p.list[i].offset >= o })
	if i == len(p.list) || p.list[i].offset != o {
		return nil
	}
	return &p.list[i]
}

func (j *judge) judgeLog(p *part) {
	j.judgeContents(p)
	j.judgeTimes(p)
	j.judgeKeys(p)
	j.judgeProducers(p)
	j.judgeWatermark(p)
}

// judgeContents: every message read is still there, every message there was
// published, and as often as it may have been.
func (j *judge) judgeContents(p *part) {
	for i := range p.list {
		s := &p.list[i]
		if s.seen && p.final != nil && s.offset >= p.final.LogStart {
			if j.checked(ReadOfFuture); !s.inFinal {
				j.fail(ReadOfFuture, []int32{s.op}, "%s: offset %d was read and is not in the final log", p.name, s.offset)
			}
		}
		sent := j.lookup(p.topicID, s.payload)
		if p.topic.published && (s.inFinal || s.seen) {
			j.checked(PhantomWrite)
			if sent == nil {
				j.fail(PhantomWrite, []int32{s.op}, "%s: offset %d holds payload %d, which nobody published",
					p.name, s.offset, s.payload)
			} else if sent.attempts == 0 {
				j.fail(PhantomWrite, []int32{sent.op}, "%s: offset %d holds payload %d, whose publish was refused",
					p.name, s.offset, s.payload)
			}
		}
		if sent == nil {
			continue
		}
		allowed := sent.attempts
		if sent.producer != 0 && !sent.mixed {
			allowed = min(allowed, 1)
		}
		j.checked(Duplicate)
		if first := sent.firstCopy; sent.copies > max(allowed, 1) && (first.part != p || first.offset != s.offset) {
			j.fail(Duplicate, []int32{sent.op, s.ackOp}, "payload %d is at %s offset %d and at %s offset %d, published %d times",
				s.payload, first.part.name, first.offset, p.name, s.offset, sent.attempts)
		}
	}
}

func (j *judge) judgeTimes(p *part) {
	var last *slot
	for i := range p.list {
		s := &p.list[i]
		if s.appended == 0 {
			continue
		}
		if last != nil {
			if j.checked(AppendTimeBack); s.appended < last.appended {
				j.fail(AppendTimeBack, []int32{last.op, s.op}, "%s: append time falls from %d at offset %d to %d at offset %d",
					p.name, last.appended, last.offset, s.appended, s.offset)
			}
		}
		last = s
	}
}

// judgeKeys: if a message was acknowledged before another of its key was first
// called, it has the lower offset. Going down the offsets, the earliest
// acknowledgement above each message is all that is needed.
func (j *judge) judgeKeys(p *part) {
	earliest := map[int32]*slot{}
	for i := len(p.list) - 1; i >= 0; i-- {
		s := &p.list[i]
		m := j.lookup(p.topicID, s.payload)
		if m == nil || m.key == 0 {
			continue
		}
		above := earliest[m.key]
		if above != nil && m.firstCall != Open {
			if j.checked(Reordered); above.ackBy < m.firstCall {
				j.fail(Reordered, []int32{above.ackOp, m.op},
					"%s: offset %d was acknowledged before offset %d of the same key was published", p.name, above.offset, s.offset)
			}
		}
		if s.ackOp != noOp && (above == nil || s.ackBy < above.ackBy) {
			earliest[m.key] = s
		}
	}
}

type producerEpoch struct {
	producer model.ProducerID
	epoch    model.Epoch
}

// identity is who wrote a slot, as stored or as sent; producer 0: not known.
func (j *judge) identity(p *part, s *slot) (producerEpoch, model.Sequence, int32) {
	m := j.lookup(p.topicID, s.payload)
	op := s.op
	if m != nil {
		op = m.op
	}
	if s.producer != 0 {
		return producerEpoch{s.producer, s.epoch}, s.sequence, op
	}
	if m == nil || m.mixed {
		return producerEpoch{}, 0, op
	}
	return producerEpoch{m.producer, m.epoch}, m.sequence, op
}

// judgeProducers: along the log a producer's epochs never fall, and within one
// its sequences rise.
func (j *judge) judgeProducers(p *part) {
	type last struct {
		sequence model.Sequence
		offset   model.Offset
		op       int32
	}
	highest := map[producerEpoch]last{}
	epochs := map[model.ProducerID]model.Epoch{}
	var used map[producerEpoch]map[model.Sequence]bool
	for i := range p.list {
		s := &p.list[i]
		who, sequence, op := j.identity(p, s)
		if who.producer == 0 {
			continue
		}
		if j.checked(FencedProducer); who.epoch < epochs[who.producer] {
			j.fail(FencedProducer, []int32{op}, "%s: offset %d is of producer %d epoch %d, after its epoch %d",
				p.name, s.offset, who.producer, who.epoch, epochs[who.producer])
		}
		epochs[who.producer] = max(epochs[who.producer], who.epoch)
		before, there := highest[who]
		if there && sequence <= before.sequence {
			if used == nil {
				used = j.firstUses(p)
			}
			if sequence == before.sequence || used[who][sequence] {
				j.fail(Duplicate, []int32{before.op, op},
					"%s: producer %d epoch %d sequence %d is in the log twice, at offset %d again",
					p.name, who.producer, who.epoch, sequence, s.offset)
			} else {
				j.fail(Reordered, []int32{before.op, op}, "%s: producer %d epoch %d has sequence %d at offset %d, after %d at %d",
					p.name, who.producer, who.epoch, sequence, s.offset, before.sequence, before.offset)
			}
			continue
		}
		j.checked(Reordered)
		highest[who] = last{sequence, s.offset, op}
	}
}

// firstUses lists the sequences that the log holds more than once. Built only
// when a sequence fell, to tell a duplicate from a reordering.
func (j *judge) firstUses(p *part) map[producerEpoch]map[model.Sequence]bool {
	uses := map[producerEpoch]map[model.Sequence]bool{}
	for i := range p.list {
		who, sequence, _ := j.identity(p, &p.list[i])
		if uses[who] == nil {
			uses[who] = map[model.Sequence]bool{}
		}
		_, again := uses[who][sequence]
		uses[who][sequence] = again
	}
	return uses
}

// judgeWatermark: an answer that claims to be current never shows less than what
// an answer returned before its call showed.
func (j *judge) judgeWatermark(p *part) {
	fresh := make([]mark, 0, len(p.marks)/4)
	for _, m := range p.marks { // in order of calls
		if m.fresh {
			fresh = append(fresh, m)
		}
	}
	slices.SortFunc(p.marks, func(a, b mark) int { return cmp.Or(cmp.Compare(a.by, b.by), cmp.Compare(a.op, b.op)) })
	p.tops = make([]model.Offset, len(p.marks))
	next, high, op := 0, model.Offset(0), noOp
	for _, f := range fresh {
		for next < len(p.marks) && p.marks[next].by < f.call {
			if m := p.marks[next]; m.high > high {
				high, op = m.high, m.op
			}
			next++
		}
		if j.checked(WatermarkBack); f.high < high {
			j.fail(WatermarkBack, []int32{op, f.op}, "%s: high watermark %d was shown, later %d", p.name, high, f.high)
		}
	}
	for i, m := range p.marks {
		p.tops[i] = m.high
		if i > 0 {
			p.tops[i] = max(p.tops[i], p.tops[i-1])
		}
	}
	if n := len(p.tops); n > 0 && p.final != nil && p.final.HighWatermark < p.tops[n-1] {
		j.fail(WatermarkBack, nil, "%s: high watermark %d was shown, the final one is %d",
			p.name, p.tops[n-1], p.final.HighWatermark)
	}
}

// shownBefore is the highest high watermark that an answer had shown before t.
func (p *part) shownBefore(t Moment) model.Offset {
	i := sort.Search(len(p.marks), func(i int) bool { return p.marks[i].by >= t })
	if i == 0 {
		return 0
	}
	return p.tops[i-1]
}

// judgeLost: what was acknowledged is in the final log, at its offset.
func (j *judge) judgeLost() {
	for i := range j.h.Ops {
		op := &j.h.Ops[i]
		if op.Publish == nil || !op.done() {
			continue
		}
		pub := op.Publish
		p := j.part(pub.Topic, pub.Partition)
		if p.topic.deleted {
			continue
		}
		if p.final == nil {
			j.undecided(LostWrite, "%s: its final log was not told", p.name)
			continue
		}
		for n := range pub.Messages {
			o, payload := pub.Offset+model.Offset(n), pub.Messages[n].Payload
			if o < p.final.LogStart {
				continue // retention took it
			}
			j.checked(LostWrite)
			s := p.at(o)
			if s != nil && s.inFinal && s.payload == payload {
				continue
			}
			if m := j.lookup(p.topicID, payload); m != nil && m.inFinal > 0 {
				j.fail(Inconsistent, []int32{int32(i)}, "%s: payload %d was acknowledged at offset %d and is elsewhere",
					p.name, payload, o)
				continue
			}
			j.fail(LostWrite, []int32{int32(i)}, "%s: payload %d was acknowledged at offset %d and is not in the final log",
				p.name, payload, o)
		}
	}
}

type fenceKey struct {
	topic    int32
	all      bool
	number   model.Partition
	producer model.ProducerID
}

// fence is an explicit fencing of all epochs below epoch.
type fence struct {
	epoch model.Epoch
	by    Moment
	op    int32
}

func (j *judge) readFence(i int32, op *Op) {
	o := op.OpenProducer
	id, _ := j.topic(o.Topic)
	f := fence{o.Epoch, op.Return, i}
	keys := []fenceKey{{topic: id, all: true, producer: o.Producer}}
	if len(o.Partitions) > 0 {
		keys = nil
	}
	for _, number := range o.Partitions {
		keys = append(keys, fenceKey{id, false, number, o.Producer})
	}
	for _, key := range keys {
		if j.fences[key] == nil {
			j.fenceKeys = append(j.fenceKeys, key)
		}
		j.fences[key] = append(j.fences[key], f)
	}
}

// judgeFences: after an explicit fence was answered, an older epoch appends nothing.
func (j *judge) judgeFences() {
	if len(j.fences) == 0 {
		return
	}
	for _, key := range j.fenceKeys {
		list := j.fences[key]
		slices.SortFunc(list, func(a, b fence) int { return cmp.Compare(a.epoch, b.epoch) })
		for i := len(list) - 2; i >= 0; i-- {
			if list[i+1].by < list[i].by { // a higher fence that came earlier fences as well
				list[i].by, list[i].op = list[i+1].by, list[i+1].op
			}
		}
	}
	for i := range j.h.Ops {
		op := &j.h.Ops[i]
		if op.Publish == nil || !op.done() || op.Publish.Producer == 0 || op.Publish.Duplicate {
			continue
		}
		pub := op.Publish
		id, _ := j.topic(pub.Topic)
		for _, key := range [...]fenceKey{{id, true, 0, pub.Producer}, {id, false, pub.Partition, pub.Producer}} {
			list := j.fences[key]
			at := sort.Search(len(list), func(k int) bool { return list[k].epoch > pub.Epoch })
			if at < len(list) && list[at].by < op.Call {
				j.fail(FencedProducer, []int32{list[at].op, int32(i)}, "%s/%d: producer %d published with epoch %d after a fence",
					pub.Topic, pub.Partition, pub.Producer, pub.Epoch)
			}
		}
	}
}
