package journal

import (
	"errors"
	"fmt"
	"os"

	"github.com/tidwall/wal"

	"github.com/tapedeck/tapedeck/disk"
)

// journal appends to the newest generation by the library.
type journal struct {
	chain
	batch wal.Batch
	held  int   // bytes in batch
	sizes []int // of the frames in batch, with their wrapping
	size  int   // bytes of the current file, as the library counts them
	file  string
}

// Append holds a frame back for one write of many.
func (j *journal) Append(frame []byte) error {
	if j.err != nil {
		return j.err
	}
	if j.e.log == nil {
		return j.fail(errors.New("append before the first roll"))
	}
	// A batch begins at most one file: see flush.
	if j.held > 0 && j.held+len(frame) > j.flushSize {
		if err := j.flush(); err != nil {
			return err
		}
	}
	j.batch.Write(j.next, frame)
	j.next++
	j.held += len(frame)
	j.sizes = append(j.sizes, uvarintSize(uint64(len(frame)))+len(frame))
	if j.held >= j.flushSize {
		return j.flush()
	}
	return nil
}

// flush hands the batch to the library. A batch of more than one frame is
// smaller than a file, so the library begins at most one new file in it; that
// file's entry is made durable before anything else can be written, because a
// folder's entries may be lost in any order.
func (j *journal) flush() error {
	if j.err != nil || len(j.sizes) == 0 {
		return j.err
	}
	if err := guard("write", func() error { return j.e.log.WriteBatch(&j.batch) }); err != nil {
		return j.fail(err)
	}
	frame := j.next - uint64(len(j.sizes))
	began := uint64(0)
	for _, n := range j.sizes {
		frame++
		if j.size += n; j.size >= j.fileSize {
			j.size, began = 0, frame
		}
	}
	if j.held > j.flushSize {
		j.batch = wal.Batch{} // one huge frame must not stay in memory
	}
	j.held, j.sizes = 0, j.sizes[:0]
	if began == 0 {
		return nil
	}
	ended := j.file
	j.file = j.fileName(began)
	if _, err := os.Lstat(j.file); err != nil {
		return j.fail(fmt.Errorf("the library did not begin a file where it was expected to: %w", err))
	}
	// The library syncs a file that it ends.
	if err := j.e.synced(ended); err != nil {
		return j.fail(err)
	}
	return j.fail(j.e.syncFolder(j.folder))
}

// Sync also takes one step of removing old generations: removing much at once
// stalls the syncs of everybody on the same disk.
func (j *journal) Sync() error {
	if err := j.sync(); err != nil {
		return err
	}
	return j.fail(j.removeStep())
}

func (j *journal) sync() error {
	if j.e.log == nil {
		return j.fail(errors.New("sync before the first roll"))
	}
	if err := j.flush(); err != nil {
		return err
	}
	if err := guard("sync", j.e.log.Sync); err != nil {
		return j.fail(err)
	}
	return j.fail(j.e.synced(j.file))
}

func (j *journal) Roll(next disk.Generation) error {
	if j.err != nil {
		return j.err
	}
	if j.e.log != nil {
		if err := j.sync(); err != nil {
			return err
		}
		log := j.e.log
		j.e.log = nil
		if err := guard("close", log.Close); err != nil {
			return j.fail(err)
		}
	}
	if err := j.begin(next); err != nil {
		return err
	}
	err := guard("open", func() (err error) {
		j.e.log, err = wal.Open(j.folder, &wal.Options{
			NoSync: true, SegmentSize: j.fileSize, SegmentCacheSize: 1, NoCopy: true,
			DirPerms: folderMode, FilePerms: fileMode,
		})
		return err
	})
	if err != nil {
		return j.fail(err)
	}
	j.size, j.file = 0, j.fileName(1)
	return j.began()
}

// Close leaves what was not synced unwritten, or written in part.
func (j *journal) Close() error {
	j.err = errors.New("the journal is closed")
	log := j.e.log
	j.e.log = nil
	if log == nil {
		return nil
	}
	return guard("close", log.Close)
}
