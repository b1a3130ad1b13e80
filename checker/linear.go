package checker

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Budget bounds the search for linearizations by size and steps, never by time,
// so that the same history gives the same result everywhere.
type Budget struct {
	Window int // operations handed to porcupine at once, roughly
	Steps  int // model steps per window; a window that needs more is Undecided
	Total  int // model steps in all; what is left over then is Undecided
}

// DefaultBudget is enough for a million operations of moderate concurrency.
var DefaultBudget = Budget{Window: 200, Steps: 200_000, Total: 50_000_000}

// Linear is what was found about one object: a partition as a log (append, read,
// end) or a subscription's cursor in one partition as a register (ack, seek, read).
type Linear struct {
	Name    string // "topic/0" or "topic/name 0"
	Result  Result // Undecided: the budget ran out
	Ops     int    // operations checked
	LeftOut int    // operations after a seek of unknown outcome, which say nothing
	Windows int
	Detail  string

	model  porcupine.Model // of the window that failed
	failed []porcupine.Operation
}

// LinearReport is what was found about every object of a history.
type LinearReport struct {
	Objects []Linear
}

// CheckLinear searches linearizations of every partition's log and of every
// ordered subscription's cursors.
//
// Both objects only grow (a cursor: between two seeks), which lets their
// histories be cut into windows by value, each checked on its own: an operation
// that shows a value must come before whatever shows a higher one has returned,
// so its interval is cut short accordingly first, and no order between windows
// is lost. Appends of unknown outcome are placed where their message is found,
// and left out when it is nowhere: they may not have happened.
func CheckLinear(h *History, final Final, budget Budget) LinearReport {
	if err := h.Validate(); err != nil {
		return LinearReport{[]Linear{{Name: "history", Result: Undecided, Detail: err.Error()}}}
	}
	j := newJudge(h, &final)
	j.index()
	return j.linear(budget)
}

// linear checks an indexed history.
func (j *judge) linear(budget Budget) LinearReport {
	budget.Window = max(budget.Window, 1)
	search := &search{budget: budget, left: budget.Total}
	var report LinearReport
	for _, p := range j.parts {
		if !p.topic.deleted {
			report.Objects = append(report.Objects, search.narrow(func() Linear { return j.linearLog(search, p) }))
		}
	}
	for _, s := range j.subs {
		if s.deleted || s.singly() || s.create != nil && s.create.Filtered {
			continue
		}
		cursors := j.finalCursors(s)
		for _, sp := range s.parts {
			last, told := cursors[sp.number]
			report.Objects = append(report.Objects, search.narrow(func() Linear {
				return j.linearCursor(search, s, sp, last, told)
			}))
		}
	}
	return report
}

// Verdict sums the objects up: one that failed makes it Failed, one that is
// undecided keeps it from being OK.
func (r LinearReport) Verdict() Verdict {
	v := Verdict{Name: NotLinearizable}
	for i := range r.Objects {
		o := &r.Objects[i]
		v.Checked += o.Ops
		if o.Result == Failed {
			v.Count++
		}
		if o.Result != OK && worse(v.Result, o.Result) != v.Result {
			v.Result, v.Detail = o.Result, o.Name+": "+o.Detail
		}
	}
	return v
}

// Annotation is a note for a picture, such as a fault: [From, To].
type Annotation struct {
	Tag      string // its row, such as "n1" or "faults"
	From, To Moment
	Text     string
}

// Visualize writes porcupine's picture, an HTML page, of the first window that
// failed. It fails when none did.
func (r LinearReport) Visualize(w io.Writer, notes []Annotation) error {
	for i := range r.Objects {
		o := &r.Objects[i]
		if len(o.failed) == 0 {
			continue
		}
		model, _ := limited(o.model, DefaultBudget.Steps)
		_, info := porcupine.CheckOperationsVerbose(model, o.failed, 0)
		for _, n := range notes {
			info.AddAnnotations([]porcupine.Annotation{{Tag: n.Tag, Start: int64(n.From), End: int64(n.To),
				Description: n.Text}})
		}
		return porcupine.Visualize(o.model, info, w)
	}
	return fmt.Errorf("there is no failure to picture")
}

// search spends a budget.
type search struct {
	budget Budget
	left   int
}

// narrow checks an object, and again with smaller windows as long as one of them
// takes too many steps: any size gives the same result.
func (s *search) narrow(check func() Linear) Linear {
	window := s.budget.Window
	defer func() { s.budget.Window = window }()
	o := check()
	for o.Result == Undecided && s.left > 0 && s.budget.Window > 1 {
		s.budget.Window = max(1, s.budget.Window/8)
		o = check()
	}
	return o
}

// counter counts a model's steps.
type counter struct {
	steps int
	spent bool // the limit was reached: what the search says is void
}

// limited makes a model refuse every step once its limit is reached, which ends
// the search soon. Porcupine's own limit is a wall clock, so it is not used.
func limited(model porcupine.Model, limit int) (porcupine.Model, *counter) {
	c, step := &counter{}, model.Step
	model.Step = func(state, input, output any) (bool, any) {
		if c.steps >= limit {
			c.spent = true
			return false, state
		}
		c.steps++
		return step(state, input, output)
	}
	return model, c
}

// check checks one window, whose intervals may have been cut down to nothing.
func (s *search) check(o *Linear, m porcupine.Model, ops []porcupine.Operation) {
	for i := range ops {
		if op := &ops[i]; op.Return < op.Call {
			o.fail(m, ops, fmt.Sprintf("%s: it had to be done by %d, when something later was seen, and was called at %d",
				m.DescribeOperation(op.Input, nil), op.Return, op.Call))
			op.Return = op.Call // for the picture
		}
	}
	s.run(o, m, ops)
}

// run searches one window and notes the result on its object.
func (s *search) run(o *Linear, model porcupine.Model, ops []porcupine.Operation) {
	if o.Result == Failed || len(ops) == 0 {
		return
	}
	o.Windows++
	o.Ops += len(ops)
	counted, c := limited(model, min(s.budget.Steps, s.left))
	ok := porcupine.CheckOperations(counted, ranked(ops))
	s.left -= c.steps
	switch {
	case ok:
	case c.spent:
		o.Result = Undecided
		o.Detail = fmt.Sprintf("a window of %d operations needs more than %d steps, of which %d are left in all",
			len(ops), s.budget.Steps, s.left)
	default:
		o.fail(model, ops, fmt.Sprintf("no order of %d operations explains their answers", len(ops)))
	}
}

// input is what a model's step takes: its place is where it stands in an order by
// the values shown, writes of a value before reads of it.
type input interface{ place() uint64 }

// ranked replaces times by their ranks, equal ones ordered by place. Only the
// order of times matters to porcupine, and it tries what was called first first:
// with intervals cut to what values allow, that order hardly ever has to be undone.
func ranked(ops []porcupine.Operation) []porcupine.Operation {
	type moment struct {
		at    int64
		place uint64
		op    int
		ret   bool
	}
	moments := make([]moment, 0, 2*len(ops))
	for i := range ops {
		place := ops[i].Input.(input).place()
		moments = append(moments, moment{ops[i].Call, place, i, false}, moment{ops[i].Return, place, i, true})
	}
	slices.SortFunc(moments, func(a, b moment) int {
		switch {
		case a.at != b.at:
			return cmp.Compare(a.at, b.at)
		case a.ret != b.ret && b.ret: // intervals are closed: calls before returns
			return -1
		case a.ret != b.ret:
			return 1
		}
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.op, b.op))
	})
	out := slices.Clone(ops)
	for rank, m := range moments {
		if m.ret {
			out[m.op].Return = int64(rank)
		} else {
			out[m.op].Call = int64(rank)
		}
	}
	return out
}

func (o *Linear) fail(model porcupine.Model, ops []porcupine.Operation, detail string) {
	if o.Result != Failed {
		o.Result, o.Detail, o.model, o.failed = Failed, detail, model, ops
	}
}

// shown tells the earliest return of anything that showed more than a value.
type shown struct {
	values   []uint64 // ascending
	earliest []Moment // of values[i:]
}

// mix chains a hash: the state of a log is its length and this.
func mix(hash, payload uint64) uint64 {
	hash ^= payload + 0x9e3779b97f4a7c15 + hash<<6 + hash>>2
	hash *= 0xff51afd7ed558ccd
	return hash ^ hash>>33
}
