package node

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/tapedeck/tapedeck/disk"
)

// asidePrefix begins the names of folders that hold what was set aside.
const asidePrefix = "refused-"

// IsAside says whether a folder of this name, in a data folder, holds what was set
// aside from it.
func IsAside(name string) bool {
	_, ok := asideNumber(name)
	return ok
}

func asideNumber(name string) (n int, ok bool) {
	number, ok := strings.CutPrefix(name, asidePrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(number)
	return n, err == nil
}

// SetAside moves all content of a data folder, which no node may be using, into
// a new folder refused-N inside it, and returns that folder's name; "" if there
// was nothing. Nothing is deleted. The next start finds an empty folder: the node
// rejoins its cluster with new replicas.
//
// IDENTITY goes last: a folder that was set aside only in part is still refused,
// and setting aside again takes the rest.
func SetAside(f disk.FS) (string, error) {
	names, n, err := asideNames(f)
	if err != nil || len(names) == 0 {
		return "", err
	}
	to := asidePrefix + strconv.Itoa(n)
	if err := f.MkdirAll(to); err != nil {
		return "", fmt.Errorf("make the folder to move things to: %w", err)
	}
	for _, name := range names {
		if err := moveTree(f, name, path.Join(to, name)); err != nil {
			return "", fmt.Errorf("move %s to %s: %w", name, to, err)
		}
		if err := f.SyncDir(to); err != nil {
			return "", fmt.Errorf("make %s durable: %w", to, err)
		}
	}
	if err := f.SyncDir("."); err != nil {
		return "", fmt.Errorf("make the data folder durable: %w", err)
	}
	return to, nil
}

// asideNames lists what would be moved, and the first free number for where to.
func asideNames(f disk.FS) (names []string, n int, err error) {
	files, err := f.ReadDir(".")
	if err != nil {
		return nil, 0, fmt.Errorf("look into the data folder: %w", err)
	}
	n = 1
	identity := false
	for _, info := range files {
		name := info.Name()
		if k, ok := asideNumber(name); ok && info.IsDir() {
			n = max(n, k+1)
			continue
		}
		if name == mountDir {
			continue
		}
		if name == IdentityFile {
			identity = true
			continue
		}
		names = append(names, name)
	}
	if identity {
		names = append(names, IdentityFile)
	}
	return names, n, nil
}

// moveTree moves a file, or a folder file by file.
func moveTree(f disk.FS, from, to string) error {
	files, err := f.ReadDir(from)
	if err != nil {
		return f.Rename(from, to) // no folder
	}
	if err := f.MkdirAll(to); err != nil {
		return err
	}
	for _, info := range files {
		if err := moveTree(f, path.Join(from, info.Name()), path.Join(to, info.Name())); err != nil {
			return err
		}
	}
	if err := f.SyncDir(to); err != nil {
		return err
	}
	if err := f.SyncDir(from); err != nil {
		return err
	}
	return f.Remove(from)
}
