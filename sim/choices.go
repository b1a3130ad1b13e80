package sim

import (
	"maps"
	"slices"

	"github.com/tapedeck/tapedeck/core/choice"
)

// Choices are the sites of core/choice that are live in a run, with one in how
// many of their hits takes the rare way.
type Choices map[choice.Site]uint64

// drawChoices makes each site live with one chance in four, in every other run:
// the runs without show that nothing needs them.
func drawChoices(s *stream) Choices {
	sites := choice.Sites()
	live := Choices{}
	if s.IntN(2) == 0 {
		return live
	}
	for _, site := range slices.Sorted(maps.Keys(sites)) {
		if s.IntN(4) == 0 {
			live[site] = sites[site]
		}
	}
	return live
}

// choose implements choice.Func for all nodes. After the faults the code is left
// to itself.
func (w *World) choose(site choice.Site) bool {
	one := w.choices[site]
	if one == 0 || w.chooser.Uint64N(one) != 0 {
		return false
	}
	w.probe("chose " + string(site))
	return true
}
