package telemetry

import "time"

// ReturnedAt exports returnedAt.
func ReturnedAt(created, seen time.Time) time.Time { return returnedAt(created, seen) }
