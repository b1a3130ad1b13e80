package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
)

// chain is what both ways of writing share: the generations' folders, and their
// removal in steps. Its first error stays.
type chain struct {
	e      *Engine
	folder string // of the current generation
	next   uint64 // number of the next frame
	// fileSize ends a file, flushSize of held frames a write, in bytes.
	fileSize, flushSize int
	doomed              []record.Found
	err                 error
}

func (c *chain) fail(err error) error {
	if c.err == nil && err != nil {
		c.err = full(err)
	}
	return c.err
}

// full wraps an error of a full disk, or of a used-up quota, as disk.ErrNoSpace.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", disk.ErrNoSpace, err)
	}
	return err
}

// fileName is the path of the current generation's file with the given first frame.
func (c *chain) fileName(first uint64) string {
	return filepath.Join(c.folder, fmt.Sprintf("%0*d", nameDigits, first))
}

// begin makes the folder of the next generation; began makes it durable.
func (c *chain) begin(next disk.Generation) error {
	folder := c.e.folder(next)
	if err := os.Mkdir(folder, folderMode); err != nil {
		return c.fail(err)
	}
	c.folder, c.next = folder, 1
	return nil
}

func (c *chain) began() error { return c.fail(c.e.syncAll(c.folder)) }

// removeStep removes one file of at most one file's size, or one empty folder.
func (c *chain) removeStep() error {
	if len(c.doomed) == 0 {
		return nil
	}
	g := &c.doomed[0]
	if n := len(g.Files); n > 0 {
		f := g.Files[n-1]
		g.Files = g.Files[:n-1]
		return os.Remove(filepath.Join(c.e.dir, f.Name))
	}
	path := c.e.folder(g.Generation)
	c.doomed = c.doomed[1:]
	return os.Remove(path)
}

func (c *chain) Drop(before uint64) error {
	if c.err != nil {
		return c.err
	}
	found, _, err := c.e.list()
	if err != nil {
		return c.fail(err)
	}
	c.doomed = nil
	for _, g := range found {
		if g.Number < before {
			c.doomed = append(c.doomed, g)
		}
	}
	return c.fail(c.removeStep())
}

// uvarint reads a length in its shortest form; others are not the library's.
func uvarint(data []byte) (n uint64, size int) {
	n, size = binary.Uvarint(data)
	if size > 0 && size != uvarintSize(n) {
		return 0, 0
	}
	return n, size
}

func uvarintSize(n uint64) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}
