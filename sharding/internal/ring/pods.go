package ring

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

const (
	// podPeriod is the interval at which the pod of a new shard is read until it is ready.
	podPeriod = time.Second
	// maxPodReads bounds the reads in one reconcile, and with it the load while many shards start.
	maxPodReads = 10
	// maxUnready bounds how long a shard whose pod is not ready waits for its first objects.
	maxUnready = 10 * time.Minute
)

// podSeen is what was last read of the pod of a new shard.
type podSeen struct {
	// asked is when the pod was last read, and unready when it was last not known to be ready.
	asked, unready time.Time
	isReady        bool
}

// awaitPods marks new shards whose pods are not ready, and restarts their settle time. A Deployment
// deletes an old pod as soon as a new one is ready, so the join and the leave then make one change
// of the table. It returns the delay until the next read, or zero if there is none.
func (c *Controller) awaitPods(ctx context.Context, ring *v1alpha1.ClusterRing, shards []Shard, now time.Time) (pause time.Duration) {
	members := assigned(ring.Status.Table).Shards
	joining := newShards(ring, members, shards)
	seen := c.podsOf(ring.Name, joining, now)
	atOnce := isAnyLost(members, shards)
	slices.SortStableFunc(joining, func(a, b *Shard) int { return seen[a.Name].asked.Compare(seen[b.Name].asked) })
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	reads := 0
	for _, s := range joining {
		pod, mayWait := seen[s.Name], now.Sub(s.Joined) <= maxUnready
		if !pod.isReady && mayWait && reads < maxPodReads && (atOnce || now.Sub(pod.asked) >= podPeriod) {
			reads++
			c.readPod(ctx, ring, s, pod, now)
		}
		if s.Unready = !pod.isReady && mayWait; s.Unready {
			pause = podPeriod
		}
		if pod.unready.After(s.Joined) {
			s.Joined = pod.unready
		}
	}
	return pause
}

// newShards returns the shards that wait until they may take slots from others.
func newShards(ring *v1alpha1.ClusterRing, members []string, shards []Shard) (joining []*Shard) {
	if len(members) == 0 || settleOf(ring) == 0 {
		return nil
	}
	for i := range shards {
		s := &shards[i]
		if _, isMember := slices.BinarySearch(members, s.Name); s.State == Ready && !isMember {
			joining = append(joining, s)
		}
	}
	return joining
}

// podsOf returns what was seen of the pods of new shards, and forgets the others. Before the first
// read, a pod counts as not ready: the process may have just become the leader.
func (c *Controller) podsOf(ring string, joining []*Shard, now time.Time) map[string]*podSeen {
	c.mu.Lock()
	defer c.mu.Unlock()
	after := map[string]*podSeen{}
	for _, s := range joining {
		if after[s.Name] = c.pods[ring][s.Name]; after[s.Name] == nil {
			after[s.Name] = &podSeen{unready: now}
		}
	}
	c.pods[ring] = after
	return after
}

// readPod reads the pod of a shard. A shard without a pod of its name, or whose pod the sharder may
// not read, does not wait for it.
func (c *Controller) readPod(ctx context.Context, ring *v1alpha1.ClusterRing, s *Shard, seen *podSeen, now time.Time) {
	isFirst := seen.asked.IsZero()
	seen.asked = now
	pod, err := c.Pods.Pods(s.Lease.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	log := logf.FromContext(ctx).WithValues("ring", ring.Name, "shard", s.Name)
	switch {
	case apierrors.IsNotFound(err):
		seen.isReady = true
	case apierrors.IsForbidden(err):
		seen.isReady = true
		log.Info("Not waiting until the pod of a new shard is ready: this needs the right to get pods", "error", err.Error())
	case err == nil && isPodReady(pod):
		seen.isReady = true
	default:
		seen.unready = now
		if isFirst {
			log.Info("Waiting until the pod of a new shard is ready")
		}
	}
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}
