package checker

import (
	"cmp"
	"slices"
	"sort"

	"github.com/tapedeck/tapedeck/core/model"
)

// judgeCursor: within an epoch the cursor never falls, and nothing below it is
// delivered by a pull called after an ack was answered. Going through the calls,
// the highest cursor answered before each is all that is needed.
func (j *judge) judgeCursor(s *sub, sp *subPart, e *epoch) {
	var told []*subEvent // that say "the cursor is at least low", by return
	for i := range e.events {
		if ev := &e.events[i]; ev.by != Open && (ev.kind == eventAck || ev.kind == eventDescribe) {
			told = append(told, ev)
		}
	}
	slices.SortStableFunc(told, func(a, b *subEvent) int { return cmp.Compare(a.by, b.by) })
	next, high, op, acked := 0, model.Offset(0), noOp, noOp
	highAck := model.Offset(0)
	for i := range e.events {
		ev := &e.events[i]
		for next < len(told) && told[next].by < ev.call {
			if t := told[next]; t.low > high {
				high, op = t.low, t.op
			}
			if t := told[next]; t.kind == eventAck && t.low > highAck {
				highAck, acked = t.low, t.op
			}
			next++
		}
		switch {
		case ev.kind == eventPull && !ev.repeat:
			if j.checked(Redelivered); ev.low < highAck {
				j.fail(Redelivered, []int32{acked, ev.op}, "%s of %s: offset %d was delivered after the ack up to %d was answered",
					sp.log.name, s.name, ev.low, highAck)
			}
		case ev.by != Open && (ev.kind == eventAck || ev.kind == eventDescribe):
			if j.checked(CursorBack); ev.low < high {
				j.fail(CursorBack, []int32{op, ev.op}, "%s of %s: the cursor was %d, later %d without a seek",
					sp.log.name, s.name, high, ev.low)
			}
			if ev.kind == eventAck && ev.low < ev.high {
				j.fail(CursorBack, []int32{ev.op}, "%s of %s: an ack up to %d was accepted, the cursor is %d",
					sp.log.name, s.name, ev.high, ev.low)
			}
		}
	}
	for ; next < len(told); next++ {
		if t := told[next]; t.low > high {
			high, op = t.low, t.op
		}
	}
	if e.lastTold {
		if j.checked(CursorBack); e.last < high {
			j.fail(CursorBack, []int32{op}, "%s of %s: the cursor was %d, the final one is %d",
				sp.log.name, s.name, high, e.last)
		}
	}
}

// judgeDelivery: a member's deliveries go on where the last one ended, or start
// at a cursor that is possible at that time.
func (j *judge) judgeDelivery(s *sub, sp *subPart, e *epoch) {
	var pulls, moves []*subEvent
	for i := range e.events {
		switch ev := &e.events[i]; ev.kind {
		case eventPull:
			pulls = append(pulls, ev)
		case eventAck, eventSkip:
			moves = append(moves, ev) // in order of calls
		}
	}
	// Generations order the owners; within one there is one owner, so returns order its deliveries.
	slices.SortStableFunc(pulls, func(a, b *subEvent) int {
		return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.by, b.by))
	})
	d := newDelivery(e, moves)
	if sp.log.final != nil {
		d.start = sp.log.final.LogStart
	}
	for _, ev := range pulls {
		j.judgeRun(s, sp, d, ev)
	}
}

// delivery is how far an epoch's deliveries have come.
type delivery struct {
	known   bool                    // where the epoch began; else the first delivery shows it
	base    model.Offset            // the cursor at its beginning, valid if known
	start   model.Offset            // final log start: retention may have moved cursors up to it
	cursors map[model.Offset]Moment // where the cursor may have been, and since when
	moves   []*subEvent             // what may have moved it, in order of calls
	highs   []model.Offset          // highest target of moves[:i+1]
	member  int32                   // who was given messages last
	end     model.Offset            // up to where; valid if running
	running bool
}

func newDelivery(e *epoch, moves []*subEvent) *delivery {
	d := &delivery{known: e.known, base: e.base, cursors: map[model.Offset]Moment{}, moves: moves}
	high := model.Offset(0)
	for _, m := range moves {
		for _, o := range [...]model.Offset{m.low, m.high} {
			if _, there := d.cursors[o]; !there {
				d.cursors[o] = m.call
			}
			high = max(high, o)
		}
		d.highs = append(d.highs, high)
	}
	return d
}

// high is the highest place the cursor may have been at until t.
func (d *delivery) high(t Moment) model.Offset {
	i := sort.Search(len(d.moves), func(i int) bool { return d.moves[i].call > t })
	if i == 0 {
		return d.base
	}
	return max(d.base, d.highs[i-1])
}

func (d *delivery) cursorAt(o model.Offset, t Moment) bool {
	since, there := d.cursors[o]
	return o == d.base || (there && since <= t)
}

func (j *judge) judgeRun(s *sub, sp *subPart, d *delivery, ev *subEvent) {
	if ev.member != d.member {
		d.member, d.running = ev.member, false
	}
	if !d.known { // the first to come starts at the cursor
		d.base, d.known = ev.low, true
	}
	limit := max(d.high(ev.by), d.start)
	if d.running {
		limit = max(limit, d.end)
	}
	if !s.vague() {
		limit = j.wantedFrom(s, sp, limit, ev.low)
		switch j.checked(SkippedMessage); {
		case ev.low <= limit:
		case j.guessed(s, sp.log, limit, ev.low):
			j.undecided(SkippedMessage, "%s of %s: what lies in [%d, %d) was not told, nor was the final log",
				sp.log.name, s.name, limit, ev.low)
		default:
			j.failSkipped(s, sp, ev, limit)
		}
	}
	if d.running && !sp.nacked && !ev.repeat {
		j.checked(NonMonotonic)
		if ev.low < d.end && !j.wasCursor(s, sp, d, ev) {
			j.fail(NonMonotonic, []int32{ev.op}, "%s of %s: deliveries went back from %d to %d, where the cursor never was",
				sp.log.name, s.name, d.end, ev.low)
		}
	}
	d.end, d.running = ev.high, true
}

// failSkipped names a jump over [limit, ev.low): if an ack of just that was
// refused, what is wrong is the refusal, for the ack took effect.
func (j *judge) failSkipped(s *sub, sp *subPart, ev *subEvent, limit model.Offset) {
	for _, i := range sp.refused {
		op := &j.h.Ops[i]
		if op.Call > ev.by {
			break
		}
		if op.Ack.Next == ev.low {
			j.fail(RefusedAck, []int32{i, ev.op},
				"%s of %s: an ack up to %d was refused (%s), and deliveries went on from there",
				sp.log.name, s.name, ev.low, op.Reason)
			return
		}
	}
	j.fail(SkippedMessage, []int32{ev.op},
		"%s of %s: offset %d was delivered, what lies in [%d, %d) was neither delivered nor acked",
		sp.log.name, s.name, ev.low, limit, ev.low)
}

// judgeAcks: an ack of a generation older than a seek or than another member's
// ownership is refused, if it was called after that was known.
func (j *judge) judgeAcks(s *sub, sp *subPart) {
	var pulls []*subEvent
	for i := range sp.events {
		if sp.events[i].kind == eventPull {
			pulls = append(pulls, &sp.events[i])
		}
	}
	slices.SortStableFunc(pulls, func(a, b *subEvent) int { return cmp.Compare(a.generation, b.generation) })
	firsts := newFirsts(pulls)
	for i := range sp.events {
		ev := &sp.events[i]
		if ev.kind != eventAck || ev.by == Open || ev.generation == 0 {
			continue
		}
		j.checked(AckAfterSeek)
		if k := sp.seeksUpTo(ev.generation); k < len(sp.seeks) && sp.seeks[k].earliest.by < ev.call {
			j.fail(AckAfterSeek, []int32{sp.seeks[k].earliest.op, ev.op},
				"%s of %s: an ack of generation %d was accepted after a seek to generation %d or above",
				sp.log.name, s.name, ev.generation, sp.seeks[k].generation)
		}
		j.checked(StaleAck)
		k := sort.Search(len(pulls), func(k int) bool { return pulls[k].generation > ev.generation })
		if other := firsts.other(k, ev.member); other != nil && other.by < ev.call {
			j.fail(StaleAck, []int32{other.op, ev.op},
				"%s of %s: an ack of generation %d was accepted after another member was given generation %d",
				sp.log.name, s.name, ev.generation, other.generation)
		}
	}
}

// firsts holds, for each suffix of a list of pulls, the one answered first, and
// the first of any other member.
type firsts struct{ best, second []*subEvent }

func newFirsts(pulls []*subEvent) firsts {
	n := len(pulls)
	f := firsts{make([]*subEvent, n+1), make([]*subEvent, n+1)}
	for i := n - 1; i >= 0; i-- {
		p, best, second := pulls[i], f.best[i+1], f.second[i+1]
		switch {
		case best == nil || p.by < best.by:
			if best != nil && best.member != p.member {
				second = best
			}
			best = p
		case p.member != best.member && (second == nil || p.by < second.by):
			second = p
		}
		f.best[i], f.second[i] = best, second
	}
	return f
}

// other is the first answered pull from position k on by anyone but member.
func (f firsts) other(k int, member int32) *subEvent {
	if best := f.best[k]; best == nil || best.member != member {
		return best
	}
	return f.second[k]
}

// judgeUnseen: of a drained subscription every message at and above the last
// seek was delivered at least once since.
func (j *judge) judgeUnseen(s *sub, sp *subPart, e *epoch) {
	log := sp.log
	if !j.final.Drained || s.deleted || log.topic.deleted || s.vague() || sp.wild != Open {
		return
	}
	if log.final == nil {
		j.undecided(UnseenMessage, "%s: its final log was not told", log.name)
		return
	}
	if j.checked(UnseenMessage); e.lastTold && max(e.last, log.final.LogStart) < log.final.HighWatermark {
		j.fail(UnseenMessage, nil, "%s of %s: said to be drained, but the cursor is %d and the high watermark %d",
			log.name, s.name, e.last, log.final.HighWatermark)
	}
	from, known := e.base, e.known
	if !known {
		for i := range e.events {
			if ev := &e.events[i]; ev.kind == eventPull && (!known || ev.low < from) {
				from, known = ev.low, true
			}
		}
	}
	from = max(from, log.final.LogStart)
	if !known || from >= log.final.HighWatermark {
		return
	}
	j.findUnseen(s, sp, e, from)
}

// findUnseen merges the ranges that reached someone and looks for holes in
// [from, high watermark).
func (j *judge) findUnseen(s *sub, sp *subPart, e *epoch, from model.Offset) {
	type span struct{ low, high model.Offset }
	var spans []span
	for i := range e.events {
		switch ev := &e.events[i]; {
		case ev.kind == eventPull:
			spans = append(spans, span{ev.low, ev.high})
		case ev.kind == eventSkip || ev.blind:
			spans = append(spans, span{0, ev.high})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.low, b.low) })
	to := sp.log.final.HighWatermark
	for _, sn := range append(spans, span{to, to}) {
		if from = j.wantedFrom(s, sp, from, min(sn.low, to)); sn.low > from && from < to {
			j.fail(UnseenMessage, nil, "%s of %s: [%d, %d) was never delivered", sp.log.name, s.name, from, min(sn.low, to))
		}
		from = max(from, sn.high)
	}
}
