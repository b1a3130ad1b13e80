//go:build !unix

package bench

// SelfCPU is the core-seconds that this process has used; 0 where it cannot be told.
func SelfCPU() float64 { return 0 }
