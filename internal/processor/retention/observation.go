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

// LeaseName is the name of the Lease in the metadata namespace that says since when processors look
// for absent nodes.
const LeaseName = "nodekeeper-retention"

// observation is the time in which somebody looked without a gap. The zero value: nobody has
// looked.
type observation struct{ since, last time.Time }

// at returns the observation after a look at now: it goes on unless the latest look is further from
// now than maxGap. A look that seems to come from the future is just as far: one of the two clocks
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

// absent returns for how long at least a node has been away, given since when that is noted.
func (o observation) absent(since, now time.Time) time.Duration {
	if since.Before(o.since) {
		since = o.since
	}
	return now.Sub(since)
}

// errRaced says that another processor has noted its look at the same moment.
var errRaced = errors.New("another processor looked at the same moment")

// look notes in the Lease that this process looks now, and returns since when somebody has looked
// without a gap.
func (r *Retention) look(ctx context.Context, now time.Time) (observation, error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Records.Namespace, Name: LeaseName}}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}, lease)
	if client.IgnoreNotFound(err) != nil {
		return observation{}, fmt.Errorf("reading since when there was no gap: %w", err)
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
	// AlreadyExists, Conflict: or the answer to our own write was lost. NotFound: somebody deleted
	// it since.
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && !missing {
		return observation{}, errRaced
	}
	if err != nil {
		return observation{}, fmt.Errorf("noting the look for absent nodes: %w", err)
	}
	return observationIn(lease), nil // to the microsecond, as the next one reads it
}

func observationIn(lease *coordinationv1.Lease) observation {
	if lease.Spec.AcquireTime == nil || lease.Spec.RenewTime == nil {
		return observation{}
	}
	return observation{since: lease.Spec.AcquireTime.Time, last: lease.Spec.RenewTime.Time}
}
