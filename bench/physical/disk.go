//go:build linux

package main

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tapedeck/tapedeck/bench"
)

// rawDisk appends and syncs by itself: 4 KiB at a time and 1 MiB at a time.
func rawDisk(dir string, quick bool) ([]*bench.Result, error) {
	times := 2000
	if quick {
		times = 200
	}
	small, err := appendSync(dir, "disk-4KiB-sync", 4<<10, times)
	if err != nil {
		return nil, err
	}
	large, err := appendSync(dir, "disk-1MiB-sync", 1<<20, times/8)
	if err != nil {
		return nil, err
	}
	return []*bench.Result{small, large}, nil
}

// appendSync counts each append with its sync as a message.
func appendSync(dir, name string, size, times int) (*bench.Result, error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	data := make([]byte, size)
	h := bench.NewHistogram()
	began := time.Now()
	for range times {
		at := time.Now()
		if _, err := f.Write(data); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		bench.Note(h, time.Since(at))
	}
	took := time.Since(began).Seconds()
	r := &bench.Result{Name: name, Kind: "disk", Rounds: []bench.Figures{{
		Seconds: took, Messages: float64(times), PerSecond: float64(times) / took,
		MBps: float64(times) * float64(size) / took / 1e6, Ack: bench.LatencyOf(h),
	}}}
	r.Summarize()
	return r, nil
}
