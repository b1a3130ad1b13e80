package sim_test

import (
	"testing"
	"time"

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

// BenchmarkLight is simulated against wall time on a stated light load: three
// nodes, four partitions, five publishes a second, heartbeats stretched.
func BenchmarkLight(b *testing.B) {
	o := sim.Light(10 * time.Minute)
	virtual := time.Duration(0)
	for range b.N {
		r := sim.Run(o, nil)
		if r.Exit != sim.Passed {
			b.Fatalf("%s: %s", sim.ExitName(r.Exit), r.Why)
		}
		virtual += r.Virtual
	}
	b.ReportMetric(virtual.Seconds()/b.Elapsed().Seconds(), "virtual-s/s")
}
