package journal

import (
	"encoding/binary"
	"errors"
	"os"

	"github.com/tapedeck/tapedeck/disk"
)

const (
	directFileBytes = 16 << 20 // a file ends with the frame that reaches this
	// keptBytes of the buffer stay between syncs.
	keptBytes = 4 << 20
)

// direct appends to the newest generation by itself.
//
// Invariant: file holds the frames before the first one in buf; size is its
// length with buf.
type direct struct {
	chain
	file *os.File
	buf  []byte // frames in their wrapping, not written yet
	size int
}

// Append holds a frame back for one write of many.
func (j *direct) Append(frame []byte) error {
	if j.err != nil {
		return j.err
	}
	if j.file == nil {
		return j.fail(errors.New("append before the first roll"))
	}
	if j.size >= j.fileSize {
		if err := j.nextFile(); err != nil {
			return err
		}
	}
	before := len(j.buf)
	j.buf = binary.AppendUvarint(j.buf, uint64(len(frame)))
	j.buf = append(j.buf, frame...)
	j.size += len(j.buf) - before
	j.next++
	if len(j.buf) >= j.flushSize {
		return j.flush()
	}
	return nil
}

func (j *direct) flush() error {
	if j.err != nil || len(j.buf) == 0 {
		return j.err
	}
	_, err := j.file.Write(j.buf)
	if j.buf = j.buf[:0]; cap(j.buf) > keptBytes {
		j.buf = nil
	}
	return j.fail(err)
}

// nextFile ends the file. It is durable before the next one exists: of two files
// only the newer may be damaged by a crash.
func (j *direct) nextFile() error {
	if err := j.sync(); err != nil {
		return err
	}
	if err := j.closeFile(); err != nil {
		return j.fail(err)
	}
	return j.create()
}

// closeFile forgets the file, closed or not: it is closed once.
func (j *direct) closeFile() error {
	f := j.file
	j.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// create begins a file whose name the generation's folder then keeps.
func (j *direct) create() error {
	f, err := os.OpenFile(j.fileName(j.next), os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return j.fail(err)
	}
	j.file, j.size = f, 0
	return j.fail(j.e.syncFolder(j.folder))
}

// Sync also takes one step of removing old generations.
func (j *direct) Sync() error {
	if err := j.sync(); err != nil {
		return err
	}
	return j.fail(j.removeStep())
}

func (j *direct) sync() error {
	if j.file == nil {
		return j.fail(errors.New("sync before the first roll"))
	}
	if err := j.flush(); err != nil {
		return err
	}
	if err := syncData(j.file); err != nil {
		return j.fail(err)
	}
	return j.fail(j.e.synced(j.file.Name()))
}

// Roll implements disk.Journal.
func (j *direct) Roll(next disk.Generation) error {
	if j.err != nil {
		return j.err
	}
	if j.file != nil {
		if err := errors.Join(j.sync(), j.closeFile()); err != nil {
			return j.fail(err)
		}
	}
	if err := j.begin(next); err != nil {
		return err
	}
	if err := j.create(); err != nil {
		return err
	}
	return j.began()
}

// Close leaves what was not synced unwritten, or written in part.
func (j *direct) Close() error {
	j.err = errors.New("the journal is closed")
	j.buf = nil
	return j.closeFile()
}
