package ring

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/shardlease"
)

// FieldManager is the field manager of the labels that the sharder sets on Leases and objects.
// Policies use it to distinguish the sharder's writes from those of other clients with the same
// user.
const FieldManager = "sharder"

// tidyTimeout bounds the time spent on the Leases of a ring per reconcile. Unfinished work
// continues with the next change or retry.
const tidyTimeout = 5 * time.Second

// tidy takes over the Leases of silent shards, deletes the Leases of dead shards after a minute,
// and then labels the other Leases with the state and the hand-over mode of their shards. Failures
// are logged and retried.
func (c *Controller) tidy(ctx context.Context, ring *v1alpha1.ClusterRing, shards []Shard, twins []shardlease.Seen) {
	for _, twin := range twins {
		if twin.State == shardlease.Orphaned {
			shards = append(shards, Shard{Name: twin.Lease.Name, State: Orphaned, Lease: twin.Lease})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, tidyTimeout)
	defer cancel()
	slices.SortStableFunc(shards, func(a, b Shard) int { return -compareBool(a.State == Uncertain, b.State == Uncertain) })
	for _, s := range shards {
		if ctx.Err() != nil {
			return
		}
		err := c.tidyOne(ctx, ring, s)
		if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue // the Lease has changed or is gone: an event follows
		}
		logf.FromContext(ctx).Error(err, "Tidying the Lease of a shard failed", "ring", ring.Name, "shard", s.Name)
	}
}

func (c *Controller) tidyOne(ctx context.Context, ring *v1alpha1.ClusterRing, s Shard) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if s.Lease == nil {
		return nil // the Lease was deleted
	}
	prefix := c.Observer.PrefixOf(ring)
	l, log := s.Lease, logf.FromContext(ctx).WithValues("ring", ring.Name, "shard", s.Name)
	switch s.State {
	case Uncertain:
		if err := shardlease.TakeOver(ctx, c.Observer.Leases, l, holderFor(prefix)); err != nil {
			return err
		}
		log.Info("Took over the Lease of a silent shard")
		c.Recorder.Eventf(ring, LeaseOf(ring, s.Name), corev1.EventTypeWarning, "ShardDead", "TakeOver",
			"shard %s has not renewed its Lease for twice its duration: its objects go to other shards", s.Name)
		return nil
	case Orphaned:
		if err := shardlease.Remove(ctx, c.Observer.Leases, l); err != nil {
			return err
		}
		log.Info("Deleted the Lease of a dead shard")
		return nil
	case Ready, Leaving, Expired, Dead:
	}
	return c.label(ctx, l, labelsOf(s, ring, prefix))
}

// LeaseOf returns a reference to the Lease of a shard, for events. Events of one reason about one ring
// are merged unless they are related to different objects. The namespace is empty if it can be any.
func LeaseOf(ring *v1alpha1.ClusterRing, shard string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: scope(ring.Spec.Shards.Namespace), Name: shard,
	}
}

// labelsOf returns the labels that the sharder keeps on the Lease of a shard. An empty value means
// that the label must be missing.
func labelsOf(s Shard, ring *v1alpha1.ClusterRing, prefix v1alpha1.Prefix) map[string]string {
	return map[string]string{prefix.StateLabel(): string(s.State), prefix.HandoverLabel(): handoverOf(ring)}
}

// hasLabels reports whether a Lease has the given labels. An empty value means that the label must
// be missing.
func hasLabels(l *coordinationv1.Lease, labels map[string]string) bool {
	for key, value := range labels {
		if l.Labels[key] != value {
			return false
		}
	}
	return true
}

// label sets labels of a Lease and removes the ones with empty values. It changes nothing else.
func (c *Controller) label(ctx context.Context, l *coordinationv1.Lease, labels map[string]string) error {
	if hasLabels(l, labels) {
		return nil
	}
	values := map[string]*string{}
	for key, value := range labels {
		values[key] = nil
		if value != "" {
			values[key] = &value
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": values}})
	if err != nil {
		return fmt.Errorf("encoding the labels of Lease %q: %w", l.Name, err)
	}
	_, err = c.Observer.Leases.Leases(l.Namespace).Patch(ctx, l.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("labelling the Lease %q: %w", l.Name, err)
	}
	return nil
}
