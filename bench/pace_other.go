//go:build !linux

package bench

import "time"

// Pacer waits for moments; see pace_linux.go for the exact one.
type Pacer struct{}

// NewPacer makes one; it must be closed.
func NewPacer() Pacer { return Pacer{} }

// Close ends it.
func (Pacer) Close() {}

// Until waits for a moment; one that is past returns at once.
func (Pacer) Until(at time.Time) { time.Sleep(time.Until(at)) }
