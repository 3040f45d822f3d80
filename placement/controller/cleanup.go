package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/placement"
)

// DefaultKeepEnded is the default of [Pool.KeepEnded].
const DefaultKeepEnded = 10 * time.Minute

// removeEnded deletes the Leases and the contracts of pods that have ended long ago and that no
// decision names. It needs all kinds of the pool: one that is not served has decisions, too.
func (p *pass) removeEnded(ctx context.Context) {
	if len(p.kinds) < len(p.Kinds) {
		return
	}
	named := p.namedPods()
	var pods []string
	consider := func(pod string, since time.Time) {
		if named[pod] || p.returns(pod) {
			return
		}
		if left := p.KeepEnded - p.now.Sub(since); left > 0 {
			p.wake(left)
		} else if p.mayTry("remove "+pod, "") {
			pods = append(pods, pod)
		}
	}
	for pod, v := range p.members {
		if v.parsed.holder == "" && !v.parsed.unschedulable { // that is a mark of people
			consider(pod, v.at)
		}
	}
	for pod, v := range p.contracts {
		if p.members[pod] == nil {
			consider(pod, v.at)
		}
	}
	slices.Sort(pods)
	errs := make([]error, len(pods))
	inParallel(ctx, len(pods), func(ctx context.Context, i int) { errs[i] = p.remove(ctx, pods[i]) })
	for i, pod := range pods {
		if errs[i] != nil { // a conflict: the pod has joined again
			p.failed(ctx, "remove "+pod, "", errs[i], "Removing what a pod has left failed", "pod", pod)
			continue
		}
		p.delay("remove "+pod, "") // until the watch has delivered that
		logr.FromContextOrDiscard(ctx).Info("Removed what a pod has left that ended long ago", "pod", pod)
	}
}

// namedPods returns the pods that decisions name.
func (p *pass) namedPods() map[string]bool {
	named := map[string]bool{}
	for _, v := range p.resources {
		for _, shares := range [][]placement.Placement{v.parsed.status.Placement, v.parsed.status.Releasing} {
			for i := range shares {
				named[shares[i].PodName] = true
			}
		}
	}
	return named
}

// remove deletes the contract of a pod and then its Lease, if they are as they were seen.
func (p *pass) remove(ctx context.Context, pod string) error {
	if v := p.contracts[pod]; v != nil {
		err := p.configMaps.ConfigMaps(p.Namespace).Delete(ctx, pod, unchanged(v))
		if err != nil && !apierrors.IsNotFound(err) { // a former attempt has deleted it
			return fmt.Errorf("deleting the contract: %w", err)
		}
	}
	if v := p.members[pod]; v != nil {
		err := p.leases.Leases(p.Namespace).Delete(ctx, pod, unchanged(v))
		if err != nil && !apierrors.IsNotFound(err) { // as above
			return fmt.Errorf("deleting the Lease: %w", err)
		}
	}
	return nil
}

// unchanged returns options that make a deletion conditional on a version.
func unchanged[P any](v *version[P]) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.uid, ResourceVersion: &v.resourceVersion}}
}
