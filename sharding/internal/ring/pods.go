package ring

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

const (
	// podPeriod is the interval at which the pod of a joining shard is read until it is ready.
	podPeriod = time.Second
	// maxUnready bounds how long a shard whose pod is not ready waits for its first objects.
	maxUnready = 10 * time.Minute
)

// podSeen is what was last read of the pod of a joining shard.
type podSeen struct {
	asked, unready time.Time
	isReady        bool
}

// awaitPods marks the new shards whose pods are not ready, as if they had just joined. A Deployment
// ends an old pod as soon as a new one is ready, and a join and a leave within the settle time make
// one change. awaitPods returns the delay until the next look, or zero if there is none.
func (c *Controller) awaitPods(ctx context.Context, ring *v1alpha1.ClusterRing, shards []Shard, now time.Time) (pause time.Duration) {
	members, before := assigned(ring.Status.Table).Shards, c.podsSeen(ring.Name)
	isAnyLost, after := isAnyLost(members, shards), map[string]podSeen{}
	for i := range shards {
		s := &shards[i]
		_, isMember := slices.BinarySearch(members, s.Name)
		if s.State != Ready || isMember || len(members) == 0 || settleOf(ring) == 0 || now.Sub(s.Joined) > maxUnready {
			continue
		}
		seen := before[s.Name]
		if !seen.isReady && (isAnyLost || now.Sub(seen.asked) >= podPeriod) {
			seen.asked, seen.isReady = now, c.isPodReady(ctx, s)
			if !seen.isReady {
				seen.unready = now
			}
		}
		if seen.unready.After(s.Joined) {
			s.Joined = seen.unready
		}
		if s.Unready = !seen.isReady; s.Unready {
			pause = podPeriod
		}
		after[s.Name] = seen
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[ring.Name] = after
	return pause
}

func (c *Controller) podsSeen(ring string) map[string]podSeen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[ring]
}

// isPodReady reports whether the pod of a shard is ready. A shard without a pod of its name, or whose
// pod cannot be read, does not wait for it.
func (c *Controller) isPodReady(ctx context.Context, s *Shard) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	pod, err := c.Pods.Pods(s.Lease.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return true
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(one corev1.PodCondition) bool {
		return one.Type == corev1.PodReady && one.Status == corev1.ConditionTrue
	})
}
