package processor

import (
	"sync"
	"time"

	"nodekeeper.dev/internal/service/settings"
)

// latePeriod is the minimum interval between two writes of the Lease about late transactions.
const latePeriod = 10 * time.Second

// Lease is the Lease of this process on its ring.
type Lease interface {
	// Annotate sets an annotation, without waiting.
	Annotate(key, value string)
}

// lateness publishes when this process last applied a transaction late, see
// [settings.LateAnnotation]. It is safe for concurrent use.
type lateness struct {
	mu        sync.Mutex
	published time.Time
}

// applied publishes now if transactions that were due then are applied late.
func (l *lateness) applied(lease Lease, due, now time.Time) {
	if lease == nil || now.Sub(due) < settings.LateAfter {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.published) >= latePeriod {
		l.published = now
		lease.Annotate(settings.LateAnnotation, now.UTC().Format(time.RFC3339))
	}
}
