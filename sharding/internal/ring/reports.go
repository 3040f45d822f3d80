package ring

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// Reports are what other parts of the sharder have found about rings. The controller of this package
// stores them: a status has one writer. The zero value has none. It is safe for concurrent use.
type Reports struct {
	mu    sync.Mutex
	rings map[string]*Report
	// changed is called after a report has changed; nil as long as nobody wants to know.
	changed func(ring string)
}

// Report is what other parts of the sharder have found about one ring.
type Report struct {
	// Conditions replace those of the same types. One without a generation is about the ring as it is.
	Conditions []metav1.Condition
	// Moving is how many objects are in a hand-over, and Unassigned how many wait for an assignment.
	Moving, Unassigned int32
	// Balanced is the last generation of the table for which a pass found nothing to move, 0 if there was
	// none yet.
	Balanced int64
	// Missing are resources of the ring that the API server does not serve.
	Missing []string
	// Cleaned are resources that have left the ring, and whose objects have no labels any more, if its
	// generation is CleanedFor.
	Cleaned    []v1alpha1.GroupResource
	CleanedFor int64
}

// Change changes the report about a ring. It returns before the status has it.
func (r *Reports) Change(ring string, change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rings == nil {
		r.rings = map[string]*Report{}
	}
	report := r.rings[ring]
	if report == nil {
		report = &Report{}
		r.rings[ring] = report
	}
	before := *report
	before.Conditions = slices.Clone(report.Conditions)
	change(report)
	if r.changed != nil && !equality.Semantic.DeepEqual(&before, report) {
		r.changed(ring)
	}
}

// Set sets a condition of a report.
func (r *Report) Set(c metav1.Condition) { meta.SetStatusCondition(&r.Conditions, c) }

// Forget removes the report about a ring.
func (r *Reports) Forget(ring string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.rings, ring)
}

// tell makes Change call changed, which must not block.
func (r *Reports) tell(changed func(ring string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// of returns a copy of the report about a ring, which is empty if there is none.
func (r *Reports) of(ring string) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.rings[ring]
	if report == nil {
		return Report{}
	}
	found := *report
	found.Conditions = slices.Clone(report.Conditions)
	return found
}

// complete adds a report to the status of its ring.
func (r *Report) complete(ring *v1alpha1.ClusterRing, s *v1alpha1.ClusterRingStatus) {
	for _, c := range r.Conditions {
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = ring.Generation
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
	wanted := Resources(&ring.Spec)
	s.LabelledResources = slices.DeleteFunc(s.LabelledResources, func(resource v1alpha1.GroupResource) bool {
		return r.CleanedFor == ring.Generation && slices.Contains(r.Cleaned, resource) && !slices.Contains(wanted, resource)
	})
	s.Moving, s.Unassigned = r.Moving, r.Unassigned
	s.BalancedGeneration = max(s.BalancedGeneration, r.Balanced)
	if s.Table != nil {
		s.BalancedGeneration = min(s.BalancedGeneration, s.Table.Generation) // another ring may have had this name
	}
}
