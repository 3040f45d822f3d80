package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LeaseName is the name of the Lease in the metadata namespace that records sweeps for absent
// nodes.
const LeaseName = "nodekeeper-retention"

// observation is a period of sweeps without a gap. The zero value means that there has been no
// sweep.
type observation struct{ since, last time.Time }

// at returns the observation after a sweep at now. It restarts if the latest sweep is further than
// maxGap from now, in either direction: if the latest sweep is in the future, one of the two clocks
// is wrong.
func (o observation) at(now time.Time, maxGap time.Duration) observation {
	if now.Sub(o.last).Abs() > maxGap {
		return observation{since: now, last: now}
	}
	if now.Before(o.last) {
		return o
	}
	return observation{since: o.since, last: now}
}

// absent returns the minimum time for which a node has been away, given the noted start of its
// absence.
func (o observation) absent(since, now time.Time) time.Duration {
	if since.Before(o.since) {
		since = o.since
	}
	return now.Sub(since)
}

// errRaced means that another processor swept at the same moment.
var errRaced = errors.New("another processor swept at the same moment")

// noteSweep notes in the Lease that this process sweeps at now, and returns the observation.
func (r *Retention) noteSweep(ctx context.Context, now time.Time) (observation, error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Records.Namespace, Name: LeaseName}}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}, lease)
	if client.IgnoreNotFound(err) != nil {
		return observation{}, fmt.Errorf("reading the latest sweep for absent nodes: %w", err)
	}
	missing := err != nil
	before := observationIn(lease)
	after := before.at(now, r.maxGap())
	lease.Spec.AcquireTime, lease.Spec.RenewTime = new(metav1.NewMicroTime(after.since)), new(metav1.NewMicroTime(after.last))
	lease.Spec.HolderIdentity = &r.Identity
	if missing {
		err = r.Client.Create(ctx, lease)
	} else {
		err = r.Client.Update(ctx, lease)
	}
	// AlreadyExists, Conflict: another processor was faster, or the answer to our own write was lost.
	// NotFound: the Lease has been deleted since.
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && !missing {
		return observation{}, errRaced
	}
	if err != nil {
		return observation{}, fmt.Errorf("noting the sweep for absent nodes: %w", err)
	}
	return observationIn(lease), nil // with the precision of the Lease, as the next sweep reads it
}

func observationIn(lease *coordinationv1.Lease) observation {
	if lease.Spec.AcquireTime == nil || lease.Spec.RenewTime == nil {
		return observation{}
	}
	return observation{since: lease.Spec.AcquireTime.Time, last: lease.Spec.RenewTime.Time}
}
