package watcher

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns the time since the machine was started, the time in which it was suspended
// included: the clock of the runtime stands still then.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(processStart) // no kernel that Go supports is without that clock
	}
	return time.Duration(ts.Nano())
}
