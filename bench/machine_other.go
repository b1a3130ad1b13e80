//go:build !linux

package bench

func cpuModel() string { return "" }

func loadAverage() string { return "" }
