package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
)

// errInterrupted is what a command ends with when it is stopped before it is done.
var errInterrupted = errors.New("interrupted")

// interruptible runs what may wait for input, and stops waiting for it when ctx
// ends: a read of a terminal or pipe ends only with its input. What runs on then
// must harm nobody.
func interruptible(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errInterrupted
	}
}

// heed lets the first signal end the command, and the second the process, after
// the least that must not be left behind. A supervisor often sends the same signal
// to a process and to its group: two in quick succession are nothing unusual.
func heed(signals <-chan os.Signal, stop, abort func()) {
	if _, ok := <-signals; !ok {
		return
	}
	stop()
	if _, ok := <-signals; ok {
		abort()
	}
}

// temporary are the folders that this process removes before it ends, however it
// is asked to.
var temporary folders

// folders is a set of folders to be removed. It is safe for concurrent use.
type folders struct {
	mu    sync.Mutex
	paths map[string]bool
}

// removeTries bounds the removals of one folder: files may still be written to it.
const removeTries = 5

// make makes a temporary folder.
func (f *folders) make(pattern string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return "", err
	}
	if f.paths == nil {
		f.paths = map[string]bool{}
	}
	f.paths[dir] = true
	return dir, nil
}

// remove removes one of the folders.
func (f *folders) remove(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.paths, dir)
	var err error
	for range removeTries {
		if err = os.RemoveAll(dir); err == nil {
			break
		}
	}
	return err
}

// removeAll removes what is left, as well as it can.
func (f *folders) removeAll() {
	f.mu.Lock()
	left := slices.Sorted(maps.Keys(f.paths))
	f.mu.Unlock()
	for _, dir := range left {
		_ = f.remove(dir) // the process ends: nobody is left to tell
	}
}
