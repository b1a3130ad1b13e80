//go:build !unix

package main

import "time"

var started = time.Now()

// cpuTime is wall time where a process' own is not known.
func cpuTime() time.Duration { return time.Since(started) }
