package checker

import (
	"fmt"
	"strings"
)

// Result of one verdict.
type Result uint8

// Results. Undecided is not a pass.
const (
	OK        Result = 0
	Failed    Result = 1
	Undecided Result = 2
)

// String is "ok", "FAILED" or "undecided".
func (r Result) String() string { return [...]string{"ok", "FAILED", "undecided"}[r] }

// Verdict is what was found about one kind of error.
type Verdict struct {
	Name    string // of the error, such as LostWrite
	Result  Result
	Checked int    // how many cases were judged
	Count   int    // how many of them failed
	Detail  string // the first failure, or what is missing for a decision
	Ops     []int  // numbers of the operations in the first failure
}

// Names of verdicts, by what went wrong.
const (
	LostWrite       = "lost write"
	PhantomWrite    = "phantom write"
	Gap             = "gap"
	Inconsistent    = "inconsistent offsets"
	ReadOfFuture    = "read of the future"
	WatermarkBack   = "high watermark back"
	Reordered       = "reordered"
	AppendTimeBack  = "append time back"
	Duplicate       = "duplicate"
	FencedProducer  = "fenced producer"
	NonMonotonic    = "non-monotonic pull"
	SkippedMessage  = "skipped message"
	UnseenMessage   = "unseen message"
	Unwanted        = "unwanted message"
	TwoOwners       = "two owners"
	CursorBack      = "cursor back"
	AckAfterSeek    = "ack after seek"
	StaleAck        = "stale ack"
	RefusedAck      = "refused ack took effect"
	Redelivered     = "redelivered after ack"
	SeekWrong       = "seek wrong"
	TwoHolders      = "two holders"
	KeyOrder        = "key order"
	AttemptsWrong   = "attempts wrong"
	LostMessage     = "lost message" // passed, though nobody acked it
	DeadLetterTwice = "dead letter twice"
	DeadLetterEarly = "dead letter early"
	NotLinearizable = "not linearizable"
	BadHistory      = "bad history" // it cannot be judged at all
)

// claims are the promises of the report's line, in order, each with the
// verdicts that bear on it. A claim without a case to judge is left out, except
// the first three.
var claims = []struct {
	name, ok string
	verdicts []string
}{
	{"durable", "durable ok", []string{LostWrite, PhantomWrite, Gap, Inconsistent}},
	{"ordered", "ordered ok", []string{Reordered, AppendTimeBack}},
	{"no duplicates", "no duplicates", []string{Duplicate}},
	{"fences", "fences ok", []string{FencedProducer}},
	{"reads", "reads ok", []string{ReadOfFuture, WatermarkBack}},
	{"delivered", "delivered ok", []string{NonMonotonic, SkippedMessage, UnseenMessage, Unwanted, TwoOwners}},
	{"cursors", "cursors ok", []string{CursorBack, AckAfterSeek, StaleAck, RefusedAck, Redelivered}},
	{"seeks", "seeks ok", []string{SeekWrong}},
	{"leases", "leases ok", []string{TwoHolders, KeyOrder, AttemptsWrong, LostMessage}},
	{"dead letters", "dead letters ok", []string{DeadLetterTwice, DeadLetterEarly}},
	{"linearizable", "linearizable", []string{NotLinearizable}},
	{"history", "history ok", []string{BadHistory}},
}

// Report holds one verdict per name.
type Report struct {
	Verdicts []Verdict
}

// Get returns the verdict of a name.
func (r Report) Get(name string) (Verdict, bool) {
	for _, v := range r.Verdicts {
		if v.Name == name {
			return v, true
		}
	}
	return Verdict{}, false
}

// Result is the worst: Failed before Undecided before OK.
func (r Report) Result() Result {
	worst := OK
	for _, v := range r.Verdicts {
		worst = worse(worst, v.Result)
	}
	return worst
}

func worse(a, b Result) Result {
	if a == Failed || b == Failed {
		return Failed
	}
	return max(a, b)
}

// Failures are the verdicts that failed, in order.
func (r Report) Failures() []Verdict {
	var failed []Verdict
	for _, v := range r.Verdicts {
		if v.Result == Failed {
			failed = append(failed, v)
		}
	}
	return failed
}

// Line is one line for people, such as
// "durable ok · ordered ok · no duplicates" or
// "durable FAILED (lost write 3) · ordered ok · no duplicates".
func (r Report) Line() string {
	var parts []string
	for i, c := range claims {
		result, checked := OK, 0
		var failed []string
		for _, name := range c.verdicts {
			v, there := r.Get(name)
			if !there {
				continue
			}
			checked += v.Checked
			result = worse(result, v.Result)
			if v.Result == Failed {
				failed = append(failed, fmt.Sprintf("%s %d", name, v.Count))
			}
		}
		switch {
		case result == Failed:
			parts = append(parts, c.name+" FAILED ("+strings.Join(failed, ", ")+")")
		case result == Undecided:
			parts = append(parts, c.name+" undecided")
		case checked > 0 || i < 3:
			parts = append(parts, c.ok)
		}
	}
	return strings.Join(parts, " · ")
}

// String lists the line and each verdict that is not OK, with its detail.
func (r Report) String() string {
	var b strings.Builder
	b.WriteString(r.Line())
	for _, v := range r.Verdicts {
		if v.Result != OK {
			fmt.Fprintf(&b, "\n%s %s: %s %v", v.Name, v.Result, v.Detail, v.Ops)
		}
	}
	return b.String()
}
