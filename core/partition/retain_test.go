package partition

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/group/grouptest"
	"github.com/tapedeck/tapedeck/core/model"
)

const day = 24 * time.Hour

// pass lets time go by, committing as it goes.
func pass(h *grouptest.Host, d, step time.Duration) {
	for ; d > 0; d -= step {
		h.Advance(step)
		h.Settle()
	}
}

func TestRollBySize(t *testing.T) {
	size := len(messages(1, batch.Options{}))
	h, m := lead(t, Limits{SegmentBytes: int64(3 * size)})
	fill(t, h, 7, time.Second)
	var bases []model.Offset
	for _, g := range m.Segments() {
		bases = append(bases, g.Base)
		if g.Bytes > uint64(3*size) {
			t.Errorf("segment at %d has %d bytes", g.Base, g.Bytes)
		}
	}
	if len(bases) != 3 || bases[1] != 3 || bases[2] != 6 {
		t.Fatalf("segments begin at %v", bases)
	}
	if len(h.Store.Rolls) != 2 || h.Store.Rolls[0] != 3 {
		t.Fatalf("the store was rolled at %v", h.Store.Rolls)
	}
	if m.Bytes() != uint64(7*size) {
		t.Fatalf("%d bytes are counted", m.Bytes())
	}
	// A roll that was dropped is proposed with the next batch; pipelined batches roll, too.
	for range 6 {
		h.Machine.Handle(h, group.Ref(1<<40+h.Proposals), appendOf(messages(1, batch.Options{})))
	}
	h.Settle()
	for _, g := range m.Segments() {
		if g.Bytes > uint64(3*size) {
			t.Errorf("segment at %d has %d bytes", g.Base, g.Bytes)
		}
	}
}

func TestQuietTopicRollsAndExpires(t *testing.T) {
	h, m := lead(t, Limits{SegmentAge: time.Hour})
	putTopic(h, 1, model.TopicSettings{RetentionTime: 2 * day})
	m.CatalogChanged(h)
	fill(t, h, 3, time.Second)
	pass(h, 59*time.Minute, time.Minute)
	if len(m.Segments()) != 1 {
		t.Fatal("rolled early")
	}
	pass(h, 3*time.Minute, time.Minute)
	if s := m.Segments(); len(s) != 2 || s[1].Base != 3 || s[1].Bytes != 0 {
		t.Fatalf("after an hour the segments are %+v", s)
	}
	pass(h, 2*day-2*time.Hour, time.Minute)
	if m.LogStart() != 0 {
		t.Fatal("deleted early")
	}
	pass(h, time.Hour, time.Minute)
	if m.LogStart() != 3 || m.Bytes() != 0 || len(h.Store.Batches) != 0 || m.HotBytes() != 0 {
		t.Fatalf("after two days the log starts at %d with %d bytes", m.LogStart(), m.Bytes())
	}
	entries := len(h.Log.Entries)
	pass(h, 2*day, time.Hour)
	if len(h.Log.Entries) != entries || h.WakeAt != model.Never {
		t.Fatalf("an empty partition wrote %d entries more, and wakes at %d", len(h.Log.Entries)-entries, h.WakeAt)
	}
	fill(t, h, 1, time.Second)
	if m.Next() != 4 || m.LogStart() != 3 {
		t.Fatalf("log is [%d, %d)", m.LogStart(), m.Next())
	}
}

func TestRetentionByBytes(t *testing.T) {
	size := uint64(len(messages(1, batch.Options{})))
	h, m := lead(t, Limits{SegmentBytes: int64(2 * size)})
	putTopic(h, 1, model.TopicSettings{RetentionBytes: 5 * size})
	m.CatalogChanged(h)
	h.Settle()
	for range 40 {
		fill(t, h, 1, 10*time.Second)
		h.Settle()
		if m.LogStart() > 0 && m.Bytes() < 5*size {
			t.Fatalf("only %d bytes are left of %d", m.Bytes(), 5*size)
		}
	}
	pass(h, 2*time.Minute, time.Second)
	if m.Bytes() > 7*size {
		t.Fatalf("%d bytes are kept; the retention is %d and a segment %d", m.Bytes(), 5*size, 2*size)
	}
	if m.LogStart() == 0 || h.Store.Batches[0].Base() != m.LogStart() {
		t.Fatalf("log starts at %d, the store at %d", m.LogStart(), h.Store.Batches[0].Base())
	}
}

// A clock that cannot be trusted, or that no majority shares, deletes nothing.
func TestNothingIsDeletedByAnUntrustedClock(t *testing.T) {
	h, m := lead(t, Limits{SegmentAge: time.Minute})
	fill(t, h, 3, time.Second)
	pass(h, time.Hour, time.Minute)
	fill(t, h, 1, time.Second)
	h.Trusted = false
	h.WallNow += model.Wall(365 * day)
	pass(h, time.Hour, time.Minute)
	fill(t, h, 1, time.Second)
	if m.LogStart() != 0 || len(m.Segments()) != 2 {
		t.Fatalf("log starts at %d, segments %+v", m.LogStart(), m.Segments())
	}
	if m.LogTime() > h.WallNow-model.Wall(300*day) {
		t.Fatal("log time followed the clock")
	}
	h.WallNow -= model.Wall(365 * day)
	h.Trusted = true
	pass(h, 2*time.Minute, 10*time.Second)
	if m.LogStart() != 0 || len(m.Segments()) < 3 {
		t.Fatalf("log starts at %d, segments %+v", m.LogStart(), m.Segments())
	}
}

// Apply holds a trim to the replicated settings: a leader with an old map, or a
// bug, cannot delete more than they allow.
func TestTrimIsVerifiedAtApply(t *testing.T) {
	build := func() (*grouptest.Host, *Machine) {
		h, m := lead(t, Limits{SegmentAge: 100 * time.Hour})
		for range 3 {
			fill(t, h, 2, time.Hour)
			m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdRoll, offset: m.Next()})})
		}
		fill(t, h, 1, time.Hour)
		h.StepDown()
		return h, m
	}
	week := model.DefaultRetention
	for _, row := range []struct {
		name   string
		before model.Offset
		after  time.Duration // since the last batch
		want   model.Offset
	}{
		{"not due", 2, time.Hour, 0},
		{"one due", 2, week - 5*time.Hour, 2},
		{"two where one is due", 4, week - 5*time.Hour, 0},
		{"inside a segment", 3, week, 0},
		{"all closed ones", 6, week, 6},
		{"the active one", 7, week, 0},
		{"past the end", 70, 2 * week, 0},
	} {
		h, m := build()
		m.Apply(h, group.Entry{Data: encodeCommand(command{
			kind: cmdTrim, offset: row.before, at: h.WallNow + model.Wall(row.after)})})
		if m.LogStart() != row.want {
			t.Errorf("%s: log starts at %d, want %d", row.name, m.LogStart(), row.want)
		}
	}
	h, m := build()
	m.st.settings = settings{}
	m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdTrim, offset: 2, at: h.WallNow + model.Wall(9*week)})})
	if m.LogStart() != 0 {
		t.Error("trimmed without settings")
	}
}

func TestSettingsFollowTheMapForwardOnly(t *testing.T) {
	h, m := lead(t, Limits{})
	if m.st.settings.retentionTime != model.DefaultRetention {
		t.Fatalf("settings are %+v", m.st.settings)
	}
	putTopic(h, 1, model.TopicSettings{RetentionTime: 30 * day})
	h.DropProposals = true
	m.CatalogChanged(h)
	h.DropProposals = false
	h.Advance(2 * time.Second) // tried again
	h.Settle()
	newest := m.st.settings
	if newest.retentionTime != 30*day {
		t.Fatalf("settings are %+v", newest)
	}
	entries := len(h.Log.Entries)
	h.Cat.V++ // something else changed
	m.CatalogChanged(h)
	h.Settle()
	if len(h.Log.Entries) != entries {
		t.Error("the same settings were written again")
	}
	// A new leader whose map is older has no say.
	h.StepDown()
	putTopic(h, 1, model.TopicSettings{RetentionTime: day})
	h.Cat.V = newest.version - 1
	h.Lead()
	h.Settle()
	if m.st.settings != newest {
		t.Errorf("an old map set %+v", m.st.settings)
	}
	m.Apply(h, group.Entry{Data: encodeCommand(command{kind: cmdConfigure, settings: settings{version: 1}})})
	if m.st.settings != newest {
		t.Errorf("an old entry set %+v", m.st.settings)
	}
	h.Cat.V = newest.version + 1
	m.CatalogChanged(h)
	h.Settle()
	if m.st.settings.retentionTime != day {
		t.Errorf("a newer map left %+v", m.st.settings)
	}
}

// Stamps of a leader whose clock cannot be trusted may lie far back. When time is
// set right, that jump is no age: what was just written stays its full time.
func TestTimeSetRightDeletesNothing(t *testing.T) {
	for name, back := range map[string]time.Duration{"new partition": 30 * day, "after ten quiet days": 10 * day} {
		t.Run(name, func(t *testing.T) {
			m := New(Config{Topic: testTopic, Limits: Limits{SegmentAge: time.Hour}})
			h := grouptest.New(m)
			h.Cat.PutTopic(&model.Topic{ID: testTopic, Name: "orders", MapVersion: 1, Created: h.WallNow - model.Wall(30*day)})
			if back == 10*day {
				h.Lead()
				fill(t, h, 1, time.Second)
				h.StepDown()
				h.WallNow += model.Wall(back)
			}
			h.Trusted = false
			h.Lead() // by a node that never trusted its clock: it starts from the log, or the topic's creation
			put(t, h, messages(1, from(1, 1, 0)))
			lag := time.Duration(h.WallNow - m.LastAppendTime())
			if lag != back {
				t.Fatalf("the stamp lies %v back, want %v", lag, back)
			}
			h.Trusted = true
			pass(h, model.DefaultRetention-3*time.Hour, 10*time.Minute)
			if m.LogStart() >= m.Next() || m.Producers() != 1 {
				t.Fatalf("deleted early: log is [%d, %d), %d producers", m.LogStart(), m.Next(), m.Producers())
			}
			pass(h, 6*time.Hour, 10*time.Minute)
			if m.LogStart() != m.Next() || m.Producers() != 0 {
				t.Fatalf("not deleted: log is [%d, %d), %d producers", m.LogStart(), m.Next(), m.Producers())
			}
		})
	}
}
