package subscription

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

var samples = []command{
	&initCommand{id: 1, ref: ref, topic: 2, mode: 0, born: 9, cursors: []model.Offset{0, 7}},
	&growCommand{id: 1, partitions: 3},
	&dropCommand{id: 1, version: 12},
	&membersCommand{id: 1, leaves: []leaving{{"a", 1}}, joins: []joining{{"b", true}}, limit: 10,
		lapses: []lapse{{0, 2, 7, 0, 10}}},
	&assignCommand{id: 1, generation: 4, changes: []change{{0, "a"}, {1, "b"}}},
	&ackCommand{limit: 5, acks: []ack{{1, "a", 4,
		[]ackItem{{0, 3, nil, false}, {1, 9, nil, true}, {1, 2, intervals{{4, 6}, {9, 10}}, false}}}}},
	&seekCommand{id: 1, to: []place{{0, 5}}},
	&skipCommand{id: 1, to: []place{{1, 5}}},
	&lapseCommand{id: 1, lapses: []lapse{{0, 3, 7, 2, 10}, {1, 1, 9, 0, 10}}},
	&letterCommand{id: 1, source: 1, fence: 1, producer: 7, epoch: 2, move: move{9, 3, 12, 1, 0, []byte("batch"), false}},
	&passCommand{skip: skipCommand{id: 1, to: []place{{1, 5}}}, passes: []pass{{0, 3, interval{4, 9}}}, limit: 7},
	&keepCommand{id: 1, name: "a", created: 7, limit: 9},
	&forgetCommand{id: 1, name: "a"},
	&restoreCommand{id: 1, name: "a", only: []model.Partition{0, 3}},
	&letteredCommand{id: 1, source: 1, topic: 3, target: 1, sequence: 0, lost: true},
	&letterCommand{id: 1, source: 2, fence: 1, producer: 8, epoch: 2, move: move{9, 3, 12, 1, 0, []byte("batch"), false}},
}

func TestEntriesRoundTrip(t *testing.T) {
	for _, c := range samples {
		data := wire.Encode(&entry{header{3, 4}, c})
		e, err := decodeEntry(data)
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		if again := wire.Encode(e); !bytes.Equal(data, again) || e.origin != 3 || e.sequence != 4 {
			t.Fatalf("%T: %x became %x", c, data, again)
		}
	}
}

func TestForeignEntryStopsTheReplica(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("an entry nobody can read was passed over")
		}
	}()
	New(Config{Group: testGroup}).Apply(nil, group.Entry{Index: 1, Term: 1, Data: []byte{9, 9, 9}})
}

func FuzzDecodeEntry(f *testing.F) {
	for _, c := range samples {
		f.Add(wire.Encode(&entry{header{3, 4}, c}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEntry(data)
		if err != nil {
			return
		}
		again, err := decodeEntry(wire.Encode(e))
		if err != nil || !bytes.Equal(wire.Encode(again), wire.Encode(e)) {
			t.Fatalf("%x: %v", data, err)
		}
		// What decodes applies, and leaves a state that holds.
		m := New(Config{Group: testGroup})
		for _, c := range samples {
			c.apply(&m.state)
		}
		e.command.apply(&m.state)
		if err := New(Config{Group: testGroup}).Restore(m.Snapshot()); err != nil {
			t.Fatalf("%T: %v", e.command, err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	m := New(Config{Group: testGroup})
	for _, c := range samples {
		c.apply(&m.state)
		f.Add(m.Snapshot())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := New(Config{Group: testGroup})
		if m.Restore(data) == nil {
			before := m.Hash()
			if err := m.Restore(m.Snapshot()); err != nil || m.Hash() != before {
				t.Fatalf("%x: %v", data, err)
			}
		}
	})
}

func TestRestoreRefusesBrokenState(t *testing.T) {
	good := func() *subscription {
		return &subscription{id: 1, ref: ref, generation: 3, joins: 1, members: []member{{id: "a", joined: 1}},
			partitions: []partition{{cursor: 1, owner: "a", fence: 2}}}
	}
	for name, spoil := range map[string]func(s *subscription){
		"generation 0":     func(s *subscription) { s.generation = 0 },
		"fence 0":          func(s *subscription) { s.partitions[0].fence = 0 },
		"fence ahead":      func(s *subscription) { s.partitions[0].fence = 4 },
		"owner no member":  func(s *subscription) { s.partitions[0].owner = "b" },
		"member unordered": func(s *subscription) { s.members = append(s.members, member{id: "a", static: true, joined: 1}) },
		"out with nobody": func(s *subscription) {
			s.partitions[0].slots, s.partitions[0].frontier = []slot{{offset: 2}}, 3
		},
		"out with a session that ended": func(s *subscription) {
			s.deliveries = 1
			s.partitions[0].slots, s.partitions[0].frontier = []slot{{offset: 2, session: 2, delivery: 1}}, 3
		},
		"out and acked": func(s *subscription) {
			s.deliveries = 1
			s.partitions[0].slots, s.partitions[0].frontier = []slot{{offset: 0, session: 1, delivery: 1}}, 3
		},
		"out beyond the frontier": func(s *subscription) {
			s.deliveries = 1
			s.partitions[0].slots = []slot{{offset: 2, session: 1, delivery: 1}}
		},
		"key out before an earlier message of it": func(s *subscription) {
			s.deliveries, s.keyed = 1, true
			s.partitions[0].slots = []slot{{offset: 2, key: 7}, {offset: 3, key: 7, session: 1, delivery: 1}}
			s.partitions[0].frontier = 4
		},
		"member number": func(s *subscription) { s.members[0].joined = 2 },
		"id 0":          func(s *subscription) { s.id = 0 },
	} {
		s := good()
		m := New(Config{Group: testGroup})
		if err := m.Restore(wire.Encode(&snapshot{[]*subscription{s}})); err != nil {
			t.Fatalf("a good state: %v", err)
		}
		spoil(s)
		if m.Restore(wire.Encode(&snapshot{[]*subscription{s}})) == nil {
			t.Errorf("%s: restored", name)
		}
	}
}

func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.IntRange(1, 12).Draw(t, "members")
		owners := rapid.SliceOfN(rapid.IntRange(-1, members-1), 0, 40).Draw(t, "owners")
		give, quota := plan(owners, members, func(int) int { return 0 })
		held, sum, given := make([]int, members), 0, 0
		var free []int
		for p, o := range owners {
			if o >= 0 {
				held[o]++
			}
			if o < 0 || give[p] {
				free = append(free, p)
			}
			if give[p] {
				given++
			}
		}
		least := 0 // moves no balanced assignment can do without
		low, high := len(owners)/members, (len(owners)+members-1)/members
		over := 0
		for m, n := range held {
			sum += quota[m]
			if quota[m] != low && quota[m] != high {
				t.Fatalf("quota %v", quota)
			}
			least += max(0, n-high)
			if n >= high {
				over++
			}
		}
		if odd := len(owners) % members; odd > 0 {
			least += max(0, over-odd) // only so many may keep the odd one
		}
		if sum != len(owners) || given != least {
			t.Fatalf("owners %v: %d given, %d needed; quota %v", owners, given, least, quota)
		}
		to := share(owners, quota, free)
		if len(to) != len(free) {
			t.Fatalf("%d of %d free partitions found an owner", len(to), len(free))
		}
		counts := make([]int, members)
		for p, o := range owners {
			if m, ok := to[p]; ok {
				o = m
			}
			counts[o]++
		}
		for m := range counts {
			if counts[m] != quota[m] {
				t.Fatalf("counts %v, quota %v", counts, quota)
			}
		}
	})
}
