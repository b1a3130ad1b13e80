//go:build !linux

package main

// machineMemory is known on Linux only.
func machineMemory() (int64, bool) { return 0, false }
