package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
)

// Verify reads every byte of a store that nobody has open, and changes nothing.
// The manifest says that [start, end) is there. It returns all damage that it
// finds: behind a broken batch it goes on at the next one that the index names.
// Batches counts those that were read.
func Verify(fsys disk.FS, dir string, start, end model.Offset) (batches int, found []*Damaged, err error) {
	infos, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, nil, fmt.Errorf("verify segments: %w", err)
	}
	o := &opening{Store: &Store{fs: fsys, dir: dir, spacing: spacing, end: end}}
	if err := o.sort(infos, start, end); err != nil {
		return 0, nil, err
	}
	if start == end {
		return 0, nil, nil
	}
	w := &verifier{}
	next, last := start, dir
	for i, f := range o.files {
		last = path.Join(dir, f.name())
		if i == 0 && f.base < start {
			next = f.base
		}
		if f.base != next {
			w.say(last, 0, "it begins with offset %d; %d is expected, so files are missing or too many", f.base, next)
		}
		stop := end
		if i+1 < len(o.files) {
			stop = o.files[i+1].base
		}
		if err := w.file(fsys, &f, last, stop); err != nil {
			return w.batches, w.found, err
		}
		next = stop
	}
	if len(o.files) == 0 {
		w.say(last, 0, "batches of [%d, %d) are missing", start, end)
	}
	return w.batches, w.found, nil
}

type verifier struct {
	found   []*Damaged
	batches int
}

func (w *verifier) say(file string, position int64, cause string, args ...any) {
	w.found = append(w.found, &Damaged{File: file, Position: position, Cause: fmt.Sprintf(cause, args...)})
}

// file checks one file, which has to hold [base, stop).
func (w *verifier) file(fsys disk.FS, f *found, name string, stop model.Offset) error {
	file, err := fsys.Open(name)
	if err != nil {
		return fmt.Errorf("verify segment file: %w", err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return fmt.Errorf("verify segment file %s: %w", name, err)
	}
	limit, x := size, index{}
	if f.rolled {
		if limit, x, err = w.tail(file, f, name, size); err != nil {
			return err
		}
	}
	r := &reader{file: file, name: name, limit: limit, ahead: scanAhead}
	for at, position := f.base, int64(0); at < stop; {
		v, err := r.next(position, at)
		var d *Damaged
		switch {
		case err == nil:
			w.batches++
			at, position = v.Next(), position+int64(len(v))
			continue
		case !errors.As(err, &d):
			return err
		}
		w.found = append(w.found, d)
		again := false
		for i, e := range x.offsets {
			if e.position > position && x.times[i].position == e.position {
				at, position, again = model.Offset(e.key), e.position, true
				break
			}
		}
		if !again {
			break // nothing says where the next batch begins
		}
	}
	return nil
}

// tail checks a rolled file's footer and indexes. limit is where its batches end.
func (w *verifier) tail(file disk.File, f *found, name string, size int64) (limit int64, x index, err error) {
	foot, err := readFooter(file, f.base, size)
	if err != nil {
		w.say(name, max(size-footerSize, 0), "%v", err)
		return size, index{}, nil
	}
	buf := make([]byte, size-foot.bytes-footerSize)
	if n, err := file.ReadAt(buf, foot.bytes); err != nil && n < len(buf) {
		return 0, index{}, fmt.Errorf("verify the index of segment file %s: %w", name, err)
	}
	x, err = parseIndex(buf, int(foot.entries), foot.bytes, foot.maxTime)
	if err != nil {
		w.say(name, foot.bytes, "%v", err)
	}
	return foot.bytes, x, nil
}
