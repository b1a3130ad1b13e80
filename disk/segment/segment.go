package segment

import (
	"fmt"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
)

// Damaged says that stored bytes are not what was written.
type Damaged struct {
	File     string
	Position int64 // byte in File
	Cause    string
}

func (d *Damaged) Error() string {
	return fmt.Sprintf("segment file %s is damaged at byte %d: %s", d.File, d.Position, d.Cause)
}

// Store is one partition's segments.
type Store struct{}

// Open recovers a store.
func Open(fsys disk.FS, dir string, start, end model.Offset) (*Store, error) { panic("being written") }

func (s *Store) Append(b []byte) error                                  { panic("being written") }
func (s *Store) Roll(at model.Offset) error                             { panic("being written") }
func (s *Store) Drop(before model.Offset) error                         { panic("being written") }
func (s *Store) Reset(at model.Offset) error                            { panic("being written") }
func (s *Store) Remove() error                                          { panic("being written") }
func (s *Store) Sync() error                                            { panic("being written") }
func (s *Store) Close() error                                           { panic("being written") }
func (s *Store) Read(offset model.Offset, maxBytes int) ([]byte, error) { panic("being written") }
func (s *Store) ReadAt(t model.Wall) ([]byte, error)                    { panic("being written") }
func (s *Store) Start() model.Offset                                    { panic("being written") }
func (s *Store) End() model.Offset                                      { panic("being written") }
