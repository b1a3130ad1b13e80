package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
)

// scanAhead is how much a scan reads at a time.
const scanAhead = 1 << 20

// Open recovers the store in a folder, which need not exist. The manifest says
// that [start, end) was durable. All at or above end is cut, and whole segments
// below start are removed. Missing or broken batches in [start, end), as far as
// it looks (see the package's comment), give *Damaged and nothing is changed.
func Open(fsys disk.FS, dir string, start, end model.Offset) (*Store, error) {
	return open(fsys, dir, start, end, spacing)
}

func open(fsys disk.FS, dir string, start, end model.Offset, spacing int64) (*Store, error) {
	if start > end {
		return nil, fmt.Errorf("open segments in %s: start %d is above end %d", dir, start, end)
	}
	s := &Store{fs: fsys, dir: dir, spacing: spacing, end: end}
	infos, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open segments: %w", err)
	}
	s.madeDir = err == nil
	if s.madeDir {
		// Whether the folder itself is durable nobody knows any more.
		s.newDir = true
	}
	o := &opening{Store: s}
	if err := o.sort(infos, start, end); err != nil {
		return nil, err
	}
	if err := o.examine(start, end); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := o.repair(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// opening is a store being recovered.
type opening struct {
	*Store
	files []found
}

// found is a file in the folder, and what has to be done with it.
type found struct {
	base   model.Offset
	rolled bool
	do     repair
	part   *part
}

// repair is what recovery does to a file once everything was looked at.
type repair uint8

const (
	leave    repair = 0
	shorten  repair = 1 // cut to its batches and go on appending
	complete repair = 2 // write its tail again
)

func (f *found) name() string { return (&part{base: f.base, rolled: f.rolled}).name() }

// sort takes up the folder's files, and gives away those out of [start, end).
func (o *opening) sort(infos []fs.FileInfo, start, end model.Offset) error {
	for _, info := range infos {
		digits, rolled := strings.CutSuffix(info.Name(), rolledSuffix)
		if !rolled {
			digits = strings.TrimSuffix(info.Name(), activeSuffix)
		}
		base, err := strconv.ParseUint(digits, 10, 64)
		f := found{base: model.Offset(base), rolled: rolled}
		if err != nil || info.IsDir() || f.name() != info.Name() {
			continue // not ours: neither read nor removed
		}
		if f.base >= end || start == end {
			o.trash = append(o.trash, f.name())
			continue
		}
		o.files = append(o.files, f)
	}
	slices.SortStableFunc(o.files, func(a, b found) int {
		switch {
		case a.base < b.base:
			return -1
		case a.base > b.base:
			return 1
		}
		return 0
	})
	for len(o.files) > 1 && o.files[1].base <= start && o.files[1].base > o.files[0].base {
		o.trash = append(o.trash, o.files[0].name())
		o.files = o.files[1:]
	}
	return nil
}

// examine reads what is left, and changes nothing.
func (o *opening) examine(start, end model.Offset) error {
	if start == end {
		return nil
	}
	next := start
	if len(o.files) > 0 && o.files[0].base < start {
		next = o.files[0].base
	}
	last := o.dir
	for i := range o.files {
		f := &o.files[i]
		last = path.Join(o.dir, f.name())
		if f.base != next {
			return &Damaged{File: last, Cause: fmt.Sprintf(
				"it begins with offset %d; %d is expected, so files are missing or too many", f.base, next)}
		}
		stop := end
		if i+1 < len(o.files) {
			stop = o.files[i+1].base
		}
		if err := o.look(f, last, stop, i+1 == len(o.files)); err != nil {
			return err
		}
		next = f.part.end
	}
	if next != end {
		return &Damaged{File: last, Cause: fmt.Sprintf("batches of [%d, %d) are missing behind it", next, end)}
	}
	return nil
}

// look examines one file, which has to hold [base, stop).
func (o *opening) look(f *found, name string, stop model.Offset, last bool) error {
	file, err := o.fs.Open(name)
	if err != nil {
		return fmt.Errorf("open segment file: %w", err)
	}
	p := &part{base: f.base, end: f.base, file: file}
	f.part = p
	o.parts = append(o.parts, p)
	size, err := file.Size()
	if err != nil {
		return fmt.Errorf("read segment file %s: %w", name, err)
	}
	if f.rolled {
		foot, err := readFooter(file, f.base, size)
		switch {
		case err == nil && foot.end <= stop:
			p.end, p.bytes, p.maxTime, p.rolled = foot.end, foot.bytes, foot.maxTime, true
			p.file = nil
			return file.Close()
		case err == nil && !last:
			return &Damaged{File: name, Position: size - footerSize, Cause: fmt.Sprintf(
				"it ends at offset %d; the next file begins with %d", foot.end, stop)}
		case err == nil:
			size = foot.bytes
		}
	}
	r := &reader{file: file, name: name, limit: size, ahead: scanAhead}
	x, err := scan(r, f.base, stop, o.spacing)
	if err != nil {
		return err
	}
	p.end, p.bytes, p.index, p.maxTime, p.loaded = x.end, x.bytes, x.index, x.index.maxTime, true
	f.do = shorten
	if !last || f.rolled && !batchFollows(r, x.bytes) {
		f.do = complete
		o.rebuilt++
	}
	return nil
}

// batchFollows says that a file whose footer is broken held more than is kept:
// then it is no longer a rolled one.
func batchFollows(r *reader, position int64) bool {
	if r.limit-position < batch.HeaderSize {
		return false
	}
	head, err := r.window(position, batch.HeaderSize)
	if err != nil {
		return false
	}
	_, err = batch.SizeOf(head)
	return err == nil
}

func readFooter(file disk.File, base model.Offset, size int64) (footer, error) {
	if size < footerSize {
		return footer{}, errors.New("the file is too short for a footer")
	}
	var b [footerSize]byte
	if n, err := file.ReadAt(b[:], size-footerSize); err != nil && n < len(b) {
		return footer{}, err
	}
	return parseFooter(b[:], base, size)
}

// repair carries out what examine decided. All of it is made durable by the next
// Sync; until then recovery would decide the same again.
func (o *opening) repair() error {
	for i := range o.files {
		f := &o.files[i]
		name := path.Join(o.dir, f.name())
		switch f.do {
		case shorten:
			if err := f.part.file.Truncate(f.part.bytes); err != nil {
				return fmt.Errorf("cut segment file %s at byte %d: %w", name, f.part.bytes, err)
			}
			f.part.dirty = true
			if f.rolled {
				if err := o.fs.Rename(name, o.path(f.part)); err != nil {
					return fmt.Errorf("take up segment file %s again: %w", name, err)
				}
				o.entries = true
			}
		case complete:
			if err := o.seal(f.part, name); err != nil {
				return err
			}
			f.part.rolled = true
			o.touch(f.part)
		}
	}
	return o.sweep()
}
