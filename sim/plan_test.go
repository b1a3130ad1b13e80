package sim

import (
	"strings"
	"testing"
)

// planned is a seed's run with its strikes spelled out in place of its habits.
func planned(o Options, strikes []Strike) Options {
	return Plan(o, strikes)
}

// A run whose faults are spelled out is the run that drew them, and it reads back
// from the scenario that it is written as.
func TestStrikesSpellARunOut(t *testing.T) {
	for _, seed := range []uint64{5, 23, 700003, 700017, 700040} {
		o := FromSeed(seed)
		r := Run(o, nil)
		p := planned(o, r.Strikes)
		if again := Run(p.clone(), nil); again.Hash != r.Hash {
			t.Errorf("seed %d: %d strikes spelled out give trace %016x, drawn ones %016x", seed, len(r.Strikes), again.Hash,
				r.Hash)
		}
		text := strings.Join(append(p.Scenario(), "verdict", dashes), "\n") + "\n"
		s, err := RunScenario(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Hash != r.Hash {
			t.Errorf("seed %d as a scenario gives trace %016x, not %016x:\n%s", seed, s.Hash, r.Hash, text)
		}
	}
}
