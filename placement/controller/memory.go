package controller

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

// memory is what a loop remembers from one pass to the next. A new process starts without it.
type memory struct {
	number int64 // of the pass

	// observed holds what was observed of the contract of each pod.
	observed map[string]*observation
	// fresh holds, by the UID of a resource, the version that was last read live or written.
	fresh map[types.UID]freshness
	// gone holds resources that a live read has not found.
	gone map[types.UID]bool

	// ended holds incarnations that are known to have ended, and unnamed holds since when no Lease
	// names an incarnation.
	ended   map[string]bool
	unnamed map[string]time.Time
	// losses holds since when incarnations in decisions have shown a sign of death.
	losses map[string]time.Time
	// durations holds the longest lease duration that was seen of an incarnation, and vigils, by
	// the pod, the observations of Leases that are not renewed.
	durations map[string]time.Duration
	vigils    map[string]*vigil
	// failures holds requests that failed.
	failures map[string]*failure

	// tooLarge holds resources whose entries did not fit into a contract.
	tooLarge map[types.UID]bool
	// detailed is when only numbers or messages of a status were last written.
	detailed map[types.UID]time.Time
	// verdicts holds the last status that this process has written, and when.
	verdicts map[types.UID]*verdict
	// late holds resources that are not acknowledged, and behind the pods that have not acknowledged
	// their contracts.
	late   map[types.UID]*lateness
	behind map[string]*lag
	// missesSet is set if the StatefulSet of the pool does not exist.
	missesSet bool
	// capacities holds the capacities that pods had on their Leases last.
	capacities map[string]int32
	// leaseless holds since when the contracts of pods have no Lease.
	leaseless map[string]time.Time
	// foreign holds pods whose ConfigMap does not belong to the pool.
	foreign map[string]bool
}

// observation is what was observed of one contract.
type observation struct {
	now *version[*stored]
	// since is the pass that first observed the present version, or the version of another writer
	// that this process has only written after.
	since int64
	seen  contract.Versions
}

// verdict is a status that was written, with sorted conditions.
type verdict struct {
	status placement.Status
	at     time.Time
}

func newVerdict(s placement.Status, at time.Time) *verdict {
	s.Conditions = slices.SortedFunc(slices.Values(s.Conditions), func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return &verdict{s, at}
}

// repeats reports whether a status would be the same verdict again, which another writer has undone.
// A nil verdict was never written.
func (v *verdict) repeats(s placement.Status) bool {
	return v != nil && isSameVerdict(&newVerdict(s, v.at).status, &v.status)
}

// freshness is a version of a resource that was read live or written in a pass.
type freshness struct {
	resourceVersion string
	pass            int64
}

func newMemory() memory {
	return memory{
		observed: map[string]*observation{}, fresh: map[types.UID]freshness{}, gone: map[types.UID]bool{},
		ended: map[string]bool{}, unnamed: map[string]time.Time{}, losses: map[string]time.Time{}, durations: map[string]time.Duration{}, vigils: map[string]*vigil{},
		failures: map[string]*failure{},
		tooLarge: map[types.UID]bool{}, detailed: map[types.UID]time.Time{}, verdicts: map[types.UID]*verdict{}, late: map[types.UID]*lateness{}, behind: map[string]*lag{}, foreign: map[string]bool{}, leaseless: map[string]time.Time{}, capacities: map[string]int32{},
	}
}

// observe records the present version of a contract, by whomever it was written.
func (m *memory) observe(pod string, v *version[*stored], isOwn bool) {
	o := m.observed[pod]
	switch {
	case o == nil:
		o = &observation{since: m.number}
		m.observed[pod] = o
	case o.now == v:
		return
	case !isOwn || o.now.uid != v.uid:
		o.since = m.number
	}
	o.now = v
	if !v.parsed.unreadable {
		o.seen = o.seen.With(v.uid, v.parsed.contract.Generation, v.parsed.digest)
	}
}

// isLive reports whether a version of a resource was read live, or written, after the present
// version of the contract of a pod was observed.
func (m *memory) isLive(pod string, v *version[*resource]) bool {
	o, f := m.observed[pod], m.fresh[v.uid]
	return o != nil && f.resourceVersion == v.resourceVersion && f.pass >= o.since
}
