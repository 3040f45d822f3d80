package shardlease

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// TakeOver makes holder the holder of a silent shard's Lease, conditional on the resourceVersion of
// l. After it succeeds, no renewal by the shard succeeds. The Lease is then valid for twice its
// duration; a shard that was slow but not gone can acquire it again after that. TakeOver returns a
// Conflict or NotFound of the API server if the Lease has changed.
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

// Remove deletes the Lease of a dead shard, conditional on the UID and resourceVersion of l. It
// returns a Conflict or NotFound of the API server if the Lease has changed.
func Remove(ctx context.Context, leases coordinationv1client.LeasesGetter, l *coordinationv1.Lease) error {
	seen := &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}
	if err := leases.Leases(l.Namespace).Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: seen}); err != nil {
		return fmt.Errorf("deleting the Lease %q: %w", l.Name, err)
	}
	return nil
}
