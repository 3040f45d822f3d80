//go:build !linux

package boottime

import "time"

var start = time.Now()

// Now returns the time since this process started. It may stand still while the machine is
// suspended.
func Now() time.Duration { return time.Since(start) }
