package journal

import (
	"os"
	"syscall"
)

// syncData makes a file's bytes and its length durable, and leaves its times to
// the system.
func syncData(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
