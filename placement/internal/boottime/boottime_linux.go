// Package boottime reads a clock that goes on while the machine is suspended, as the clocks of
// other machines do. The clock of package time does not.
package boottime

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine started. All processes of the machine share it. If the
// kernel has no such clock, it returns a time after all others, so that no deadline is missed.
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return math.MaxInt64
	}
	return time.Duration(now.Nano())
}
