package checker

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/anishathalye/porcupine"

	"github.com/tapedeck/tapedeck/core/model"
)

// newShown indexes (value, return) pairs.
func newShown(n int, pair func(int) (uint64, Moment)) shown {
	type entry struct {
		value uint64
		by    Moment
	}
	list := make([]entry, n)
	for i := range list {
		list[i].value, list[i].by = pair(i)
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.value, b.value) })
	s := shown{make([]uint64, n), make([]Moment, n)}
	earliest := Open
	for i := n - 1; i >= 0; i-- {
		earliest = min(earliest, list[i].by)
		s.values[i], s.earliest[i] = list[i].value, earliest
	}
	return s
}

// above is the earliest return of what showed more than value.
func (s shown) above(value uint64) Moment {
	i := sort.Search(len(s.values), func(i int) bool { return s.values[i] > value })
	if i == len(s.values) {
		return Open
	}
	return s.earliest[i]
}

// logState is a log of constant size: its end, and a chained hash of what is below.
type logState struct {
	end  model.Offset
	hash uint64
}

type logKind uint8

const (
	logAppend logKind = 0 // count messages at offset; more than one: nobody knows which
	logRead   logKind = 1 // the log reaches offset; if it ends there, hash is its hash
	logEnd    logKind = 2 // the log ends at offset
)

// logOp is what one operation says of a log.
type logOp struct {
	kind    logKind
	hashed  bool
	offset  model.Offset
	count   uint64
	payload uint64
	hash    uint64
}

func (op logOp) place() uint64 {
	if op.kind == logAppend {
		return 2*uint64(op.offset) + 1 // after reads of what ends there
	}
	return 2 * uint64(op.offset)
}

// logModel is a log that begins in a given state.
func logModel(begin logState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return begin },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(logState), input.(logOp)
			switch op.kind {
			case logAppend:
				if op.offset != s.end {
					return false, s
				}
				return true, logState{s.end + model.Offset(op.count), mix(s.hash, op.payload)}
			case logRead:
				return s.end > op.offset || (s.end == op.offset && (!op.hashed || s.hash == op.hash)), s
			default:
				return s.end == op.offset, s
			}
		},
		Equal: func(a, b any) bool { return a.(logState) == b.(logState) },
		Hash:  func(state any) uint64 { return mix(state.(logState).hash, uint64(state.(logState).end)) },
		DescribeOperation: func(input, _ any) string {
			switch op := input.(logOp); op.kind {
			case logAppend:
				return fmt.Sprintf("append %d at %d", op.payload, op.offset)
			case logRead:
				return fmt.Sprintf("read up to %d", op.offset)
			default:
				return fmt.Sprintf("end is %d", op.offset)
			}
		},
		DescribeState: func(state any) string { return fmt.Sprintf("end %d", state.(logState).end) },
	}
}

// linearLog checks a partition as a log.
func (j *judge) linearLog(s *search, p *part) Linear {
	o := Linear{Name: p.name}
	higher := newShown(len(p.marks), func(i int) (uint64, Moment) { return uint64(p.marks[i].high), p.marks[i].by })
	appends, chain := j.logAppends(p, higher)
	reads := j.logReads(p, higher, chain)
	delayAppends(appends, reads)
	state, next := logState{}, 0
	for first := true; first || len(appends) > 0; first = false {
		n := min(len(appends), s.budget.Window)
		window, end := appends[:n], state
		appends = appends[n:]
		for i := range window {
			op := window[i].Input.(logOp)
			end = logState{op.offset + model.Offset(op.count), mix(end.hash, op.payload)}
		}
		// Reads of (begin, end] belong here, and those that say the log ends at begin.
		from := next
		for next < len(reads) && (reads[next].Input.(logOp).offset <= end.end || len(appends) == 0) {
			next++
		}
		for from > 0 && isEnd(reads[from-1], state.end) {
			from--
		}
		checkReads(s, &o, logModel(state), window, reads[from:next])
		state = end
	}
	return o
}

func isEnd(op porcupine.Operation, at model.Offset) bool {
	in := op.Input.(logOp)
	return in.kind == logEnd && in.offset == at
}

// checkReads checks a window's writes with its reads, some at a time.
func checkReads(s *search, o *Linear, m porcupine.Model, writes, reads []porcupine.Operation) {
	for first := true; first || len(reads) > 0; first = false {
		n := min(len(reads), s.budget.Window)
		s.check(o, m, slices.Concat(writes, reads[:n]))
		reads = reads[n:]
	}
}

// logAppends lists the appends by offset, holes filled, and the chained hash
// below each slot of p.list (and, last, at its end).
func (j *judge) logAppends(p *part, higher shown) ([]porcupine.Operation, []uint64) {
	appends := make([]porcupine.Operation, 0, len(p.list)+1)
	chain := make([]uint64, 0, len(p.list)+1)
	end, hash := model.Offset(0), uint64(0)
	ends := make([]model.Offset, len(p.marks))
	for i := range p.marks {
		ends[i] = p.marks[i].high
	}
	slices.Sort(ends)
	for i := range p.list {
		s := &p.list[i]
		// A hole is what retention took before anybody read it. It is cut where
		// the log was said to end meanwhile.
		for s.offset > end {
			to := s.offset
			if k := sort.Search(len(ends), func(k int) bool { return ends[k] > end }); k < len(ends) {
				to = min(to, ends[k])
			}
			appends = append(appends, porcupine.Operation{Call: math.MinInt64, Return: int64(higher.above(uint64(end))),
				Input: logOp{kind: logAppend, offset: end, count: uint64(to - end)}})
			hash, end = mix(hash, 0), to
		}
		chain = append(chain, hash)
		call, client := int64(math.MinInt64), ClientID(0)
		if m := j.lookup(p.topicID, s.payload); m != nil && m.firstCall != Open {
			call, client = int64(m.firstCall), j.h.Ops[m.op].Client
		}
		appends = append(appends, porcupine.Operation{ClientId: int(client), Call: call,
			Input:  logOp{kind: logAppend, offset: s.offset, count: 1, payload: s.payload},
			Return: int64(min(s.ackBy, higher.above(uint64(s.offset))))})
		hash = mix(hash, s.payload)
		end = s.offset + 1
	}
	return appends, append(chain, hash)
}

// delayAppends cuts the appends' beginnings: each comes after the call of the
// appends below it and of whatever says that the log ended at or below it.
func delayAppends(appends, reads []porcupine.Operation) {
	next, latest := 0, int64(math.MinInt64)
	for i := range appends {
		offset := appends[i].Input.(logOp).offset
		for ; next < len(reads) && reads[next].Input.(logOp).offset <= offset; next++ {
			if reads[next].Input.(logOp).kind == logEnd {
				latest = max(latest, reads[next].Call)
			}
		}
		latest = max(latest, appends[i].Call)
		appends[i].Call = latest
	}
	earliest := int64(math.MaxInt64)
	for i := len(appends) - 1; i >= 0; i-- {
		earliest = min(earliest, appends[i].Return)
		appends[i].Return = earliest
	}
}

// logReads lists what was read, by offset.
func (j *judge) logReads(p *part, higher shown, chain []uint64) []porcupine.Operation {
	var reads []porcupine.Operation
	add := func(m mark, by Moment, in logOp) {
		reads = append(reads, porcupine.Operation{ClientId: int(j.h.Ops[m.op].Client), Input: in,
			Call: int64(m.call), Return: int64(by)})
	}
	for _, m := range p.marks {
		op := &j.h.Ops[m.op]
		switch {
		case op.Publish != nil: // its appends say as much
		case m.fresh:
			add(m, min(m.by, higher.above(uint64(m.high))), logOp{kind: logEnd, offset: m.high})
		default:
			add(m, m.by, logOp{kind: logRead, offset: m.high})
		}
		if f := op.Fetch; f != nil && len(f.Messages) > 0 {
			at := sort.Search(len(p.list), func(i int) bool { return p.list[i].offset >= f.Messages[0].Offset })
			hash := chain[at]
			for i := range f.Messages {
				hash = mix(hash, f.Messages[i].Payload)
			}
			end := f.Messages[len(f.Messages)-1].Offset + 1
			add(m, m.by, logOp{kind: logRead, offset: end, hashed: true, hash: hash})
		}
	}
	slices.SortStableFunc(reads, func(a, b porcupine.Operation) int {
		x, y := a.Input.(logOp), b.Input.(logOp)
		return cmp.Or(cmp.Compare(x.offset, y.offset), cmp.Compare(x.kind, y.kind))
	})
	return reads
}
