package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
	// verdicts holds the last status that this process has written, and when.
	verdicts map[types.UID]*verdict
	// granted is when contracts were last written.
	granted time.Time
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

// verdict is the verdict in a status that was written. A nil verdict was never written.
type verdict struct {
	text string
	at   time.Time
}

func newVerdict(s *placement.Status, at time.Time) *verdict { return &verdict{textOf(s), at} }

// textOf returns what makes two statuses the same verdict.
func textOf(s *placement.Status) string {
	texts := []string{strconv.FormatInt(s.ObservedGeneration, 10)}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		texts = append(texts, fmt.Sprintf("%s %s %s %d", c.Type, c.Status, c.Reason, c.ObservedGeneration))
	}
	slices.Sort(texts[1:])
	return strings.Join(texts, "\n")
}

// repeats reports whether a status would be the same verdict again, which another writer has undone.
func (v *verdict) repeats(s *placement.Status) bool { return v != nil && v.text == textOf(s) }

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
		tooLarge: map[types.UID]bool{}, verdicts: map[types.UID]*verdict{}, late: map[types.UID]*lateness{}, behind: map[string]*lag{}, foreign: map[string]bool{}, leaseless: map[string]time.Time{}, capacities: map[string]int32{},
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
