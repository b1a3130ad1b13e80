package sim_test

import (
	"testing"

	"github.com/tapedeck/tapedeck/sim"
)

// BenchmarkSeeds runs seeds one after the other: what a sweep costs.
func BenchmarkSeeds(b *testing.B) {
	events := uint64(0)
	for i := range b.N {
		events += sim.Run(sim.FromSeed(uint64(i%50+1)), nil).Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}
