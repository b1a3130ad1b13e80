package core

import "github.com/tapedeck/tapedeck/core/model"

// Shard is the single-threaded machine; see doc.go for the contract.
type Shard struct{ cfg Config }

// New makes a shard that waits for its Start event.
func New(cfg Config) *Shard { return &Shard{cfg: cfg.WithDefaults()} }

// Step takes one event up at the given instant and returns what it asks of the
// host, in order. The returned slice is valid until the next step.
func (s *Shard) Step(now model.Instant, ev Event) []Effect { panic("being written") }
