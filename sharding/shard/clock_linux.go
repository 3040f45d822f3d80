package shard

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since the machine started, with the time that it was suspended: a
// monotonic clock stands still then.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return sinceStart() // Linux before 2.6.39
	}
	return time.Duration(ts.Nano())
}
