package controller

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// readsPerDuration is how often a Lease that is not renewed is read in each lease duration.
	readsPerDuration = 4
	// maxGap is the time between two reads after which they prove nothing about the time between
	// them. A pass with a request that hangs takes less.
	maxGap = requestTimeout + time.Second
)

// vigil is an observation of a Lease that is not renewed: the API server could be reached all that
// time, so the pod could have renewed its Lease.
type vigil struct {
	resourceVersion string
	since, last     time.Time
	failed          bool // the last read failed, so the next one is the first of another vigil
}

// isHeld reports whether a Lease is held and renewed.
func (p *pass) isHeld(v *version[*member]) bool {
	return v.parsed.holder != "" && p.now.Sub(v.at) < p.duration(v)
}

// duration returns the lease duration of the holder of a Lease. It does not fall while the holder
// stays, whatever other clients write.
func (p *pass) duration(v *version[*member]) time.Duration {
	return max(v.parsed.duration, p.durations[v.parsed.holder])
}

// isDead reports whether a Lease may be taken over: it was not renewed for twice its duration, and
// the controller has observed that for one duration without a gap. So an API server that was away
// does not make pods look dead.
func (p *pass) isDead(v *version[*member]) bool {
	if v.parsed.holder == "" || p.isHeld(v) {
		return false
	}
	w := p.vigils[v.parsed.lease.Name]
	if w == nil || w.failed {
		p.wake(p.duration(v) / readsPerDuration)
		return false
	}
	now := time.Now()
	left := max(deadAfter*p.duration(v)-now.Sub(v.at), p.duration(v)-now.Sub(w.since))
	if left > 0 {
		p.wake(min(left, p.duration(v)/readsPerDuration))
	}
	return left <= 0
}

// watchSilent reads the Leases that are not renewed.
func (p *pass) watchSilent(ctx context.Context) {
	var silent []*version[*member]
	for pod, v := range p.members {
		w := p.vigils[pod]
		switch {
		case v.parsed.holder == "" || p.isHeld(v):
			delete(p.vigils, pod)
		case w == nil, w.resourceVersion != v.resourceVersion, p.now.Sub(w.last) >= p.duration(v)/readsPerDuration:
			silent = append(silent, v)
		}
	}
	if len(silent) == 0 {
		return
	}
	leases, errs := make([]*coordinationv1.Lease, len(silent)), make([]error, len(silent))
	began := time.Now()
	inParallel(ctx, len(silent), func(ctx context.Context, i int) {
		leases[i], errs[i] = p.leases.Leases(p.Namespace).Get(ctx, silent[i].parsed.lease.Name, metav1.GetOptions{})
	})
	for i, v := range silent {
		pod := v.parsed.lease.Name
		switch {
		case apierrors.IsNotFound(errs[i]): // the watch will deliver that
			delete(p.vigils, pod)
		case errs[i] != nil:
			p.vigils[pod] = &vigil{resourceVersion: v.resourceVersion, last: began, failed: true}
			p.log(ctx, errs[i], "Reading a Lease that is not renewed failed", "pod", pod)
		case leases[i].ResourceVersion != v.resourceVersion:
			delete(p.vigils, pod)
			p.leaseRows.wrote(leases[i])
		default:
			p.observeSilence(pod, v, began)
		}
	}
	p.seeMembers()
}

// observeSilence records that a Lease was still the same when it was read.
func (p *pass) observeSilence(pod string, v *version[*member], began time.Time) {
	w := p.vigils[pod]
	if w == nil || w.failed || w.resourceVersion != v.resourceVersion || began.Sub(w.last) > max(maxGap, p.duration(v)/2) {
		w = &vigil{resourceVersion: v.resourceVersion, since: time.Now()}
		p.vigils[pod] = w
	}
	w.last = began
}
