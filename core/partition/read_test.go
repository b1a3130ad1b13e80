package partition

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/group/grouptest"
	"github.com/tapedeck/tapedeck/core/model"
)

// follower makes a replica that has applied all of the leader's log.
func follower(h *grouptest.Host) (*grouptest.Host, *Machine) {
	m := New(Config{Group: 1024, Topic: testTopic, Limits: h.Machine.(*Machine).cfg.Limits})
	f := grouptest.New(m)
	f.Log = h.Log
	f.CatchUp()
	return f, m
}

// tens appends n batches of 10 messages each.
func tens(t *testing.T, h *grouptest.Host, n int) int {
	t.Helper()
	v := messages(10, batch.Options{})
	for range n {
		put(t, h, v.Clone())
	}
	return len(v)
}

func TestReadServesWholeBatches(t *testing.T) {
	for _, place := range []string{"hot", "cold", "half", "follower"} {
		t.Run(place, func(t *testing.T) {
			h, m := lead(t, Limits{})
			size := tens(t, h, 6)
			switch place {
			case "cold":
				m.hot.clear()
			case "half":
				m.hot.dropBelow(30)
			case "follower":
				h, _ = follower(h)
			}
			for _, row := range []struct {
				offset   model.Offset
				maxBytes int
				from, to model.Offset
			}{
				{0, 0, 0, 60}, {0, 1, 0, 10}, {9, 1, 0, 10}, {10, 1, 10, 20}, {25, 2 * size, 20, 40},
				{25, 2*size - 1, 20, 30}, {59, 10 * size, 50, 60},
			} {
				resp, err := h.Do(&call.Read{Offset: row.offset, MaxBytes: uint32(row.maxBytes)})
				if err != nil {
					t.Fatalf("%+v: %v", row, err)
				}
				got := resp.(*call.ReadResult)
				list := offsets(t, got.Run)
				if list[0][0] != row.from || list[len(list)-1][1] != row.to || got.Next != row.to {
					t.Errorf("%+v: got %v, next %d", row, list, got.Next)
				}
				want := model.Offset(60)
				if place == "follower" {
					want = 0 // not a follower's to tell
				}
				if got.HighWatermark != want {
					t.Errorf("high watermark is said to be %d", got.HighWatermark)
				}
			}
		})
	}
}

func TestReadAtTheEdges(t *testing.T) {
	h, m := lead(t, Limits{})
	tens(t, h, 3)
	m.st.settings = settings{version: 1, retentionBytes: 1}
	m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdRoll, offset: 30})})
	tens(t, h, 1)
	m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdTrim, offset: 30})})
	if m.LogStart() != 30 || m.Next() != 40 {
		t.Fatalf("log is [%d, %d)", m.LogStart(), m.Next())
	}
	for _, row := range []struct {
		offset model.Offset
		reason model.Reason
	}{{29, model.ReasonOffsetTooOld}, {41, model.ReasonOffsetTooNew}} {
		_, err := h.Do(&call.Read{Offset: row.offset})
		wantErr(t, err, model.OutOfRange, row.reason)
		if err.Start != 30 || err.End != 40 {
			t.Errorf("bounds are said to be [%d, %d)", err.Start, err.End)
		}
	}
	resp, err := h.Do(&call.Read{Offset: 40})
	if err != nil {
		t.Fatal(err)
	}
	want := &call.ReadResult{Next: 40, HighWatermark: 40, LogStart: 30}
	if !reflect.DeepEqual(resp, want) {
		t.Errorf("at the end got %+v", resp)
	}
	f, _ := follower(h)
	f.Leader = "n1"
	_, err = f.Do(&call.Read{Offset: 40, Wait: time.Second})
	wantErr(t, err, model.FailedPrecondition, model.ReasonNotLeader)
}

// Where the log ends is told only after a ReadIndex: a batch that comes between
// is given, not denied.
func TestEndIsToldFreshly(t *testing.T) {
	h, _ := lead(t, Limits{})
	tens(t, h, 1)
	end := h.Call(&call.Read{Offset: 10})
	above := h.Call(&call.Read{Offset: 15})
	waiting(t, h, end)
	waiting(t, h, above)
	h.Call(&call.Append{Batch: messages(10, batch.Options{})})
	h.Commit(-1)
	h.FinishIndexes()
	for _, ref := range []group.Ref{end, above} {
		a := answered(t, h, ref)
		if a.Err != nil || a.Resp.(*call.ReadResult).Next != 20 {
			t.Errorf("got %+v, %v", a.Resp, a.Err)
		}
	}
}

func TestLongPoll(t *testing.T) {
	h, m := lead(t, Limits{})
	tens(t, h, 1)
	short := h.Call(&call.Read{Offset: 10, Wait: time.Second})
	long := h.Call(&call.Read{Offset: 10, Wait: 3 * time.Second})
	gone := h.Call(&call.Read{Offset: 10, Wait: 2 * time.Second})
	h.Advance(999 * time.Millisecond)
	waiting(t, h, short)
	h.Advance(time.Millisecond)
	h.Settle()
	got := answered(t, h, short).Resp.(*call.ReadResult)
	if got.Run != nil || got.Next != 10 || got.HighWatermark != 10 {
		t.Errorf("timed out with %+v", got)
	}
	h.Cancel(gone)
	waiting(t, h, long)
	put(t, h, messages(1, batch.Options{}))
	got = answered(t, h, long).Resp.(*call.ReadResult)
	if list := offsets(t, got.Run); list[0] != [2]model.Offset{10, 11} || got.HighWatermark != 11 {
		t.Errorf("woken with %v, high watermark %d", list, got.HighWatermark)
	}
	if len(m.readers)+len(m.parked)+len(m.indexing)+len(m.stored) != 0 {
		t.Errorf("readers are left behind: %d", len(m.readers))
	}
}

// A reader whose ReadIndex never ends is let go of.
func TestIndexPatience(t *testing.T) {
	h, m := lead(t, Limits{})
	ref := h.Call(&call.Locate{})
	h.Indexes = nil
	h.Advance(indexPatience)
	wantErr(t, answered(t, h, ref).Err, model.Unavailable, model.ReasonNoLeader)
	if len(m.readers) != 0 {
		t.Fatal("the reader is still held")
	}
}

func TestStoredReadIsJudgedAgain(t *testing.T) {
	h, m := lead(t, Limits{})
	tens(t, h, 2)
	m.st.settings = settings{version: 1, retentionBytes: 1}
	m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdRoll, offset: 20})})
	tens(t, h, 1)
	m.hot.clear()
	old := h.Call(&call.Read{Offset: 5})
	reads := h.Reads
	m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdTrim, offset: 20})})
	m.ReadDone(h, reads[0].ID, []byte(nil), nil)
	wantErr(t, answered(t, h, old).Err, model.OutOfRange, model.ReasonOffsetTooOld)

	h.Reads = nil
	broken := h.Call(&call.Read{Offset: 20})
	m.ReadDone(h, h.Reads[0].ID, nil, model.Errorf(model.DataLoss, "segment is damaged"))
	wantErr(t, answered(t, h, broken).Err, model.DataLoss, "")

	h.Reads = nil
	h.Store.Hidden = 1 // the segment writer lags behind
	_, err := h.Do(&call.Read{Offset: 20})
	wantErr(t, err, model.Unavailable, "")
	if !err.Retryable() || err.RetryAfter <= 0 {
		t.Errorf("got %+v", err)
	}
	m.ReadDone(h, 999, nil, nil) // unknown: passed over
}

func TestClip(t *testing.T) {
	var run []byte
	for i := range 4 {
		v := messages(10, batch.Options{})
		v.Stamp(model.Offset(10*i), 1)
		run = append(run, v...)
	}
	size := len(run) / 4
	for _, row := range []struct {
		offset, bound model.Offset
		maxBytes      int
		from, next    model.Offset
	}{
		{0, 40, 10 * size, 0, 40},
		{15, 40, 10 * size, 10, 40},
		{15, 30, 10 * size, 10, 30}, // never above the high watermark
		{15, 35, 10 * size, 10, 30},
		{15, 40, 2 * size, 10, 30},
		{15, 40, 1, 10, 20},
		{39, 40, 1, 30, 40},
	} {
		got, next := clip(run, row.offset, row.bound, row.maxBytes)
		list := offsets(t, got)
		if next != row.next || list[0][0] != row.from || list[len(list)-1][1] != row.next {
			t.Errorf("%+v: got %v, next %d", row, list, next)
		}
	}
	for _, bad := range [][]byte{nil, run[:size-1], run[size:], []byte("nonsense")} {
		if got, next := clip(bad, 5, 40, size); len(got) != 0 || next != 5 {
			t.Errorf("of a run without the offset got %d bytes, next %d", len(got), next)
		}
	}
}

func TestHotMemoryIsBounded(t *testing.T) {
	size := len(messages(1, batch.Options{}))
	h, m := lead(t, Limits{HotBytes: 10*size + 1})
	for i := range 500 {
		fill(t, h, 1, 0)
		want := min(i+1, 10) * size
		if m.HotBytes() != want {
			t.Fatalf("after %d batches hot memory is %d, want %d", i+1, m.HotBytes(), want)
		}
	}
	put(t, h, messages(1000, batch.Options{}))
	if len(m.hot.live()) != 1 {
		t.Fatalf("a batch above the limit keeps %d batches", len(m.hot.live()))
	}
	for o := model.Offset(0); o < m.Next(); o += 7 {
		resp, err := h.Do(&call.Read{Offset: o, MaxBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		if l := offsets(t, resp.(*call.ReadResult).Run); l[0][0] > o || l[0][1] <= o {
			t.Fatalf("read at %d gave %v", o, l)
		}
	}
}

func TestLocate(t *testing.T) {
	const step = 10 * time.Second
	at := func(i int) model.Wall { return grouptest.Epoch + model.Wall(i)*model.Wall(step) }
	h, m := lead(t, Limits{})
	// Batches of 10 at steps 1, 2, 3 | roll | 3, 4, 5 | roll | 7, 7; offsets 0, 10, 20 | 30, 40, 50 | 60, 70.
	add := func(i int) {
		h.Advance(time.Duration(at(i) - h.WallNow))
		tens(t, h, 1)
	}
	roll := func() {
		m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdRoll, offset: m.Next()})})
	}
	for _, i := range []int{1, 2, 3} {
		add(i)
	}
	roll()
	for _, i := range []int{3, 4, 5} {
		add(i)
	}
	roll()
	add(7)
	add(7)
	for _, hot := range []int{80, 60, 20, 0} { // bytes of memory do not change the answer, only who gives it
		m.hot.dropBelow(model.Offset(80 - hot))
		for _, row := range []struct {
			at   model.Wall
			want model.Offset
			time model.Wall
		}{
			{0, 0, at(1)}, {at(1) - 1, 0, at(1)}, {at(1), 0, at(1)}, {at(1) + 1, 10, at(2)}, {at(2), 10, at(2)},
			{at(2) + 1, 20, at(3)}, {at(3), 20, at(3)}, {at(3) + 1, 40, at(4)}, {at(4), 40, at(4)},
			{at(4) + 1, 50, at(5)}, {at(5), 50, at(5)}, {at(5) + 1, 60, at(7)}, {at(7), 60, at(7)},
			{at(7) + 1, 80, 0}, {at(99), 80, 0},
		} {
			got := located(t, h, &call.Locate{Where: model.Start{Kind: model.StartTime, Time: row.at}})
			if got.Offset != row.want || got.OldestTime != row.time {
				t.Errorf("hot %d, moment %d: got %d at %d, want %d at %d", hot, (row.at-grouptest.Epoch)/1e9,
					got.Offset, got.OldestTime, row.want, row.time)
			}
		}
		for o, want := range map[model.Offset]model.Wall{0: at(1), 15: at(2), 35: at(3), 59: at(5), 79: at(7), 80: 0, 99: 0} {
			got := located(t, h, &call.Locate{Where: model.Start{Kind: model.StartOffsets}, Offset: o})
			if got.OldestTime != want || got.Offset != min(o, 80) {
				t.Errorf("hot %d: message at %d: got %+v, want time %d", hot, o, got, want)
			}
		}
	}
	m.st.settings = settings{version: 1, retentionBytes: 1}
	m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdTrim, offset: 30})})
	for _, row := range []struct {
		l    call.Locate
		want model.Offset
	}{
		{call.Locate{}, 30},
		{call.Locate{Where: model.Start{Kind: model.StartLatest}}, 80},
		{call.Locate{Where: model.Start{Kind: model.StartTime, Time: at(1)}}, 30},
		{call.Locate{Where: model.Start{Kind: model.StartOffsets}, Offset: 3}, 30},
	} {
		got := located(t, h, &row.l)
		if got.Offset != row.want || got.LogStart != 30 || got.HighWatermark != 80 || got.Bytes != m.Bytes() {
			t.Errorf("%+v after the trim: got %+v", row.l, got)
		}
	}
	_, err := h.Do(&call.Locate{Where: model.Start{Kind: model.StartSnapshot}})
	wantErr(t, err, model.InvalidArgument, "")
}

// The log start passes the answer while the segments are being read.
func TestLocateAcrossATrim(t *testing.T) {
	for _, kind := range []model.StartKind{model.StartTime, model.StartOffsets} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			h, m := lead(t, Limits{})
			fill(t, h, 3, time.Minute)
			m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdRoll, offset: 3})})
			fill(t, h, 1, time.Minute)
			m.hot.clear()
			ref := h.Call(&call.Locate{Where: model.Start{Kind: kind, Time: h.WallNow - model.Wall(2*time.Minute)}, Offset: 1})
			h.FinishIndexes()
			if len(h.Reads) != 1 {
				t.Fatalf("the segments were asked %d times", len(h.Reads))
			}
			data := h.Store.Serve(h.Reads[0])
			m.st.settings = settings{version: 1, retentionBytes: 1}
			m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdTrim, offset: 3})})
			m.ReadDone(h, h.Reads[0].ID, data, nil)
			got := answered(t, h, ref).Resp.(*call.Located)
			if got.Offset != 3 || got.OldestTime != h.WallNow {
				t.Fatalf("got %+v", got)
			}
		})
	}
}

func TestLocateWaitsForTheSegmentWriter(t *testing.T) {
	h, m := lead(t, Limits{})
	fill(t, h, 3, time.Minute)
	m.hot.clear()
	h.Store.Hidden = 1
	_, err := h.Do(&call.Locate{Where: model.Start{Kind: model.StartTime, Time: h.WallNow}})
	if err == nil || !err.Retryable() {
		t.Fatalf("got %v", err)
	}
}

func located(t *testing.T, h *grouptest.Host, l *call.Locate) *call.Located {
	t.Helper()
	resp, err := h.Do(l)
	if err != nil {
		t.Fatalf("%+v: %v", l, err)
	}
	return resp.(*call.Located)
}
