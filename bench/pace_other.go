//go:build !linux

package bench

import "time"

// pacer waits for moments; see pace_linux.go for the exact one.
type pacer struct{}

func newPacer() pacer { return pacer{} }

func (pacer) close() {}

// until waits for a moment; one that is past returns at once.
func (pacer) until(at time.Time) { time.Sleep(time.Until(at)) }
