package ring

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// Reports collects the reports of other parts of the sharder about rings. The controller of this
// package stores them, so that each status has only one writer. The zero value is ready to use. It
// is safe for concurrent use.
type Reports struct {
	mu    sync.Mutex
	rings map[string]*Report
	// changed is called after a report has changed, unless it is nil.
	changed func(ring string)
}

// Report is the report of other parts of the sharder about one ring.
type Report struct {
	// Conditions replace the conditions of the same types in the status. A condition without a
	// generation refers to the current one.
	Conditions []metav1.Condition
	// Table, if its type is set, replaces a condition while admission may use another table than the
	// one in the status.
	Table metav1.Condition
	// Moving is the number of objects in a hand-over, Unassigned the number of objects that wait
	// for an assignment.
	Moving, Unassigned int32
	// Balanced is the last generation of the table for which a resync found nothing to move, or 0.
	Balanced int64
	// Missing are resources of the ring that the API server does not serve.
	Missing []string
	// Cleaned are resources that have left the ring and whose objects have no labels any more. The
	// list is valid for generation CleanedFor of the ring.
	Cleaned    []v1alpha1.GroupResource
	CleanedFor int64
}

// Change modifies the report about a ring. The status is updated later.
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

// Set sets a condition of the report.
func (r *Report) Set(c metav1.Condition) { meta.SetStatusCondition(&r.Conditions, c) }

// Forget removes the report about a ring.
func (r *Reports) Forget(ring string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.rings, ring)
}

// onChange registers the function that is called after a report has changed. It must not block.
func (r *Reports) onChange(changed func(ring string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// of returns a copy of the report about a ring, or an empty report.
func (r *Reports) of(ring string) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.rings[ring]
	if report == nil {
		return Report{}
	}
	result := *report
	result.Conditions = slices.Clone(report.Conditions)
	return result
}

// addConditions applies the conditions of the report to the status of its ring.
func (r *Report) addConditions(ring *v1alpha1.ClusterRing, s *v1alpha1.ClusterRingStatus) {
	all := slices.Clone(r.Conditions)
	if r.Table.Type != "" {
		all = append(all, r.Table)
	}
	for _, c := range all {
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = ring.Generation
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
}

// complete applies the report to the status of its ring.
func (r *Report) complete(ring *v1alpha1.ClusterRing, s *v1alpha1.ClusterRingStatus) {
	r.addConditions(ring, s)
	wanted := Resources(&ring.Spec)
	s.LabelledResources = slices.DeleteFunc(s.LabelledResources, func(resource v1alpha1.GroupResource) bool {
		return r.CleanedFor == ring.Generation && slices.Contains(r.Cleaned, resource) && !slices.Contains(wanted, resource)
	})
	s.Moving, s.Unassigned = r.Moving, r.Unassigned
	s.BalancedGeneration = max(s.BalancedGeneration, r.Balanced)
	if s.Table != nil {
		s.BalancedGeneration = min(s.BalancedGeneration, s.Table.Generation) // it may stem from an earlier ring of this name
	}
}
