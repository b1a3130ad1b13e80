package main

import (
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machineMemory is the memory this process may use in bytes: the machine's, or
// its control group's if that is less.
func machineMemory() (int64, bool) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, false
	}
	total := uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // differs by architecture
	if raw, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if limit, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64); err == nil {
			total = min(total, limit)
		}
	}
	return int64(min(total, math.MaxInt64)), true
}
