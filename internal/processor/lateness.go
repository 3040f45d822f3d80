package processor

import (
	"sync"
	"time"

	"nodekeeper.dev/internal/service/settings"
)

// latePeriod is the minimum interval between two writes of [settings.LateAnnotation].
const latePeriod = 10 * time.Second

// Lease is the Lease of this process on its ring.
type Lease interface {
	// Annotate sets an annotation, without waiting.
	Annotate(key, value string)
}

// lateness publishes when this process last applied transactions late, and how late, see
// [settings.Late]. It is safe for concurrent use.
type lateness struct {
	mu        sync.Mutex
	published time.Time
	worst     time.Duration // since then
}

// applied publishes now if transactions that were due then are applied late.
func (l *lateness) applied(lease Lease, due, now time.Time) {
	if lease == nil || now.Sub(due) < settings.LateAfter {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worst = max(l.worst, now.Sub(due))
	if now.Sub(l.published) >= latePeriod {
		lease.Annotate(settings.LateAnnotation, settings.Late{At: now, By: l.worst}.String())
		l.published, l.worst = now, 0
	}
}
