package controller

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

// workload is what the loop uses of the StatefulSet of a pool: its pods have ordinals from first to
// before end.
type workload struct{ first, end int32 }

func parseWorkload(o metav1.Object) *workload {
	set, ok := o.(*appsv1.StatefulSet)
	if !ok {
		set = &appsv1.StatefulSet{}
	}
	w, replicas := &workload{}, int32(1)
	if set.Spec.Replicas != nil {
		replicas = max(*set.Spec.Replicas, 0)
	}
	if set.Spec.Ordinals != nil {
		w.first = max(set.Spec.Ordinals.Start, 0)
	}
	w.end = int32(min(int64(w.first)+int64(replicas), 1<<31-1)) //nolint:gosec // bounded
	return w
}

// isMoreThanStatus reports whether a new version of a StatefulSet has other ordinals.
func isMoreThanStatus(before, after *version[*workload]) bool { return *before.parsed != *after.parsed }

// noteStatefulSet logs that the StatefulSet of the pool does not exist, once.
func (p *pass) noteStatefulSet(ctx context.Context) {
	isMissing := p.StatefulSet != "" && p.set == nil
	if isMissing && !p.missesSet {
		logr.FromContextOrDiscard(ctx).Info("The StatefulSet of the pool does not exist, so the work of pods that end moves at once", "statefulSet", p.StatefulSet)
	}
	p.missesSet = isMissing
}

// ordinal returns the ordinal of a pod, and whether its name is one of a pod of the StatefulSet.
func (p *Pool) ordinal(pod string) (n int32, ok bool) {
	text, ok := strings.CutPrefix(pod, p.StatefulSet+"-")
	if !ok || p.StatefulSet == "" {
		return 0, false
	}
	parsed, err := strconv.ParseInt(text, 10, 32)
	if err != nil || strconv.FormatInt(parsed, 10) != text || parsed < 0 {
		return 0, false
	}
	return int32(parsed), true
}

// returns reports whether the StatefulSet creates a pod of this name again when it ends.
func (p *pass) returns(pod string) bool {
	n, ok := p.ordinal(pod)
	return ok && p.set != nil && n >= p.set.parsed.first && n < p.set.parsed.end
}

// isSurplus reports whether the StatefulSet removes a pod, because it has fewer replicas.
func (p *pass) isSurplus(pod string) bool {
	_, ok := p.ordinal(pod)
	return ok && p.set != nil && !p.returns(pod)
}

// noteLosses records since when the incarnations in decisions have shown a sign of death: their
// last renewal before a takeover by this process, or that no Lease names them. A later process
// begins to count when it starts.
func (p *pass) noteLosses(shares []placement.Placement) {
	for i := range shares {
		incarnation, pod := shares[i].Incarnation, shares[i].PodName
		if incarnation == "" {
			continue
		}
		if _, held := p.holders[incarnation]; held {
			delete(p.losses, incarnation)
			continue
		}
		since, ok := p.losses[incarnation]
		if !ok {
			since = p.now
			p.losses[incarnation] = since
		}
		if latest, ok := p.lostPods[pod]; !ok || since.After(latest) {
			p.lostPods[pod] = since
		}
	}
}

// isAwaited reports whether the work of a pod that has ended waits for the pod to return under its
// name. If so, the next pass comes when the patience is over.
func (p *pass) isAwaited(pod string) bool {
	since, ok := p.lostPods[pod]
	if !ok || !p.returns(pod) {
		return false
	}
	left := p.Patience - p.now.Sub(since)
	if left > 0 {
		p.wake(left)
	}
	return left > 0
}

// stateOf returns the state of the pod of a Lease.
func (p *pass) stateOf(pod string, v *version[*member]) schedule.State {
	m := v.parsed
	isLeaving := m.unschedulable || p.foreign[pod] || p.isSurplus(pod)
	switch {
	case m.holder == "" && !isLeaving && p.isAwaited(pod):
		return schedule.Closed
	case m.holder == "":
		return schedule.Ended
	case !p.isHeld(v):
		return schedule.Closed
	case isLeaving:
		return schedule.Leaving
	}
	return schedule.Open
}

// DefaultPatience is the default of [Pool.Patience].
const DefaultPatience = 30 * time.Second
