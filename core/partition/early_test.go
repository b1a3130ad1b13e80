package partition

import (
	"testing"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// Batches that overtook each other get offsets in the order of their sequences,
// be the producer known or new.
func TestOvertakenBatchesAreAppendedInOrder(t *testing.T) {
	h, _ := lead(t, Limits{})
	var refs [5]group.Ref
	for _, i := range []int{3, 1, 4, 2, 0} {
		refs[i] = h.Call(appendOf(messages(2, from(1, 1, model.Sequence(2*i)))))
	}
	again := h.Call(appendOf(messages(2, from(1, 1, 6))))
	h.Settle()
	for i, ref := range refs {
		a := answered(t, h, ref)
		if a.Err != nil || a.Resp.(*call.Appended).Base != model.Offset(2*i) {
			t.Errorf("batch %d got %+v, error %v; want base %d", i, a.Resp, a.Err, 2*i)
		}
	}
	if a := answered(t, h, again).Resp.(*call.Appended); a.Base != 6 || !a.Duplicate {
		t.Errorf("the retry got %+v", a)
	}
}

// What is kept is bounded, forgotten when its caller gives up, refused when its
// time is up, and answered NOT_LEADER when leadership ends.
func TestEarlyBatchesAreBounded(t *testing.T) {
	h, m := lead(t, Limits{})
	var refs []group.Ref
	for i := range maxEarly {
		refs = append(refs, h.Call(appendOf(messages(1, from(1, 1, model.Sequence(i+1))))))
		waiting(t, h, refs[i])
	}
	over := h.Call(appendOf(messages(1, from(1, 1, maxEarly+1))))
	wantErr(t, answered(t, h, over).Err, model.FailedPrecondition, model.ReasonSequenceUnknown)
	other := h.Call(appendOf(messages(1, from(2, 1, 1))))
	waiting(t, h, other)
	h.Cancel(other)
	if n, _ := m.Waiting(); n != maxEarly {
		t.Errorf("%d wait, want %d", n, maxEarly)
	}
	h.Advance(earlyWait - 1)
	waiting(t, h, refs[0])
	h.Advance(1)
	for _, ref := range refs {
		wantErr(t, answered(t, h, ref).Err, model.FailedPrecondition, model.ReasonSequenceUnknown)
	}
	last := h.Call(appendOf(messages(1, from(1, 1, 1))))
	h.StepDown()
	wantErr(t, answered(t, h, last).Err, model.FailedPrecondition, model.ReasonNotLeader)
}

// A newer epoch's first batch also decides what waits of the older one.
func TestEarlyBatchOfAFencedEpoch(t *testing.T) {
	h, _ := lead(t, Limits{})
	put(t, h, messages(1, from(1, 1, 0)))
	early := h.Call(appendOf(messages(1, from(1, 1, 5))))
	waiting(t, h, early)
	put(t, h, messages(1, from(1, 2, 0)))
	wantErr(t, answered(t, h, early).Err, model.FailedPrecondition, model.ReasonFenced)
	put(t, h, messages(1, batch.Options{}))
}
