package checker

import "testing"

// terms tells a log's terms by index, from 1.
func terms(list ...uint64) func(uint64) (uint64, bool) {
	return func(i uint64) (uint64, bool) {
		if i == 0 || i > uint64(len(list)) {
			return 0, false
		}
		return list[i-1], true
	}
}

// breaches are facts in order, the last of which breaks an invariant.
var breaches = []struct {
	name, want string // want: the invariant that the last fact breaks; empty: none
	facts      func(v *Invariants) []*Violation
}{
	{"two leaders in a term", OneLeader, func(v *Invariants) []*Violation {
		return []*Violation{v.Leader(1, 2, 10), v.Leader(1, 2, 10), v.Leader(1, 3, 11),
			v.Leader(2, 2, 11), v.Leader(1, 2, 11)}
	}},
	{"entries differ", LogMatching, func(v *Invariants) []*Violation {
		return []*Violation{v.Entry(1, 10, 5, 2, 77), v.Entry(1, 11, 5, 2, 77), v.Entry(1, 11, 5, 3, 78),
			v.Entry(1, 12, 5, 2, 78)}
	}},
	{"two entries committed at an index", LogMatching, func(v *Invariants) []*Violation {
		return []*Violation{v.Committed(1, 10, 2, 5, 2, 77), v.Committed(1, 11, 2, 5, 2, 77),
			v.Committed(1, 12, 3, 5, 3, 78)}
	}},
	{"a leader without a committed entry", LeaderCompleteness, func(v *Invariants) []*Violation {
		return []*Violation{v.Committed(1, 10, 1, 1, 1, 7), v.Committed(1, 10, 1, 2, 1, 8),
			v.NewLeader(1, 2, 11, 2, terms(1, 1)), v.NewLeader(1, 3, 12, 1, terms(1))}
	}},
	{"a leader with another entry", LeaderCompleteness, func(v *Invariants) []*Violation {
		return []*Violation{v.Committed(1, 10, 1, 1, 1, 7), v.Committed(1, 10, 2, 2, 2, 8),
			v.NewLeader(1, 4, 12, 2, terms(1, 3))}
	}},
	{"a late winner of an old term", "", func(v *Invariants) []*Violation {
		return []*Violation{v.Committed(1, 10, 5, 1, 1, 7), v.NewLeader(1, 4, 12, 0, terms())}
	}},
	{"entries of the leader's own term are not asked for", "", func(v *Invariants) []*Violation {
		return []*Violation{v.Committed(1, 10, 4, 1, 4, 7), v.NewLeader(1, 4, 12, 0, terms())}
	}},
	{"trimmed entries are not compared", "", func(v *Invariants) []*Violation {
		a := v.Committed(1, 10, 1, 1, 1, 7)
		v.Trim(1, 1)
		return []*Violation{a, v.Committed(1, 11, 2, 1, 2, 8), v.NewLeader(1, 4, 12, 0, terms())}
	}},
	{"a vote request too early", VoteDurable, func(v *Invariants) []*Violation {
		return []*Violation{v.Durable(1, 10, 3, 10), v.VoteRequest(1, 10, 3), v.VoteRequest(1, 10, 2),
			v.VoteRequest(1, 10, 4)}
	}},
	{"a vote request while the durable vote is another's", VoteDurable, func(v *Invariants) []*Violation {
		return []*Violation{v.Durable(1, 10, 3, 11), v.VoteRequest(1, 10, 3)}
	}},
	{"a vote too early", VoteDurable, func(v *Invariants) []*Violation {
		return []*Violation{v.Durable(1, 10, 3, 11), v.VoteGrant(1, 10, 3, 11), v.VoteGrant(1, 10, 3, 12)}
	}},
	{"a vote by one that never stored any", VoteDurable, func(v *Invariants) []*Violation {
		return []*Violation{v.VoteGrant(1, 10, 1, 11)}
	}},
	{"a restart that lost the vote", VoteKept, func(v *Invariants) []*Violation {
		return []*Violation{v.Durable(1, 10, 3, 10), v.VoteRequest(1, 10, 3), v.Started(1, 10, 3, 0)}
	}},
	{"a damaged disk that lost the vote", VoteDurable, func(v *Invariants) []*Violation {
		a := []*Violation{v.Durable(1, 10, 3, 10), v.VoteRequest(1, 10, 3)}
		v.Damaged(1, 10)
		a = append(a, v.Started(1, 10, 2, 0))
		return append(a, v.VoteRequest(1, 10, 3))
	}},
	{"a durable term falls", VoteDurable, func(v *Invariants) []*Violation {
		return []*Violation{v.Durable(1, 10, 3, 10), v.Durable(1, 10, 3, 10), v.Durable(1, 10, 2, 0)}
	}},
	{"a durable vote changes", VoteDurable, func(v *Invariants) []*Violation {
		return []*Violation{v.Durable(1, 10, 3, 0), v.Durable(1, 10, 3, 11), v.Durable(1, 10, 3, 12)}
	}},
	{"states differ", AppliedEqual, func(v *Invariants) []*Violation {
		return []*Violation{v.Applied(1, 10, 5, 7), v.Applied(1, 11, 5, 7), v.Applied(1, 11, 6, 8), v.Applied(1, 12, 6, 9)}
	}},
	{"a high watermark falls", WatermarkMonotonic, func(v *Invariants) []*Violation {
		return []*Violation{v.HighWatermark(1, 10, 5), v.HighWatermark(1, 11, 4), v.HighWatermark(1, 10, 4)}
	}},
	{"a restart may show less", "", func(v *Invariants) []*Violation {
		return []*Violation{v.HighWatermark(1, 10, 5), v.Started(1, 10, 3, 0), v.HighWatermark(1, 10, 4)}
	}},
	{"a shown high watermark falls", WatermarkMonotonic, func(v *Invariants) []*Violation {
		return []*Violation{v.HighWatermarkShown(1, 10, 5), v.HighWatermarkShown(1, 11, 4)}
	}},
	{"two owners", OneOwner, func(v *Invariants) []*Violation {
		return []*Violation{v.Owner(1, 0, 3, "a"), v.Owner(1, 0, 3, ""), v.Owner(1, 0, 4, "b"), v.Owner(1, 1, 3, "b"),
			v.Owner(1, 0, 3, "b")}
	}},
	{"a cursor falls", CursorMonotonic, func(v *Invariants) []*Violation {
		return []*Violation{v.Cursor(1, 0, 7, 5, 1), v.Cursor(1, 0, 6, 4, 1), v.Cursor(1, 0, 8, 2, 2),
			v.Cursor(1, 0, 9, 1, 2)}
	}},
	{"a fence falls", CursorMonotonic, func(v *Invariants) []*Violation {
		return []*Violation{v.Cursor(1, 0, 7, 5, 2), v.Cursor(1, 0, 8, 5, 1)}
	}},
}

func TestInvariants(t *testing.T) {
	for _, c := range breaches {
		t.Run(c.name, func(t *testing.T) {
			got := c.facts(NewInvariants())
			for _, v := range got[:len(got)-1] {
				if v != nil {
					t.Errorf("too early: %v", v)
				}
			}
			switch last := got[len(got)-1]; {
			case c.want == "" && last != nil:
				t.Errorf("broken: %v", last)
			case c.want != "" && (last == nil || last.Invariant != c.want || last.Detail == ""):
				t.Errorf("got %v, want %s", last, c.want)
			}
		})
	}
}
