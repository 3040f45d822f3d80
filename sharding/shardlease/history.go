package shardlease

import (
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// maxRemembered is how many periods the time of a renewal is remembered, see [Keeper.SentAt]. A
// watch may be late by several.
const maxRemembered = 64

// history holds what the renewals of this process have stored. It is safe for concurrent use.
type history struct {
	// keep is how long the time of a renewal is remembered.
	keep time.Duration

	mu sync.Mutex
	// first is the Lease as stored by the first renewal since another client has written it.
	first *coordinationv1.Lease
	// latest is the Lease as stored by the last renewal.
	latest *coordinationv1.Lease
	// sent holds the times at which the latest renewals were sent, by the resourceVersion of the
	// stored Lease.
	sent map[string]time.Time
	// last is when the latest successful renewal was sent.
	last time.Time
}

// add records a successful renewal and when it was sent, and discards old times. The first renewal
// since another client has written the Lease starts a new tenure.
func (h *history) add(stored *coordinationv1.Lease, sent time.Time, isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if isNew {
		h.first = stored
	}
	if h.sent == nil {
		h.sent = map[string]time.Time{}
	}
	h.latest, h.last, h.sent[stored.ResourceVersion] = stored, sent, sent
	maps.DeleteFunc(h.sent, func(_ string, at time.Time) bool { return sent.Sub(at) > h.keep })
}

func (h *history) firstStored() *coordinationv1.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.first
}

func (h *history) lastStored() *coordinationv1.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest
}

func (h *history) lastRenewal() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// sentAt returns when the renewal that stored this version of the Lease was sent, if that is known.
func (h *history) sentAt(l *coordinationv1.Lease) (sent time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sent, ok = h.sent[l.ResourceVersion]
	return sent, ok
}

// hasStored reports whether a Lease is the one of the current tenure, at its first version or a
// later one.
func (h *history) hasStored(l *coordinationv1.Lease) bool {
	first := h.firstStored()
	if first == nil || first.UID != l.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(l.ResourceVersion, first.ResourceVersion)
	return err == nil && order >= 0
}
