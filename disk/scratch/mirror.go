package scratch

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/tapedeck/tapedeck/disk"
)

const (
	folderMode = 0o750
	fileMode   = 0o640
	folderSize = -1 // in place of a file's size
	lockName   = "LOCK"
)

// mirror keeps a folder of another file system equal to a real one, by what the
// real one gained and lost: files only grow, shrink, come and go.
type mirror struct {
	truth disk.FS
	dir   string           // in truth
	root  string           // the real folder
	seen  map[string]int64 // what truth has, by path below dir: a file's size, or folderSize
}

// fetch makes the real folder from the other; neither need exist.
func (m *mirror) fetch() error {
	return m.fetchFolder(".")
}

func (m *mirror) fetchFolder(rel string) error {
	infos, err := m.truth.ReadDir(path.Join(m.dir, rel))
	if rel == "." && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Mkdir(m.real(rel), folderMode); err != nil {
		return err
	}
	m.seen[rel] = folderSize
	for _, info := range infos {
		name := path.Join(rel, info.Name())
		if info.IsDir() {
			err = m.fetchFolder(name)
		} else {
			err = m.fetchFile(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *mirror) fetchFile(rel string) error {
	h, err := m.truth.Open(path.Join(m.dir, rel))
	if err != nil {
		return err
	}
	defer h.Close()
	size, err := h.Size()
	if err != nil {
		return err
	}
	data := make([]byte, size)
	if n, err := h.ReadAt(data, 0); err != nil && n < len(data) {
		return err
	}
	m.seen[rel] = size
	return os.WriteFile(m.real(rel), data, fileMode)
}

func (m *mirror) real(rel string) string { return filepath.Join(m.root, filepath.FromSlash(rel)) }

// push brings the other folder up to date; nothing is durable by that.
func (m *mirror) push() error {
	now, err := m.list()
	if err != nil {
		return err
	}
	gone := slices.Sorted(maps.Keys(m.seen))
	slices.Reverse(gone) // what is in a folder before the folder
	for _, rel := range gone {
		if _, there := now[rel]; there {
			continue
		}
		if err := m.truth.Remove(path.Join(m.dir, rel)); err != nil {
			return err
		}
		delete(m.seen, rel)
	}
	for _, rel := range slices.Sorted(maps.Keys(now)) {
		if err := m.pushOne(rel, now[rel]); err != nil {
			return err
		}
	}
	return nil
}

func (m *mirror) pushOne(rel string, size int64) error {
	had, there := m.seen[rel]
	switch {
	case there && had == size:
		return nil
	case size == folderSize:
		m.seen[rel] = size
		return m.truth.MkdirAll(path.Join(m.dir, rel))
	}
	open := m.truth.Open
	if !there {
		open = m.truth.Create
	}
	h, err := open(path.Join(m.dir, rel))
	if err != nil {
		return err
	}
	m.seen[rel] = size
	if size < had {
		err = h.Truncate(size)
	} else if size > had {
		var data []byte
		if data, err = os.ReadFile(m.real(rel)); err == nil {
			_, err = h.WriteAt(data[had:size], had)
		}
	}
	return errors.Join(err, h.Close())
}

// list is the real folder as it is now, by path below it.
func (m *mirror) list() (map[string]int64, error) {
	now := map[string]int64{}
	err := filepath.WalkDir(m.root, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == m.root {
			return nil
		}
		if err != nil || d.Name() == lockName {
			return err
		}
		rel, err := filepath.Rel(m.root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			now[filepath.ToSlash(rel)] = folderSize
			return nil
		}
		info, err := d.Info()
		if err == nil {
			now[filepath.ToSlash(rel)] = info.Size()
		}
		return err
	})
	return now, err
}

// synced makes durable in the other folder what the engine synced in the real one.
// Of a file nothing else is carried over before it is durable: the engine may have
// synced it before it began the next one, as the library does within one call.
func (m *mirror) synced(name string) error {
	rel, err := filepath.Rel(m.root, name)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	at := path.Join(m.dir, rel)
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errors.Join(m.push(), m.truth.SyncDir(at))
	}
	for up := path.Dir(rel); ; up = path.Dir(up) {
		if err := m.pushOne(up, folderSize); err != nil { // makes those above it, too
			return err
		}
		if up == "." {
			break
		}
	}
	if err := m.pushOne(rel, info.Size()); err != nil {
		return err
	}
	h, err := m.truth.Open(at)
	if err != nil {
		return err
	}
	return errors.Join(h.Sync(), h.Close())
}
