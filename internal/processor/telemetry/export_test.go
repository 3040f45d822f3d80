package telemetry

import "time"

// ReturnedAt is when a node returned.
func ReturnedAt(created, seen time.Time) time.Time { return returnedAt(created, seen) }
