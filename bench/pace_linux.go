package bench

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Pacer waits for moments more exactly than time.Sleep, whose timers are late by
// up to a millisecond on a busy machine: it sleeps in the kernel, on a thread of its own.
type Pacer struct{}

// NewPacer ties the calling goroutine to its thread; it must call Close.
func NewPacer() Pacer {
	runtime.LockOSThread()
	// How late the kernel may be for the sake of saving wake-ups, in nanoseconds.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return Pacer{}
}

// Close lets the goroutine run on any thread again.
func (Pacer) Close() { runtime.UnlockOSThread() }

// Until waits for a moment; one that is past returns at once.
func (Pacer) Until(at time.Time) {
	for {
		left := time.Until(at)
		if left <= 0 {
			return
		}
		ts := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&ts, nil) // interrupted: look at the clock again
	}
}
