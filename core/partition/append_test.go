package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/group/grouptest"
	"github.com/tapedeck/tapedeck/core/model"
)

func TestAppendGivesContiguousOffsetsAtApply(t *testing.T) {
	h, m := lead(t, Limits{})
	a := h.Call(&call.Append{Batch: messages(3, batch.Options{})})
	b := h.Call(&call.Append{Batch: messages(2, batch.Options{})})
	waiting(t, h, a)
	if m.HighWatermark() != 0 {
		t.Fatalf("high watermark is %d before anything is applied", m.HighWatermark())
	}
	h.Settle()
	for i, ref := range []group.Ref{a, b} {
		want := []model.Offset{0, 3}[i]
		got := answered(t, h, ref).Resp.(*call.Appended)
		if got.Base != want || got.Duplicate || got.AppendTime != h.WallNow {
			t.Errorf("append %d got %+v, want base %d at %d", i, got, want, h.WallNow)
		}
	}
	if m.Next() != 5 || h.Store.Next() != 5 || m.LastAppendTime() != h.WallNow {
		t.Errorf("next is %d, stored %d, last append time %d", m.Next(), h.Store.Next(), m.LastAppendTime())
	}
}

// seen is the producer's state before each row of the sequence table: batches
// of 2 messages at sequences 0, 2, … 138 of producer 1, epoch 2, all applied.
func seen(t *testing.T) (*grouptest.Host, *Machine) {
	h, m := lead(t, Limits{})
	for i := range 70 {
		put(t, h, messages(2, from(1, 2, model.Sequence(2*i))))
	}
	return h, m
}

func TestSequenceRules(t *testing.T) {
	for _, row := range []struct {
		name     string
		n        int
		o        batch.Options
		start    bool
		base     model.Offset // when reason and code are zero
		dup      bool
		code     model.Code
		reason   model.Reason
		expected uint64
	}{
		{name: "next", n: 2, o: from(1, 2, 140), base: 140},
		{name: "newest again", n: 2, o: from(1, 2, 138), base: 138, dup: true},
		{name: "oldest remembered again", n: 2, o: from(1, 2, 12), base: 12, dup: true},
		{name: "again, with start", n: 2, o: from(1, 2, 138), start: true, base: 138, dup: true},
		{name: "older than the memory", n: 2, o: from(1, 2, 10), expected: 140,
			code: model.FailedPrecondition, reason: model.ReasonSequenceTooOld},
		{name: "same first, other count", n: 1, o: from(1, 2, 138), code: model.InvalidArgument},
		{name: "other first", n: 2, o: from(1, 2, 137), code: model.InvalidArgument},
		{name: "gap", n: 2, o: from(1, 2, 141), expected: 140,
			code: model.FailedPrecondition, reason: model.ReasonSequenceGap},
		{name: "gap, with start", n: 2, o: from(1, 2, 141), start: true, expected: 140,
			code: model.FailedPrecondition, reason: model.ReasonSequenceGap},
		{name: "older epoch", n: 2, o: from(1, 1, 0), expected: 2,
			code: model.FailedPrecondition, reason: model.ReasonFenced},
		{name: "newer epoch at 0", n: 2, o: from(1, 3, 0), base: 140},
		{name: "newer epoch in the middle", n: 2, o: from(1, 3, 8),
			code: model.FailedPrecondition, reason: model.ReasonSequenceUnknown},
		{name: "newer epoch in the middle, with start", n: 2, o: from(1, 3, 8), start: true, base: 140},
		{name: "unknown at 0", n: 2, o: from(9, 1, 0), base: 140},
		{name: "unknown in the middle", n: 2, o: from(9, 1, 5),
			code: model.FailedPrecondition, reason: model.ReasonSequenceUnknown},
		{name: "unknown in the middle, with start", n: 2, o: from(9, 1, 5), start: true, base: 140},
		{name: "no epoch", n: 2, o: from(1, 0, 140), code: model.InvalidArgument},
		{name: "past the last sequence", n: 2, o: from(9, 1, 1<<64-1), start: true, code: model.InvalidArgument},
		{name: "no producer", n: 2, o: batch.Options{Sequence: 77}, base: 140},
	} {
		t.Run(row.name, func(t *testing.T) {
			h, m := seen(t)
			before := m.Next()
			resp, err := h.Do(&call.Append{Batch: messages(row.n, row.o), Start: row.start})
			if row.code != model.OK {
				wantErr(t, err, row.code, row.reason)
				if err.Expected != row.expected || m.Next() != before {
					t.Fatalf("expected %d, next %d; want %d, %d", err.Expected, m.Next(), row.expected, before)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := resp.(*call.Appended)
			grown := m.Next() != before
			if got.Base != row.base || got.Duplicate != row.dup || grown == row.dup {
				t.Fatalf("got %+v, log grown %t; want base %d, duplicate %t", got, grown, row.base, row.dup)
			}
		})
	}
}

// The same table of rules holds against what is only under way.
func TestSequenceRulesAgainstPending(t *testing.T) {
	h, m := lead(t, Limits{})
	first := h.Call(&call.Append{Batch: messages(2, from(1, 1, 0))})
	second := h.Call(&call.Append{Batch: messages(2, from(1, 1, 2))})
	retry := h.Call(&call.Append{Batch: messages(2, from(1, 1, 0))})
	gap := h.Call(&call.Append{Batch: messages(2, from(1, 1, 5))})
	waiting(t, h, gap)
	h.Advance(earlyWait)
	wantErr(t, answered(t, h, gap).Err, model.FailedPrecondition, model.ReasonSequenceGap)
	if e := h.Answers[gap].Err.Expected; e != 4 {
		t.Errorf("gap expects %d, want 4", e)
	}
	overlap := h.Call(&call.Append{Batch: messages(3, from(1, 1, 1))})
	wantErr(t, answered(t, h, overlap).Err, model.InvalidArgument, "")
	waiting(t, h, retry)
	newer := h.Call(&call.Append{Batch: messages(1, from(1, 2, 0))})
	older := h.Call(&call.Append{Batch: messages(2, from(1, 1, 4))})
	wantErr(t, answered(t, h, older).Err, model.FailedPrecondition, model.ReasonFenced)
	h.Settle()
	for _, row := range []struct {
		ref  group.Ref
		base model.Offset
		dup  bool
	}{{first, 0, false}, {second, 2, false}, {retry, 0, true}, {newer, 4, false}} {
		got := answered(t, h, row.ref).Resp.(*call.Appended)
		if got.Base != row.base || got.Duplicate != row.dup {
			t.Errorf("request %d got %+v, want %+v", row.ref, got, row)
		}
	}
	if m.Next() != 5 || len(h.Log.Entries) != 4 { // settings, then three batches
		t.Errorf("next is %d after %d entries", m.Next(), len(h.Log.Entries))
	}
}

func TestDroppedProposalChangesNothing(t *testing.T) {
	h, m := lead(t, Limits{})
	put(t, h, messages(2, from(1, 1, 0)))
	hash := m.Hash()
	h.DropProposals = true
	for range 3 {
		_, err := h.Do(&call.Append{Batch: messages(2, from(1, 1, 2))})
		wantErr(t, err, model.ResourceExhausted, model.ReasonThrottled)
		if err.RetryAfter <= 0 {
			t.Fatal("no retry hint")
		}
	}
	_, err := h.Do(&call.Fence{Producer: 1, Epoch: 2})
	wantErr(t, err, model.ResourceExhausted, model.ReasonThrottled)
	h.DropProposals = false
	if m.Hash() != hash {
		t.Fatal("a dropped proposal changed the state")
	}
	if got := put(t, h, messages(2, from(1, 1, 2))); got.Base != 2 || got.Duplicate {
		t.Fatalf("after dropped attempts got %+v", got)
	}
}

// A gateway may send the very bytes again that the log holds already.
func TestStampedBytesAreNotStampedAgain(t *testing.T) {
	h, m := lead(t, Limits{})
	v := messages(1, batch.Options{})
	h.Call(&call.Append{Batch: v})
	h.StepDown()
	h.Lead() // the entry is still in its log
	h.Advance(time.Second)
	h.Call(&call.Append{Batch: v})
	if got := v.AppendTime(); got == h.WallNow {
		t.Fatalf("bytes in the log were stamped again with %d", got)
	}
	h.Lose()
	if m.Next() != 0 {
		t.Fatal("nothing was committed")
	}
}

func TestAppendTimeNeverDecreases(t *testing.T) {
	h, m := lead(t, Limits{})
	at := func() model.Wall { return put(t, h, messages(1, batch.Options{})).AppendTime }
	first := at()
	h.WallNow -= model.Wall(time.Hour)
	if got := at(); got != first {
		t.Errorf("clock an hour back: stamp %d, want the last one %d", got, first)
	}
	h.WallNow += model.Wall(2 * time.Hour)
	second := at()
	if second != h.WallNow {
		t.Errorf("stamp %d, want the wall clock's %d", second, h.WallNow)
	}
	h.Trusted = false
	h.WallNow += model.Wall(365 * 24 * time.Hour)
	h.Advance(3 * time.Second)
	if got := at(); got != second+model.Wall(3*time.Second) {
		t.Errorf("untrusted clock: stamp moved by %d, want 3 s", got-second)
	}
	if m.LastAppendTime() != second+model.Wall(3*time.Second) {
		t.Errorf("last append time is %d", m.LastAppendTime())
	}
}

func TestOlderMapVersionIsRefusedUnlessARetry(t *testing.T) {
	h, m := lead(t, Limits{})
	o := from(1, 1, 0)
	o.MapVersion = 1
	put(t, h, messages(1, o))
	putTopic(h, 2, model.TopicSettings{})
	if got := put(t, h, messages(1, o)); !got.Duplicate {
		t.Fatalf("retry of a stored batch got %+v", got)
	}
	o.Sequence = 1
	_, err := h.Do(&call.Append{Batch: messages(1, o)})
	wantErr(t, err, model.Unavailable, model.ReasonStaleMap)
	if !err.Retryable() || err.RetryAfter <= 0 || m.Next() != 1 {
		t.Fatalf("got %+v, next %d", err, m.Next())
	}
	for _, v := range []uint32{0, 2, 3} { // partition named; current; newer than this node knows
		o.MapVersion = v
		put(t, h, messages(1, o))
		o.Sequence++
	}
}

func TestBadBatchesAreRefused(t *testing.T) {
	h, _ := lead(t, Limits{MaxBatchBytes: 1000})
	good := messages(1, batch.Options{})
	for name, b := range map[string][]byte{
		"empty": nil, "short": good[:60], "two": append(good.Clone(), good...),
		"large": messages(100, batch.Options{}), "no batch": make([]byte, 200),
	} {
		_, err := h.Do(&call.Append{Batch: b})
		if err == nil || err.Code != model.InvalidArgument || err.Field != "batch" {
			t.Errorf("%s: got %+v", name, err)
		}
	}
}

func TestFullProducerTableRefusesNewOnes(t *testing.T) {
	h, m := lead(t, Limits{MaxProducers: 3})
	put(t, h, messages(1, from(1, 1, 0)))
	put(t, h, messages(1, from(2, 1, 0)))
	pending := h.Call(&call.Append{Batch: messages(1, from(3, 1, 0))})
	_, err := h.Do(&call.Append{Batch: messages(1, from(4, 1, 0))})
	wantErr(t, err, model.ResourceExhausted, model.ReasonThrottled)
	_, err = h.Do(&call.Fence{Producer: 5, Epoch: 1})
	wantErr(t, err, model.ResourceExhausted, model.ReasonThrottled)
	h.Settle()
	answered(t, h, pending)
	put(t, h, messages(1, from(2, 2, 0))) // a known one goes on, with a new epoch, too
	put(t, h, messages(1, batch.Options{}))
	if m.Producers() != 3 {
		t.Fatalf("%d producers are remembered", m.Producers())
	}
}

func TestProducersExpireByLogTime(t *testing.T) {
	h, m := lead(t, Limits{MaxProducers: 1})
	put(t, h, messages(1, from(1, 1, 0)))
	h.Advance(model.ProducerExpiry - time.Minute)
	h.Settle()
	if m.Producers() != 1 {
		t.Fatal("the producer expired early")
	}
	h.Trusted = false
	h.Advance(time.Hour)
	h.Settle()
	if m.Producers() != 1 {
		t.Fatal("a producer expired while the clock cannot be trusted")
	}
	h.Trusted = true
	h.Advance(time.Hour)
	// The expiry is proposed and not applied: the leader foresees it.
	_, err := h.Do(&call.Append{Batch: messages(1, from(1, 1, 1))})
	wantErr(t, err, model.FailedPrecondition, model.ReasonSequenceUnknown)
	h.Settle()
	if m.Producers() != 0 {
		t.Fatalf("%d producers are remembered after 7 days", m.Producers())
	}
	resp, err := h.Do(&call.Append{Batch: messages(1, from(1, 1, 1)), Start: true})
	if err != nil || resp.(*call.Appended).Base != 1 {
		t.Fatalf("with start got %+v, %v", resp, err)
	}
	if got := put(t, h, messages(1, from(1, 1, 1))); !got.Duplicate {
		t.Fatalf("retry of the new start got %+v", got)
	}
	put(t, h, messages(1, from(1, 1, 2)))
}

func TestFenceBarsOlderEpochs(t *testing.T) {
	h, m := lead(t, Limits{})
	put(t, h, messages(1, from(1, 1, 0)))
	pending := h.Call(&call.Fence{Producer: 1, Epoch: 3})
	early := h.Call(&call.Append{Batch: messages(1, from(1, 1, 1))})
	waiting(t, h, pending)
	wantErr(t, answered(t, h, early).Err, model.FailedPrecondition, model.ReasonFenced)
	h.Settle()
	if a := answered(t, h, pending); a.Err != nil {
		t.Fatal(a.Err)
	}
	_, err := h.Do(&call.Append{Batch: messages(1, from(1, 2, 0))})
	wantErr(t, err, model.FailedPrecondition, model.ReasonFenced)
	if err.Expected != 3 {
		t.Fatalf("current epoch is said to be %d", err.Expected)
	}
	put(t, h, messages(1, from(1, 3, 0)))
	hash, entries := m.Hash(), len(h.Log.Entries)
	if _, err := h.Do(&call.Fence{Producer: 1, Epoch: 3}); err != nil {
		t.Fatal(err)
	}
	if m.Hash() != hash || len(h.Log.Entries) != entries {
		t.Fatal("a fence that is no news wrote something")
	}
	put(t, h, messages(1, from(1, 3, 1)))
	_, err = h.Do(&call.Fence{Producer: 0, Epoch: 1})
	wantErr(t, err, model.InvalidArgument, "")
}

func TestEntriesThatDoNotFitGetNoOffset(t *testing.T) {
	stamp := func(v batch.View, base model.Offset, at model.Wall) batch.View {
		v.StampWith(base, at, batch.Stamped)
		return v
	}
	for name, v := range map[string]batch.View{
		"base ahead":   stamp(messages(1, batch.Options{}), 5, grouptest.Epoch),
		"base behind":  stamp(messages(1, batch.Options{}), 0, grouptest.Epoch),
		"time behind":  stamp(messages(1, batch.Options{}), 1, grouptest.Epoch-1),
		"sequence":     stamp(messages(1, from(1, 1, 0)), 1, grouptest.Epoch),
		"gap":          stamp(messages(1, from(1, 1, 2)), 1, grouptest.Epoch),
		"older epoch":  stamp(messages(1, from(1, 0, 1)), 1, grouptest.Epoch),
		"no beginning": stamp(messages(1, from(2, 1, 1)), 1, grouptest.Epoch),
	} {
		h, m := lead(t, Limits{})
		put(t, h, messages(1, from(1, 1, 0)))
		h.StepDown()
		hash := m.Hash()
		m.Apply(h, group.Entry{Data: v})
		if m.Hash() != hash || len(h.Store.Batches) != 1 {
			t.Errorf("%s: the entry changed the state", name)
		}
	}
}

// A leader whose view turns out wrong says so, and goes on from the applied state.
func TestLeaderRecoversFromARefusedEntry(t *testing.T) {
	h, m := lead(t, Limits{})
	a := h.Call(&call.Append{Batch: messages(1, from(1, 1, 0))})
	b := h.Call(&call.Append{Batch: messages(1, from(1, 1, 1))})
	m.st.next += 3 // what no log does: the state moved on its own
	m.st.active().Bytes++
	h.Commit(1)
	wantErr(t, answered(t, h, a).Err, model.Unavailable, model.ReasonUnknownOutcome)
	_, err := h.Do(&call.Append{Batch: messages(1, from(1, 1, 0))})
	if err == nil || !err.Retryable() {
		t.Fatalf("while the view is broken got %v", err)
	}
	h.Settle()
	wantErr(t, answered(t, h, b).Err, model.Unavailable, model.ReasonUnknownOutcome)
	if got := put(t, h, messages(1, from(1, 1, 0))); got.Base != 3 || got.Duplicate {
		t.Fatalf("after recovery got %+v", got)
	}
}

func TestLeaderStopAnswersEveryone(t *testing.T) {
	h, m := lead(t, Limits{})
	fill(t, h, 2, time.Second)
	h.Leader = "n2"
	pub := h.Call(&call.Append{Batch: messages(1, from(1, 1, 0))})
	retry := h.Call(&call.Append{Batch: messages(1, from(1, 1, 0))})
	fence := h.Call(&call.Fence{Producer: 2, Epoch: 1})
	poll := h.Call(&call.Read{Offset: 2, Wait: time.Second})
	end := h.Call(&call.Read{Offset: 2})
	where := h.Call(&call.Locate{})
	m.hot.clear()
	cold := h.Call(&call.Read{Offset: 0})
	h.StepDown()
	for _, ref := range []group.Ref{pub, retry, fence} {
		err := answered(t, h, ref).Err
		wantErr(t, err, model.Unavailable, model.ReasonUnknownOutcome)
		if err.RetryAfter <= 0 {
			t.Error("no retry hint")
		}
	}
	for _, ref := range []group.Ref{poll, end, where, cold} {
		err := answered(t, h, ref).Err
		wantErr(t, err, model.FailedPrecondition, model.ReasonNotLeader)
		if err.Leader != "n2" {
			t.Errorf("leader is said to be %q", err.Leader)
		}
	}
	if a, r := m.Waiting(); a != 0 || r != 0 {
		t.Errorf("%d publishes and %d readers still wait", a, r)
	}
	h.FinishReads()
	h.Commit(-1) // the next leader had the entries, too: they apply without anyone waiting
	if m.Next() != 3 {
		t.Errorf("next is %d", m.Next())
	}
	for _, req := range []call.Request{&call.Append{Batch: messages(1, batch.Options{})}, &call.Locate{},
		&call.Fence{Producer: 1, Epoch: 1}, &call.Read{Offset: 3}, &call.Read{Offset: 4}} {
		_, err := h.Do(req)
		wantErr(t, err, model.FailedPrecondition, model.ReasonNotLeader)
	}
}

// What the old leader had under way is either in the log of the next one,
// which then knows the retry, or it is gone.
func TestRetryAfterFailover(t *testing.T) {
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprintf("kept=%t", kept), func(t *testing.T) {
			h, m := lead(t, Limits{})
			put(t, h, messages(1, from(1, 1, 0)))
			h.Call(&call.Append{Batch: messages(2, from(1, 1, 1))})
			h.StepDown()
			if kept {
				h.Commit(-1)
			} else {
				h.Lose()
			}
			h.Lead()
			got := put(t, h, messages(2, from(1, 1, 1)))
			if got.Base != 1 || got.Duplicate != kept || m.Next() != 3 {
				t.Fatalf("got %+v, next %d", got, m.Next())
			}
		})
	}
}

func TestWaitingIsBounded(t *testing.T) {
	h, m := lead(t, Limits{Waiting: 3})
	first := h.Call(&call.Append{Batch: messages(1, from(1, 1, 0))})
	for range 2 {
		h.Call(&call.Append{Batch: messages(1, from(1, 1, 0))})
	}
	refused := h.Call(&call.Append{Batch: messages(1, batch.Options{})})
	wantErr(t, answered(t, h, refused).Err, model.ResourceExhausted, model.ReasonThrottled)
	h.Cancel(first)
	h.Call(&call.Append{Batch: messages(1, batch.Options{})})
	for range 3 { // readers have room of their own
		waiting(t, h, h.Call(&call.Read{Offset: 0, Wait: time.Hour}))
	}
	refused = h.Call(&call.Read{Offset: 0, Wait: time.Hour})
	wantErr(t, answered(t, h, refused).Err, model.ResourceExhausted, model.ReasonThrottled)
	h.Settle()
	if a, r := m.Waiting(); a != 0 || r != 0 || m.Next() != 2 {
		t.Fatalf("%d publishes and %d readers wait, next is %d", a, r, m.Next())
	}
}

func TestUnknownEntryPanics(t *testing.T) {
	h, m := lead(t, Limits{})
	defer func() {
		if recover() == nil {
			t.Fatal("an entry of an unknown version was passed over")
		}
	}()
	m.Apply(h, group.Entry{Index: 9, Term: 2, Data: []byte{99, 1}})
}
