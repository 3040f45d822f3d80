package controller

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

// deadAfter is after how many lease durations without a renewal a Lease is taken over.
const deadAfter = 2

// takeOver takes over the Leases of pods that have not renewed them for twice their duration, so
// that they cannot be renewed any longer: the incarnations have ended.
func (p *pass) takeOver(ctx context.Context) {
	p.watchSilent(ctx)
	var dead []*version[*member]
	for pod, v := range p.members {
		if p.isDead(v) && p.mayTry("take over "+pod, v.resourceVersion) {
			dead = append(dead, v)
		}
	}
	if len(dead) == 0 {
		return
	}
	errs := make([]error, len(dead))
	inParallel(ctx, len(dead), func(ctx context.Context, i int) {
		next := dead[i].parsed.lease.DeepCopy()
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		contract.MarkEnded(next.Annotations, dead[i].parsed.holder)
		next.Spec.HolderIdentity = new("")
		var taken *coordinationv1.Lease
		if taken, errs[i] = p.leases.Leases(p.Namespace).Update(ctx, next, metav1.UpdateOptions{}); errs[i] == nil {
			p.leaseRows.wrote(taken)
		}
	})
	for i, v := range dead {
		pod := v.parsed.lease.Name
		if errs[i] != nil { // a conflict: the pod lives, or another controller was faster
			p.failed(ctx, "take over "+pod, v.resourceVersion, errs[i], "Taking over a Lease failed", "pod", pod)
			continue
		}
		delete(p.failures, "take over "+pod)
		p.ended[v.parsed.holder], p.losses[v.parsed.holder] = true, v.at
		logr.FromContextOrDiscard(ctx).Info("Took over the Lease of a dead pod", "pod", pod, "incarnation", v.parsed.holder)
	}
	p.seeMembers()
}

// survey determines which incarnations in decisions have ended. As long as a Lease names an
// incarnation, it has not ended, whatever was known before. An incarnation that no Lease has named
// for twice its lease duration, confirmed by a live read, has ended.
func (p *pass) survey(ctx context.Context) {
	named := map[string]string{} // the pod by incarnation
	p.lostPods = map[string]time.Time{}
	for _, v := range p.resources {
		p.noteLosses(v.parsed.status.Placement)
		for _, shares := range [][]placement.Placement{v.parsed.status.Placement, v.parsed.status.Releasing} {
			for i := range shares {
				if shares[i].Incarnation != "" {
					named[shares[i].Incarnation] = shares[i].PodName
				}
			}
		}
	}
	var overdue []string
	for incarnation, pod := range named {
		if p.isOverdue(incarnation, pod) && p.mayTry("find "+incarnation, "") {
			overdue = append(overdue, incarnation)
		}
	}
	slices.Sort(overdue)
	p.confirm(ctx, overdue, named)
	for incarnation := range p.ended {
		if _, ok := named[incarnation]; !ok {
			delete(p.ended, incarnation)
		}
	}
	for incarnation := range p.losses {
		if _, ok := named[incarnation]; !ok {
			delete(p.losses, incarnation)
		}
	}
	for incarnation := range p.durations {
		if _, ok := named[incarnation]; !ok && p.holders[incarnation] == "" {
			delete(p.durations, incarnation)
		}
	}
	for incarnation := range p.unnamed {
		if _, ok := named[incarnation]; !ok || p.ended[incarnation] {
			delete(p.unnamed, incarnation)
		}
	}
}

// isOverdue updates what is known of an incarnation, and reports whether only a live read is
// missing to know that it has ended.
func (p *pass) isOverdue(incarnation, pod string) bool {
	if _, held := p.holders[incarnation]; held {
		delete(p.unnamed, incarnation)
		delete(p.ended, incarnation)
		return false
	}
	m := p.members[pod]
	if m != nil && slices.Contains(m.parsed.ended, incarnation) {
		p.ended[incarnation] = true
	}
	if p.ended[incarnation] {
		return false
	}
	since, ok := p.unnamed[incarnation]
	if !ok {
		since, p.unnamed[incarnation] = p.now, p.now
	}
	left := deadAfter*p.durationOfLost(incarnation, m) - p.now.Sub(since)
	if left > 0 {
		p.wake(left)
	}
	return left <= 0
}

// durationOfLost returns the lease duration of an incarnation that no Lease names, at least: the
// one that was seen, or that its name has, or else that of its pod now. Without any of them, it is
// the default.
func (p *pass) durationOfLost(incarnation string, m *version[*member]) time.Duration {
	if seen := p.durations[incarnation]; seen > 0 {
		return seen
	}
	if named := contract.LeaseDuration(incarnation); named > 0 {
		return named
	}
	if m != nil {
		return max(m.parsed.duration, defaultDuration)
	}
	return defaultDuration
}

// confirm reads the Leases of overdue incarnations.
func (p *pass) confirm(ctx context.Context, overdue []string, podOf map[string]string) {
	errs, ended := make([]error, len(overdue)), make([]bool, len(overdue))
	inParallel(ctx, len(overdue), func(ctx context.Context, i int) {
		pod := podOf[overdue[i]]
		if len(apivalidation.NameIsDNSSubdomain(pod, false)) > 0 {
			ended[i] = true // an edited status: there is no Lease of such a name
			return
		}
		lease, err := p.leases.Leases(p.Namespace).Get(ctx, pod, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			ended[i] = true
		case err != nil:
			errs[i] = err
		default:
			ended[i] = parseMember(lease).holder != overdue[i]
			if lease.Labels[contract.PoolLabel] != p.Name {
				p.foreignObject(aboutLease(lease))
			}
		}
	})
	for i, incarnation := range overdue {
		switch {
		case ended[i]:
			p.ended[incarnation] = true
			delete(p.failures, "find "+incarnation)
			logr.FromContextOrDiscard(ctx).Info("No Lease names an incarnation any longer", "pod", podOf[incarnation], "incarnation", incarnation)
		case errs[i] != nil:
			p.failed(ctx, "find "+incarnation, "", errs[i], "Reading a Lease failed", "pod", podOf[incarnation])
		default:
			p.delay("find "+incarnation, "") // the cache is behind, or the Lease has lost its label
		}
	}
}

// hasEnded reports whether an incarnation is known to have ended.
func (p *pass) hasEnded(incarnation string) bool { return p.ended[incarnation] }
