package inspect

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// deletedAt returns when a node was deleted by a pending transaction, zero if that is no deletion.
// The clock of the watcher may be ahead of the API server's.
func deletedAt(p Pending) time.Time {
	switch {
	case p.Type != txn.Deleted:
		return time.Time{}
	case p.ObservedAt.IsZero() || p.ObservedAt.After(p.Created):
		return p.Created
	}
	return p.ObservedAt
}

// AwaySince returns when a node that is away was deleted, or the last sign of it: see [LastHeard].
func (n *Node) AwaySince() time.Time {
	var deletions []time.Time
	for _, p := range n.Pending {
		deletions = append(deletions, deletedAt(p))
	}
	return awaySince(n.Saved.Record, LastHeard(n.Saved.Object), deletions)
}

// awaySince returns when a node was deleted: by its pending transactions, else by its record. If
// that is unknown, it is the last sign of it. Record is nil if it cannot be read.
func awaySince(r *record.Record, lastHeard time.Time, deletions []time.Time) time.Time {
	var last time.Time
	for _, at := range deletions {
		if at.After(last) {
			last = at
		}
	}
	return cmp.Or(last, endedAt(r, lastHeard), lastHeard)
}

// endedAt returns when a node was deleted by its record, zero if that is unknown. Record may be
// nil.
func endedAt(r *record.Record, lastHeard time.Time) time.Time {
	if r == nil || !r.Ended || r.EndedAt.After(lastHeard) { // the clock of the watcher was ahead
		return time.Time{}
	}
	return r.EndedAt
}

// LastHeard returns the last sign of a node that is away: the time since which a processor with
// --retention has found it missing, or else the last write of its record. The end of an incarnation
// that had its labels always writes the record.
func LastHeard(cm *corev1.ConfigMap) time.Time {
	if since, err := time.Parse(time.RFC3339, cm.Annotations[record.AwaySinceAnnotation]); err == nil {
		return since
	}
	last := cm.CreationTimestamp.Time
	for _, entry := range cm.ManagedFields {
		if entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}
