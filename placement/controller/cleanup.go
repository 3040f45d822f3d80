package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

// DefaultKeepEnded is the default of [Pool.KeepEnded].
const DefaultKeepEnded = 10 * time.Minute

// removeEnded deletes the Leases and the contracts of pods that have ended long ago and that no
// decision names. It needs all kinds of the pool: kinds that are not served may have decisions, too.
func (p *pass) removeEnded(ctx context.Context) {
	if len(p.kinds) < len(p.Kinds) {
		return
	}
	named := p.namedPods()
	var pods []string
	reads := map[types.UID]*contract.Reference{}
	consider := func(pod string, since time.Time) {
		if named[pod] || p.returns(pod) || p.mayHold(pod, reads) {
			return
		}
		if left := p.KeepEnded - p.now.Sub(since); left > 0 {
			p.wake(left)
		} else if p.mayTry("remove "+pod, "") {
			pods = append(pods, pod)
		}
	}
	for pod, v := range p.members {
		if v.parsed.holder == "" && !v.parsed.unschedulable { // which a user has set
			consider(pod, v.at)
		}
	}
	p.noteLeaseless()
	for pod, since := range p.leaseless {
		consider(pod, since)
	}
	if p.readLive(ctx, reads) {
		p.wake(passPeriod)
	}
	slices.Sort(pods)
	errs := make([]error, len(pods))
	inParallel(ctx, len(pods), func(ctx context.Context, i int) { errs[i] = p.remove(ctx, pods[i]) })
	for i, pod := range pods {
		if errs[i] != nil { // a conflict: the pod has joined again
			p.failed(ctx, "remove "+pod, "", errs[i], "Removing the Lease and the contract of an ended pod failed", "pod", pod)
			continue
		}
		p.delay("remove "+pod, "") // until the watch has delivered that
		logr.FromContextOrDiscard(ctx).Info("Removed the Lease and the contract of an ended pod", "pod", pod)
	}
}

// noteLeaseless records since when contracts have no Lease. A new process begins to count when it
// starts.
func (p *pass) noteLeaseless() {
	for pod := range p.contracts {
		if _, known := p.leaseless[pod]; !known && p.members[pod] == nil {
			p.leaseless[pod] = p.now
		}
	}
	for pod := range p.leaseless {
		if p.contracts[pod] == nil || p.members[pod] != nil {
			delete(p.leaseless, pod)
		}
	}
}

// mayHold reports whether the contract of a pod is the only object that shows what the pod may work
// on: it lists a resource about which no decision is known. It adds those that must be read live to
// know whether they are gone.
func (p *pass) mayHold(pod string, reads map[types.UID]*contract.Reference) (holds bool) {
	c := p.contracts[pod]
	if c == nil {
		return false
	}
	for i := range c.parsed.contract.Entries {
		uid := c.parsed.contract.Entries[i].UID
		switch v := p.byUID[uid]; {
		case v != nil && !v.parsed.isUsable():
			holds = true
		case v == nil && !p.isGone(uid):
			holds = true
			if p.mayTry("read "+string(uid), "") {
				reads[uid] = p.reference(pod, uid)
			}
		}
	}
	return holds
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

// errHeld means that a Lease is held. It has lost the label of the pool.
var errHeld = errors.New("the Lease is held")

// remove deletes the contract of a pod and then its Lease, if they are as they were seen and the
// Lease is not held.
func (p *pass) remove(ctx context.Context, pod string) error {
	lease, err := p.leases.Leases(p.Namespace).Get(ctx, pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // there is none to keep
	case err != nil:
		return fmt.Errorf("reading the Lease: %w", err)
	case parseMember(lease).holder != "":
		return errHeld
	}
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
