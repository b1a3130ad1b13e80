// Package record frames journal records and holds the recovery rule that every
// journal engine shares: what may be cut at open, and what must be refused.
package record

import "github.com/tapedeck/tapedeck/disk"

// Record is one framed journal record.
type Record struct {
	Type               uint8
	Flags              uint8
	Group, Index, Term uint64
	Payload            []byte
	Sequence           uint64 // assigned by Append; continues over generations
	Generation         uint64
}

// Engine opens journal engines over a folder and lets the rule scan it first.
type Engine interface {
	// Scan reads a generation's raw bytes before it is opened: see the rule.
	// Open opens for appending at the end of the newest generation.
	Open() (disk.Journal, error)
}

// Refused says why a journal must not be used: its damage may hide durable records.
type Refused struct {
	File     string
	Position int64
	Cause    string
}

func (r *Refused) Error() string { return r.File + ": " + r.Cause }
