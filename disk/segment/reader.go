package segment

import (
	"fmt"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
)

// Damaged says that stored bytes are not what was written, or are not there.
type Damaged struct {
	File     string // path in the data folder
	Position int64  // byte in File
	Cause    string
	// Offset is the first of the batch that has to be at Position. Only where a
	// batch is expected and is not intact; Repair takes such a one.
	Offset model.Offset
}

func (d *Damaged) Error() string {
	return fmt.Sprintf("segment file %s is damaged at byte %d: %s", d.File, d.Position, d.Cause)
}

// reader reads batches of one file through a window, and checks each.
type reader struct {
	file  disk.File
	name  string
	limit int64 // batches end here
	ahead int   // bytes to read at a time, at least
	buf   []byte
	at    int64 // file position of buf[0]
}

// window makes buf hold [position, position+n) and returns that part.
func (r *reader) window(position int64, n int) ([]byte, error) {
	if position < r.at || position+int64(n) > r.at+int64(len(r.buf)) {
		size := min(int64(max(n, r.ahead)), r.limit-position)
		if int64(cap(r.buf)) >= size {
			r.buf = r.buf[:size]
		} else {
			r.buf = make([]byte, size)
		}
		r.at = position
		if got, err := r.file.ReadAt(r.buf, position); err != nil && got < len(r.buf) {
			return nil, fmt.Errorf("read segment file %s at byte %d: %w", r.name, position, err)
		}
	}
	from := position - r.at
	return r.buf[from : from+int64(n)], nil
}

// next reads and checks the batch at position, whose base must be the given
// one. What it returns is valid until the window moves.
func (r *reader) next(position int64, base model.Offset) (batch.View, error) {
	damaged := func(err error) (batch.View, error) {
		return nil, &Damaged{r.name, position, err.Error(), base}
	}
	if r.limit-position < batch.HeaderSize {
		return damaged(fmt.Errorf("a batch is expected, and %d bytes are there", r.limit-position))
	}
	head, err := r.window(position, batch.HeaderSize)
	if err != nil {
		return nil, err
	}
	size, err := batch.SizeOf(head)
	if err != nil {
		return damaged(err)
	}
	if int64(size) > r.limit-position {
		return damaged(fmt.Errorf("a batch says it has %d bytes, and %d are there", size, r.limit-position))
	}
	buf, err := r.window(position, size)
	if err != nil {
		return nil, err
	}
	v, err := batch.Parse(buf)
	if err != nil {
		return damaged(err)
	}
	if v.Base() != base {
		return damaged(fmt.Errorf("a batch begins with offset %d, not %d", v.Base(), base))
	}
	return v, nil
}

// extent is what a scan found a file to hold: batches of [base, end).
type extent struct {
	end   model.Offset
	bytes int64
	index index
}

// scan reads batches from a file's beginning up to offset stop, which must be a
// batch's end, or until something is not an intact batch. The error says why it
// stopped short; what was read until then is returned with it.
func scan(r *reader, base, stop model.Offset, spacing int64) (extent, error) {
	x := extent{end: base, index: newIndex()}
	for x.end < stop {
		v, err := r.next(x.bytes, x.end)
		if err != nil {
			return x, err
		}
		if v.Next() > stop {
			return x, &Damaged{File: r.name, Position: x.bytes, Cause: fmt.Sprintf(
				"a batch of [%d, %d) lies across %d, where one has to end", v.Base(), v.Next(), stop)}
		}
		x.index.add(v, x.bytes, spacing)
		x.bytes += int64(len(v))
		x.end = v.Next()
	}
	return x, nil
}
