package watcher

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns the time since the machine was started, including the time in which it was
// suspended, which the runtime's clock excludes.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(processStart) // unreachable: every kernel that Go supports has that clock
	}
	return time.Duration(ts.Nano())
}
