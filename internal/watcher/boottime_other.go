//go:build !linux

package watcher

import "time"

// bootTime returns the time since the process was started by the wall clock, which includes the
// time in which the machine is suspended.
func bootTime() time.Duration { return time.Now().Round(0).Sub(processStart.Round(0)) }
