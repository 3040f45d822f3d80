//go:build !linux

package shard

import "time"

// sinceBoot returns the time since this process started. On some systems it stands still while the
// machine is suspended.
func sinceBoot() time.Duration { return sinceStart() }
