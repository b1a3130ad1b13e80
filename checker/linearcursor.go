package checker

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/tapedeck/tapedeck/core/model"
)

// cursorPhase says where an epoch stands.
type cursorPhase uint8

const (
	cursorBefore cursorPhase = 0 // the seek that begins it has not happened
	cursorDuring cursorPhase = 1
	cursorAfter  cursorPhase = 2 // the next seek has happened
)

// registerState is a cursor between two seeks.
type registerState struct {
	phase cursorPhase
	known bool // cursor is; else the first operation shows it
	at    model.Offset
}

type registerKind uint8

const (
	registerOpen  registerKind = 0 // the seek that begins the epoch
	registerClose registerKind = 1 // the seek that ends it
	registerAck   registerKind = 2 // up to next; the cursor is result then
	registerTry   registerKind = 3 // an ack up to next of unknown outcome
	registerRead  registerKind = 4 // the cursor is result
)

type registerOp struct {
	kind         registerKind
	next, result model.Offset
}

func (op registerOp) place() uint64 {
	switch {
	case op.kind == registerTry:
		return 2 * uint64(op.next)
	case op.kind == registerAck && op.next == op.result:
		return 2 * uint64(op.result)
	}
	return 2*uint64(op.result) + 1
}

// registerModel is a cursor that begins in a given state; retention may move it
// anywhere up to start at any time.
func registerModel(begin registerState, start model.Offset) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return begin },
		Step: func(state, input, _ any) (bool, any) {
			return stepRegister(state.(registerState), input.(registerOp), start)
		},
		Equal: func(a, b any) bool { return a.(registerState) == b.(registerState) },
		Hash: func(state any) uint64 {
			s := state.(registerState)
			return mix(uint64(s.phase), uint64(s.at))
		},
		DescribeOperation: func(input, _ any) string {
			switch op := input.(registerOp); op.kind {
			case registerOpen:
				return fmt.Sprintf("seek to %d", op.result)
			case registerClose:
				return "next seek"
			case registerAck:
				return fmt.Sprintf("ack %d: cursor %d", op.next, op.result)
			case registerTry:
				return fmt.Sprintf("ack %d: ?", op.next)
			default:
				return fmt.Sprintf("cursor is %d", op.result)
			}
		},
		DescribeState: func(state any) string {
			s := state.(registerState)
			return fmt.Sprintf("%s, cursor %d", [...]string{"before", "during", "after"}[s.phase], s.at)
		},
	}
}

func stepRegister(s registerState, op registerOp, start model.Offset) (bool, any) {
	switch op.kind {
	case registerOpen:
		return s.phase == cursorBefore, registerState{cursorDuring, true, op.result}
	case registerClose:
		return s.phase == cursorDuring, registerState{cursorAfter, true, 0}
	case registerTry:
		if s.phase == cursorDuring && s.known {
			s.at = max(s.at, op.next)
		}
		return true, s
	}
	due := s.at
	if op.kind == registerAck {
		due = max(due, op.next)
	}
	fits := op.result == due || !s.known || (op.result > due && op.result <= start)
	return s.phase == cursorDuring && fits, registerState{cursorDuring, true, op.result}
}

// linearCursor checks one partition's cursor, epoch by epoch.
func (j *judge) linearCursor(search *search, s *sub, sp *subPart, last model.Offset, told bool) Linear {
	o := Linear{Name: fmt.Sprintf("%s %d", s.name, sp.number)}
	start := model.Offset(0)
	if sp.log.final != nil {
		start = sp.log.final.LogStart
	}
	epochs := sp.split()
	used := 0
	for k := range epochs {
		e := &epochs[k]
		e.base, e.known = sp.base(s, k)
		used += len(e.events)
		r := &register{begin: registerState{cursorDuring, e.known, e.base}, start: start}
		if k > 0 {
			r.begin = registerState{phase: cursorBefore, known: true}
			r.add(j, registerOp{registerOpen, 0, e.base}, sp.seeks[k-1].call, sp.seeks[k-1].by, sp.seeks[k-1].op)
		}
		if k < len(sp.seeks) {
			r.add(j, registerOp{kind: registerClose}, sp.seeks[k].call, sp.seeks[k].by, sp.seeks[k].op)
		}
		r.collect(j, e, sp.nacked)
		if k == len(epochs)-1 && told && sp.wild == Open {
			r.reads = append(r.reads, porcupine.Operation{Input: registerOp{registerRead, 0, last},
				Call: math.MaxInt64 - 1, Return: math.MaxInt64})
		}
		r.check(search, &o)
	}
	o.LeftOut = len(sp.events) - used
	return o
}

// register is one epoch's operations.
type register struct {
	begin registerState
	start model.Offset
	seeks []porcupine.Operation // at most two
	reads []porcupine.Operation // of a known value: acks answered, cursors read
	tries []porcupine.Operation // acks of unknown outcome
}

func (r *register) add(j *judge, in registerOp, call, by Moment, op int32) {
	out := porcupine.Operation{ClientId: int(j.h.Ops[op].Client), Input: in, Call: int64(call), Return: int64(by)}
	switch in.kind {
	case registerOpen, registerClose:
		r.seeks = append(r.seeks, out)
	case registerTry:
		r.tries = append(r.tries, out)
	default:
		r.reads = append(r.reads, out)
	}
}

func (r *register) collect(j *judge, e *epoch, loosely bool) {
	for i := range e.events {
		ev := &e.events[i]
		switch {
		case ev.kind == eventAck && ev.by == Open:
			r.add(j, registerOp{registerTry, ev.high, 0}, ev.call, Open, ev.op)
		case ev.kind == eventAck && ev.low > ev.high:
			// The broker may have carried it out twice: its effect came at some
			// moment in between, and its answer says where the cursor was later.
			r.add(j, registerOp{registerTry, ev.high, 0}, ev.call, ev.by, ev.op)
			r.add(j, registerOp{registerRead, 0, ev.low}, ev.call, ev.by, ev.op)
		case ev.kind == eventAck:
			r.add(j, registerOp{registerAck, ev.high, ev.low}, ev.call, ev.by, ev.op)
		case ev.kind == eventDescribe:
			r.add(j, registerOp{registerRead, 0, ev.low}, ev.call, ev.by, ev.op)
		case ev.kind == eventPull && ev.atCursor && !loosely:
			r.add(j, registerOp{registerRead, 0, ev.low}, ev.call, ev.by, ev.op)
		}
	}
}

func valueOf(op porcupine.Operation) model.Offset { return op.Input.(registerOp).result }

func nextOf(op porcupine.Operation) model.Offset { return op.Input.(registerOp).next }

// check cuts the operations into windows by the value they show. The cursor
// reaches a value once, by an ack up to it; of several, the one called first
// leaves the others the most freedom, so it goes into every window of that value.
func (r *register) check(s *search, o *Linear) {
	r.tighten()
	writers := r.writers()
	begin, below, tries := r.begin, r.begin, r.tries
	for at := 0; at == 0 || at < len(r.reads); {
		n := min(len(r.reads)-at, s.budget.Window)
		ops := slices.Clone(r.seeks)
		highest := model.Offset(0)
		if n > 0 {
			highest = valueOf(r.reads[at+n-1])
		}
		cutBelow, cutAbove := r.oneValue(at-1), r.oneValue(at+n-1)
		if cutBelow {
			begin = below
			ops = appendWriter(ops, writers, valueOf(r.reads[at]))
		}
		if cutAbove && !(cutBelow && highest == valueOf(r.reads[at])) {
			ops = appendWriter(ops, writers, highest)
		}
		for len(tries) > 0 && (nextOf(tries[0]) <= highest || at+n == len(r.reads)) {
			ops = append(ops, tries[0])
			tries = tries[1:]
		}
		s.check(o, registerModel(begin, r.start), append(ops, r.reads[at:at+n]...))
		for i := at; i < at+n && r.begin.phase == cursorDuring; i++ {
			if i == 0 || valueOf(r.reads[i-1]) != valueOf(r.reads[i]) {
				below = begin
			}
			begin = registerState{cursorDuring, true, valueOf(r.reads[i])}
		}
		at += max(n, 1)
	}
}

// oneValue says that reads i and i+1 exist and show the same value.
func (r *register) oneValue(i int) bool {
	return i >= 0 && i+1 < len(r.reads) && valueOf(r.reads[i]) == valueOf(r.reads[i+1])
}

func appendWriter(ops []porcupine.Operation, writers map[model.Offset]porcupine.Operation,
	value model.Offset) []porcupine.Operation {
	if w, there := writers[value]; there {
		ops = append(ops, w)
	}
	return ops
}

// tighten sorts the operations by value and cuts their intervals: what shows a
// value comes before the return of whatever shows a higher one and after the call
// of whatever shows a lower one, and so does the effect, if any, of an ack of
// unknown outcome. Of those acks only what somebody saw the effect of is kept, once: the
// others may as well not have happened.
func (r *register) tighten() {
	slices.SortStableFunc(r.reads, func(a, b porcupine.Operation) int { return cmp.Compare(valueOf(a), valueOf(b)) })
	higher := newShown(len(r.reads), func(i int) (uint64, Moment) {
		return uint64(valueOf(r.reads[i])), Moment(r.reads[i].Return)
	})
	latest := map[model.Offset]int64{} // by value: the latest call of what shows a lower one
	call := int64(math.MinInt64)
	for i := 0; i < len(r.reads); {
		value, first := valueOf(r.reads[i]), i
		latest[value] = call
		for ; i < len(r.reads) && valueOf(r.reads[i]) == value; i++ {
			r.reads[i].Return = min(r.reads[i].Return, int64(higher.above(uint64(value))))
			call = max(call, r.reads[i].Call)
		}
		for k := first; k < i; k++ {
			r.reads[k].Call = max(r.reads[k].Call, latest[value])
		}
	}
	slices.SortStableFunc(r.tries, func(a, b porcupine.Operation) int {
		return cmp.Or(cmp.Compare(nextOf(a), nextOf(b)), cmp.Compare(a.Call, b.Call))
	})
	r.tries = slices.CompactFunc(r.tries, func(a, b porcupine.Operation) bool { return nextOf(a) == nextOf(b) })
	r.tries = slices.DeleteFunc(r.tries, func(op porcupine.Operation) bool {
		_, seen := latest[nextOf(op)]
		return !seen
	})
	for i := range r.tries {
		r.tries[i].Call = max(r.tries[i].Call, latest[nextOf(r.tries[i])])
	}
}

// writers finds, for each value, the ack up to it that was called first.
func (r *register) writers() map[model.Offset]porcupine.Operation {
	writers := map[model.Offset]porcupine.Operation{}
	for _, list := range [...][]porcupine.Operation{r.reads, r.tries} {
		for _, op := range list {
			in := op.Input.(registerOp)
			if in.kind != registerTry && (in.kind != registerAck || in.next != in.result) {
				continue
			}
			if w, there := writers[in.next]; !there || op.Call < w.Call {
				writers[in.next] = op
			}
		}
	}
	return writers
}
