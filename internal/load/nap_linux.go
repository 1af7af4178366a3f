package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap blocks a thread of the operating system, whose timer is precise.
func nap(d time.Duration) {
	rest := unix.NsecToTimespec(int64(d))
	for unix.Nanosleep(&rest, &rest) == unix.EINTR { // by a signal of the runtime
	}
}
