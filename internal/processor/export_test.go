package processor

import "time"

// Lateness publishes late transactions.
type Lateness struct{ lateness }

// Applied reports transactions that were due then, and are applied now.
func (l *Lateness) Applied(lease Lease, due, now time.Time) { l.applied(lease, due, now) }
