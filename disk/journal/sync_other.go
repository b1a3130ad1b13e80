//go:build !linux

package journal

import "os"

// syncData makes a file's bytes and its length durable.
func syncData(f *os.File) error { return f.Sync() }
