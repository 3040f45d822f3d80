package assignment

import (
	"time"
)

// pending returns the number of objects that wait for an assignment, and the number of objects
// found by a resync that wait for their move.
func (t *tracker) pending(v *view) (unassigned, found int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches.orphans != nil && t.main != nil {
		for _, m := range t.watches.orphans.list() {
			isParked := m.Labels[t.keys.drain] != "" && !t.objects[keyFor(m)].lifeOf(m.UID).isOfDead()
			if !isParked && v.selects(t.mapping, m) {
				unassigned++
			}
		}
	}
	for _, o := range t.objects {
		if o.found != nil {
			found++
		}
	}
	return unassigned, found
}

// drainedLongest returns the number of objects that were not released in time, and the age of the
// oldest drain.
func (t *tracker) drainedLongest() (late int, oldest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.objects {
		if d := o.life.drain; !d.since.IsZero() {
			oldest = max(oldest, t.of.now().Sub(d.since))
			if d.isLate {
				late++
			}
		}
	}
	return late, oldest
}

// isSynced reports whether the initial lists of all watches are complete.
func (t *tracker) isSynced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches.areSynced()
}
