package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit of times in /proc, the same on every Linux that Go runs on.
const ticksPerSecond = 100

// ProcessMeter reads what processes of this machine have used, from /proc. Of
// the bytes written it tells what reached the disk or is on its way there.
func ProcessMeter(pids func() []int) Meter {
	return func(context.Context) (sum Usage, err error) {
		for _, pid := range pids() {
			u, err := processUsage(pid)
			if err != nil {
				return sum, err
			}
			sum.CPU, sum.Written = sum.CPU+u.CPU, sum.Written+u.Written
		}
		return sum, nil
	}
}

func processUsage(pid int) (u Usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The name stands in parentheses and may hold anything; utime and stime are
	// the 12th and 13th field after it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return u, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return u, err
		}
		u.CPU += ticks / ticksPerSecond
	}
	io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(io)) {
		if v, ok := strings.CutPrefix(line, "write_bytes:"); ok {
			u.Written, err = strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return u, err
}
