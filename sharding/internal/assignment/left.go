package assignment

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/sharding/internal/ring"
)

// objectsLeft is the reason of the event about a shard that has left objects behind.
const objectsLeft = "ObjectsLeft"

// leavers counts the main objects that leaving shards had not handed over when they ended. Only the
// sharder can count them, because the shard is gone. The zero value is ready to use. It is safe for
// concurrent use.
type leavers struct {
	mu  sync.Mutex
	all map[string]*leaver
}

// leaver is a shard that had asked the sharder to move its objects, and is dead.
type leaver struct {
	// alone is set if no shard had slots when it died: it had no shard to hand objects over to.
	alone bool
	// left are the main objects that the shard had then.
	left     map[types.UID]struct{}
	reported bool
}

// setView updates the shards. One is discarded when it is alive again, or a minute after its death,
// when its Lease is deleted.
func (l *leavers) setView(v *view) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.all, func(name string, _ *leaver) bool { return !slices.Contains(v.left, name) })
	for _, name := range v.left {
		if l.all[name] != nil || v.live[name] {
			continue // the table still contains it
		}
		if l.all == nil {
			l.all = map[string]*leaver{}
		}
		l.all[name] = &leaver{alone: v.table.Now == nil, left: map[types.UID]struct{}{}}
	}
}

// add records an object that has the label of a shard, and reports whether the shard has left it
// behind and the object was not recorded before.
func (l *leavers) add(shard string, object types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[shard]
	if one == nil || one.alone {
		return false
	}
	_, known := one.left[object]
	one.left[object] = struct{}{}
	return !known
}

// report returns the number of objects of each shard that has left objects behind, once.
func (l *leavers) report() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{}
	for name, one := range l.all {
		if len(one.left) > 0 && !one.reported {
			counts[name], one.reported = len(one.left), true
		}
	}
	return counts
}

// countLeft counts an object without a live shard if its shard has left it behind.
func (t *tracker) countLeft(m *metav1.PartialObjectMetadata) {
	if shard := m.Labels[t.keys.shard]; t.main != nil && t.of.current().selects(t.mapping, m) && t.of.leavers.add(shard, m.UID) {
		t.of.metrics.left.WithLabelValues(t.of.name).Inc()
	}
}

// reportLeft emits an event for each shard that has left objects behind, with their number.
func (a *assigner) reportLeft() {
	for shard, count := range a.leavers.report() {
		of := a.current().ring
		a.Recorder.Eventf(of, ring.LeaseOf(of, shard), corev1.EventTypeWarning, objectsLeft, "Assign",
			"shard %s ended before it had handed over all its objects (%d left), which go to other shards like those of a dead shard: "+
				"give it more time, by LeaveTimeout and terminationGracePeriodSeconds", shard, count)
	}
}
