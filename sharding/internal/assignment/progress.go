package assignment

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pending returns the number of objects that wait for an assignment, and the number of objects
// found by a resync that wait for their move.
func (t *tracker) pending(v *view) (unassigned, found int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.orphans != nil && t.main != nil {
		for _, object := range t.orphans.store.List() {
			m, ok := object.(*metav1.PartialObjectMetadata)
			if ok && m.Labels[t.keys.drain] == "" && v.selects(t.mapping, m) {
				unassigned++
			}
		}
	}
	return unassigned, len(t.found)
}

// drainedLongest returns the number of objects that were not released in time, and the age of the
// oldest drain.
func (t *tracker) drainedLongest() (late int, oldest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.drained {
		oldest = max(oldest, time.Since(d.since))
		if d.late {
			late++
		}
	}
	return late, oldest
}

// isSynced reports whether the initial lists of all watches are complete.
func (t *tracker) isSynced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.followedLocked() {
		if !f.synced() {
			return false
		}
	}
	return true
}
