package sim

import (
	"time"

	"github.com/tapedeck/tapedeck/core/model"
)

// epoch is the wall-clock moment at which virtual time begins.
var epoch = model.Wall(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())

const million = 1_000_000

// clock is one node's pair of clocks: lines over virtual time, both with the
// same drift. The wall clock may jump; the monotonic one only starts anew at
// each boot. Invariant: mono never decreases within a boot.
type clock struct {
	ref   time.Duration // virtual moment the two values below belong to
	mono  model.Mono
	wall  model.Wall
	drift int64 // parts per million, fast if positive
}

func newClock(offset time.Duration, drift int64) clock {
	return clock{wall: epoch + model.Wall(offset), drift: drift}
}

func (c *clock) scale(d time.Duration) int64 {
	return int64(d) + int64(d)/million*c.drift + int64(d)%million*c.drift/million
}

// at reads both clocks at a virtual moment not before ref.
func (c *clock) at(now time.Duration) model.Instant {
	d := c.scale(now - c.ref)
	return model.Instant{Mono: c.mono + model.Mono(d), Wall: c.wall + model.Wall(d)}
}

// rebase moves the reference to now, so that drift or values can change from now on.
func (c *clock) rebase(now time.Duration) {
	i := c.at(now)
	c.ref, c.mono, c.wall = now, i.Mono, i.Wall
}

// boot starts the monotonic clock anew.
func (c *clock) boot(now time.Duration, from model.Mono) {
	c.rebase(now)
	c.mono = from
}

// jump moves the wall clock.
func (c *clock) jump(now, by time.Duration) {
	c.rebase(now)
	c.wall += model.Wall(by)
}

// setDrift changes the clocks' speed from now on.
func (c *clock) setDrift(now time.Duration, drift int64) {
	c.rebase(now)
	c.drift = drift
}

// until is the first virtual moment at which mono is at least m.
func (c *clock) until(m model.Mono) time.Duration {
	d := int64(m - c.mono)
	if d <= 0 {
		return c.ref
	}
	t := c.ref + time.Duration(d-d/million*c.drift)
	if c.drift > 0 { // a lower bound is wanted: the loop below only goes up
		t = c.ref + time.Duration(d/(million+c.drift)*million)
	}
	for lack := m - c.at(t).Mono; lack > 0; lack = m - c.at(t).Mono {
		t += max(time.Duration(lack)/2, 1)
	}
	return t
}
