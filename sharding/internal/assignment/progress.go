package assignment

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pending returns how many objects wait for an assignment, and how many that a pass has found wait for
// their move.
func (t *tracker) pending(v *view) (unassigned, found int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exceptions != nil && t.main != nil {
		for _, object := range t.exceptions.store.List() {
			m, ok := object.(*metav1.PartialObjectMetadata)
			if ok && m.Labels[t.keys.drain] == "" && v.selects(t.mapping, m) {
				unassigned++
			}
		}
	}
	return unassigned, len(t.found)
}

// drainedLongest returns how many objects were not given away in time, and for how long the one that is
// drained longest has been.
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

// isSynced reports whether both watches have shown all that there is.
func (t *tracker) isSynced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range []*following{t.exceptions, t.drains} {
		if f != nil && !f.synced() {
			return false
		}
	}
	return true
}
