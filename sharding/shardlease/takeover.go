package shardlease

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// TakeOver makes somebody else the holder of a Lease whose shard is silent, conditional on its
// resourceVersion: from then on no renewal by the shard succeeds. The Lease lasts twice its duration
// then, so that a shard that was slow and not gone gets its place back when it has recovered. It
// returns a Conflict or NotFound of the API server if the Lease is not as it was seen.
func TakeOver(ctx context.Context, leases coordinationv1client.LeasesGetter, l *coordinationv1.Lease, holder string) error {
	now := time.Now()
	taken := l.DeepCopy()
	hold(taken, holder, max(2*Duration(l), time.Second), now)
	taken.Spec.AcquireTime = new(metav1.NewMicroTime(now))
	if _, err := leases.Leases(l.Namespace).Update(ctx, taken, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("taking over the Lease %q: %w", l.Name, err)
	}
	return nil
}

// Remove deletes the Lease of a dead shard, conditional on its uid and resourceVersion. It returns a
// Conflict or NotFound of the API server if the Lease is not as it was seen.
func Remove(ctx context.Context, leases coordinationv1client.LeasesGetter, l *coordinationv1.Lease) error {
	seen := &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}
	if err := leases.Leases(l.Namespace).Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: seen}); err != nil {
		return fmt.Errorf("deleting the Lease %q: %w", l.Name, err)
	}
	return nil
}
