//go:build !unix

package main

import (
	"runtime"
	"time"
)

var started = time.Now()

// cpuTime is wall time where a process' own is not known.
func cpuTime() time.Duration { return time.Since(started) }

// peakMemory is what the runtime took from the system, in bytes.
func peakMemory() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys
}
