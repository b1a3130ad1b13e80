package subscription

import (
	"testing"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func applied(commands ...command) *Machine {
	m := New(Config{Group: testGroup})
	for _, c := range commands {
		c.apply(&m.state)
	}
	return m
}

func passing(id model.SubscriptionID, p model.Partition, fence model.Generation, from, to model.Offset,
	limit uint32) *passCommand {
	return &passCommand{skip: skipCommand{id: id}, passes: []pass{{p, fence, interval{from, to}}}, limit: limit}
}

// Commands that no longer fit the state change nothing.
func TestCommandsOutOfDate(t *testing.T) {
	base := []command{
		&initCommand{id: 1, ref: ref, topic: 1, born: 9, cursors: []model.Offset{5, 5}},
		&membersCommand{id: 1, joins: []joining{{"a", false}, {"b", false}}, limit: 2},
		&assignCommand{id: 1, generation: 1, changes: []change{{0, "a"}, {1, "b"}}},
	}
	for name, c := range map[string]command{
		"init of one that is there":     &initCommand{id: 1, ref: "x/y", born: 1, cursors: []model.Offset{0}},
		"grow to less":                  &growCommand{id: 1, partitions: 1},
		"drop by an older catalog":      &dropCommand{id: 1, version: 8},
		"end of an earlier session":     &membersCommand{id: 1, leaves: []leaving{{"a", 7}}},
		"join beyond the limit":         &membersCommand{id: 1, joins: []joining{{"c", false}}, limit: 2},
		"assignment of an earlier time": &assignCommand{id: 1, generation: 1, changes: []change{{0, "b"}}},
		"assignment to nobody known":    &assignCommand{id: 1, generation: 2, changes: []change{{0, "c"}}},
		"assignment as it is":           &assignCommand{id: 1, generation: 2, changes: []change{{0, "a"}}},
		"assignment of no partition":    &assignCommand{id: 1, generation: 2, changes: []change{{2, "a"}}},
		"seek of no partition":          &seekCommand{id: 1, to: []place{{0, 1}, {2, 0}}},
		"skip downwards":                &skipCommand{id: 1, to: []place{{0, 4}, {2, 9}}},
		"pass under another fence":      passing(1, 0, 1, 5, 9, 9),
		"pass of what is acked":         passing(1, 0, 2, 2, 5, 9),
		"pass beyond the limit":         passing(1, 0, 2, 7, 9, 0),
		"pass of no partition":          passing(1, 2, 2, 7, 9, 9),
		"pass elsewhere":                passing(2, 0, 2, 7, 9, 9),
		"void ack":                      &ackCommand{acks: []ack{{1, "a", 2, []ackItem{{0, 9, nil, true}}}}},
		"ack by another":                &ackCommand{acks: []ack{{1, "b", 2, []ackItem{{0, 9, nil, false}}}}},
		"ack downwards":                 &ackCommand{acks: []ack{{1, "a", 2, []ackItem{{0, 4, nil, false}}}}},
		"ack of nothing ahead": &ackCommand{limit: 9,
			acks: []ack{{1, "a", 2, []ackItem{{0, 0, intervals{{3, 3}, {7, 6}}, false}}}}},
		"ack ahead beyond the limit": &ackCommand{acks: []ack{{1, "a", 2, []ackItem{{0, 0, intervals{{7, 8}}, false}}}}},
		"ack of a later generation":  &ackCommand{acks: []ack{{1, "a", 3, []ackItem{{0, 9, nil, false}}}}},
		"ack of no partition":        &ackCommand{acks: []ack{{1, "a", 2, []ackItem{{2, 9, nil, false}}}}},
		"something elsewhere":        &seekCommand{id: 2, to: []place{{0, 1}}},
		"members elsewhere":          &membersCommand{id: 2, joins: []joining{{"a", false}}, limit: 2},
		"ack elsewhere":              &ackCommand{acks: []ack{{2, "a", 2, []ackItem{{0, 9, nil, false}}}}},
	} {
		m := applied(base...)
		before := m.Hash()
		c.apply(&m.state)
		if m.Hash() != before {
			t.Errorf("%s changed the state", name)
		}
	}
}

func TestOneEntryOneOwner(t *testing.T) {
	m := applied(
		&initCommand{id: 1, cursors: []model.Offset{0}},
		&membersCommand{id: 1, joins: []joining{{"a", false}, {"b", false}}, limit: 2},
		&assignCommand{id: 1, generation: 1, changes: []change{{0, "a"}, {0, "b"}}})
	if p := m.state.subscriptions[1].partitions[0]; p.owner != "a" || p.fence != 2 {
		t.Fatalf("%+v", p)
	}
}

// A member cannot ack what an assignment under way is about to give it: nothing
// of it was delivered, so nothing was compared with the log's end.
func TestAckAheadOfAssignment(t *testing.T) {
	b := newBench(t, 2)
	b.grant("a", 0)
	b.grant("b", 0)
	b.Settle()
	g := b.view().Generation
	b.Call(&call.Leave{Target: target(), Member: "a"})
	b.Host.Commit(1) // the end of a's session; what a held is about to go to b
	ref := b.Call(&call.AckCursors{Target: target(), Member: "b", Generation: g + 2,
		UpTo: []call.PartitionOffset{{Partition: 0, Offset: 1 << 30}, {Partition: 1, Offset: 1 << 30}}})
	b.Settle()
	for _, r := range b.Answers[ref].Resp.(*call.Acked).Results {
		if r.Err == nil || b.view().Partitions[r.Partition].Cursor != 0 {
			t.Fatalf("%+v", r)
		}
	}
}

func TestDeliveryIsClipped(t *testing.T) {
	b := newBench(t, 1)
	d := b.pull("a", 0, 10)
	b.acked("a", d.Generation, 0, 4, 4)
	b.wantRanges(b.deliver("a", d.Generation, 0, span(0, 0, 8)).Ranges, span(0, 4, 8))
	if got := b.deliver("a", d.Generation, 0, span(0, 11, 20)); len(got.Ranges) != 0 {
		t.Fatalf("%+v leaves [10, 11) out", got.Ranges)
	}
	b.fails(&call.Deliver{Target: target(), Member: "a", Generation: d.Generation,
		Ranges: []call.Range{span(3, 0, 1)}}, model.InvalidArgument, "")
	b.fails(&call.Deliver{Target: target(), Member: "a", Generation: d.Generation,
		Skips: []call.Range{span(3, 0, 1)}}, model.InvalidArgument, "")
}

// A leader that was replaced without knowing would hand out again what the new
// one saw acked: it answers only once it knows that it still leads.
func TestDeliveryWaitsForReadIndex(t *testing.T) {
	b := newBench(t, 1)
	g := b.grant("a", 0)
	ref := b.Call(&call.Deliver{Target: target(), Member: "a", Generation: g.Generation,
		Ranges: []call.Range{span(0, 0, 5)}})
	if _, ok := b.Answers[ref]; ok {
		t.Fatal("answered from memory")
	}
	b.StepDown()
	if a := b.Answers[ref]; a.Err == nil || a.Err.Reason != model.ReasonNotLeader {
		t.Fatalf("%+v", a)
	}
}
