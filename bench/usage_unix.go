//go:build unix

package bench

import "golang.org/x/sys/unix"

// SelfCPU is the core-seconds that this process has used.
func SelfCPU() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
