package sim

import (
	"strings"
	"testing"
)

// A run whose faults are spelled out is the run that drew them, and it reads back
// from the scenario that it is written as.
func TestStrikesSpellARunOut(t *testing.T) {
	for _, seed := range []uint64{5, 23, 700017} {
		o := FromSeed(seed)
		r := Run(o, nil)
		p := Plan(o, r.Strikes)
		if again := Run(p, nil); again.Hash != r.Hash {
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

// A finding that takes little is found in what is left, and again the same way.
func TestShrinkingKeepsTheFinding(t *testing.T) {
	o := FromSeed(700017)
	r := Run(o, nil)
	shrink := func() *Shrinker {
		p := Plan(o, r.Strikes)
		s := &Shrinker{Tries: 6, Finding: "passed", Best: p, Result: Run(p, nil)}
		s.Shrink()
		return s
	}
	s := shrink()
	before, after := SizeOf(Plan(o, r.Strikes), &r), SizeOf(s.Best, &s.Result)
	if s.Result.Finding() != "passed" || after.Faults >= before.Faults || after.Time >= before.Time {
		t.Errorf("a run that passes shrinks from %s to %s: %s", before, after, s.Result.Finding())
	}
	if again := shrink(); strings.Join(again.Best.Scenario(), "\n") != strings.Join(s.Best.Scenario(), "\n") {
		t.Errorf("shrunk once to %v, once to %v", s.Best.Scenario(), again.Best.Scenario())
	}
}

// Whatever a seed draws can be written as a scenario and read back: an option that
// has no knob would be lost.
func TestOptionsAreWrittenWhole(t *testing.T) {
	for seed := range uint64(300) {
		p := Plan(FromSeed(seed), nil)
		blocks, _, err := parseScenario(strings.Join(append(p.Scenario(), dashes), "\n") + "\n")
		if err != nil {
			t.Fatal(err)
		}
		s := &scenario{}
		for i := range blocks[0].commands {
			if err := s.execute(&blocks[0].commands[i]); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		want := p
		// How long habits' faults last is nothing to a run without habits.
		want.Harm = HarmOptions{Replay: p.Harm.Replay, Full: p.Harm.Full, FailFor: p.Harm.FailFor}
		if got := s.plan.String(); got != want.String() {
			t.Fatalf("seed %d is read back as\n%snot as\n%s", seed, got, want.String())
		}
	}
}
