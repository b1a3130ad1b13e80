package checker

import "github.com/tapedeck/tapedeck/core/model"

// vague says that a subscription does not get every message, and that nobody
// knows which.
func (s *sub) vague() bool { return s.create != nil && s.create.Filtered && s.create.Tag == "" }

// unwanted says that a message is known to be one that the subscription's filter
// leaves out.
func (j *judge) unwanted(s *sub, p *part, o model.Offset) bool {
	if s.create == nil || s.create.Tag == "" {
		return false
	}
	at := p.at(o)
	if at == nil {
		return false
	}
	sent := j.lookup(p.topicID, at.payload)
	return sent != nil && sent.tag != j.intern(s.create.Tag)
}

// unknown says that nobody can tell whether a subscription with a filter was to get
// an offset: no answer told of its message, and the final log would, but was not told.
func (j *judge) unknown(s *sub, p *part, o model.Offset) bool {
	return p.final == nil && s.create != nil && s.create.Tag != "" && p.at(o) == nil
}

// guessed says that of [from, to) nothing is known to be wanted, but not all to be unwanted.
func (j *judge) guessed(s *sub, p *part, from, to model.Offset) bool {
	guess := false
	for o := from; o < to; o++ {
		unknown := j.unknown(s, p, o)
		if guess = guess || unknown; !unknown && !j.unwanted(s, p, o) {
			return false
		}
	}
	return guess
}

// wantedFrom is the first offset of [from, to) that the subscription is to get; to
// if there is none.
func (j *judge) wantedFrom(s *sub, sp *subPart, from, to model.Offset) model.Offset {
	for from < to && j.unwanted(s, sp.log, from) {
		from++
	}
	return from
}

// wasCursor says whether deliveries may have begun where they did: the cursor was
// there, or below it with nothing known to be wanted in between.
func (j *judge) wasCursor(s *sub, sp *subPart, d *delivery, ev *subEvent) bool {
	for o := ev.low; ; o-- {
		if o <= d.start || d.cursorAt(o, ev.by) {
			return true // at or below the final start: retention may have moved it there
		}
		if !j.unwanted(s, sp.log, o-1) && !j.unknown(s, sp.log, o-1) {
			return false
		}
	}
}

// judgeWanted: what is delivered is what the filter wants.
func (j *judge) judgeWanted(s *sub, i int32, p *Pull, m *Message) {
	if s.create == nil || s.create.Tag == "" {
		return
	}
	j.checked(Unwanted)
	topic, _ := j.topic(s.topic)
	sent := j.lookup(topic, m.Payload)
	if sent != nil && sent.tag != j.intern(s.create.Tag) {
		j.fail(Unwanted, []int32{sent.op, i}, "%s/%d of %s: offset %d was delivered to %s, the filter leaves it out",
			s.topic, m.Partition, s.name, m.Offset, p.Member)
	}
}
