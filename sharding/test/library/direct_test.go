package library

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestHandoverWithoutChildrenIsCompletedByTheShard covers R28 for objects without controlled
// resources, by the audit log: a hand-over costs two writes and leaves no work for the sharder or
// admission. It also covers R5 and R32: each shard has a Lease, there is no leader, and no two
// shards work on one object.
func TestHandoverWithoutChildrenIsCompletedByTheShard(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(r *v1alpha1.ClusterRing) { r.Spec.Resources[0].ControlledResources = nil })
	const n = 30
	c.secrets(n)
	at := &exclusive{}
	leaving := c.direct(at, "web-0")
	leaving.options.LeaveTimeout = patience
	first := c.replica("web-0", leaving)
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0") }, "the first shard has all")
	c.hears("web-0")
	before := c.writes()
	c.replica("web-1", c.direct(at, "web-1"))
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "the second has its share")
	after, moved := c.writes(), c.names("web-1")
	require.NotEmpty(t, moved)
	for _, name := range moved {
		assert.Equal(t, 2, after["secrets/"+name]-before["secrets/"+name], name)
	}
	leases := &coordinationv1.LeaseList{}
	require.NoError(t, c.List(t.Context(), leases, client.InNamespace(c.namespace)))
	require.Len(t, leases.Items, 2)
	for _, l := range leases.Items {
		assert.Equal(t, l.Name, *l.Spec.HolderIdentity)
	}

	first.stop()
	require.NoError(t, first.wait())
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, "web-1")
		assert.Equal(t, n, at.worked("web-1"), "it has worked on each")
	}, "the second has all")
	assert.Empty(t, at.shared(), "objects on which two shards worked at once")
	c.hasCompleted(t, "web-0", n)
}

// direct sets up a replica that reconciles Secrets without children and includes its name in the
// audit log.
func (c *cluster) direct(at *exclusive, name string) setup {
	s := with(&work{do: func(ctx context.Context, req reconcile.Request) error { return at.work(ctx, name, req.Name) }})
	s.config = rest.CopyConfig(c.config)
	s.config.UserAgent = name
	s.options.Kinds, s.options.LeaseDuration = []client.Object{&corev1.Secret{}}, longLease
	return s
}

// hears waits until a shard has observed, on renewing its Lease, that it may complete hand-overs.
func (c *cluster) hears(name string) {
	c.t.Helper()
	var told *metav1.MicroTime
	c.eventually(func(t *assert.CollectT) {
		l := &coordinationv1.Lease{}
		require.NoError(t, c.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, l))
		require.Equal(t, v1alpha1.HandoverDirect, l.Labels[prefix.HandoverLabel()])
		if told == nil {
			told = l.Spec.RenewTime
		}
		assert.True(t, told.Before(l.Spec.RenewTime))
	}, "it may complete hand-overs")
}

// hasCompleted asserts that a shard has assigned n Secrets to web-1 itself, each conditional on the
// version that it observed.
func (c *cluster) hasCompleted(t *testing.T, shard string, n int) {
	t.Helper()
	given := map[string]bool{}
	for _, w := range writes(t, c.namespace) {
		if w.UserAgent != shard || w.ObjectRef.Resource != "secrets" {
			continue
		}
		var patch metav1.PartialObjectMetadata
		require.NoError(t, json.Unmarshal(w.RequestObject, &patch))
		assert.Equal(t, "web-1", patch.Labels[prefix.ShardLabel(c.ring.Name)], "%s", w.RequestObject)
		assert.NotEmpty(t, patch.ResourceVersion)
		assert.NotEmpty(t, patch.UID)
		given[w.ObjectRef.Name] = true
	}
	assert.Len(t, given, n)
}

// exclusive records which shard works on which object. The zero value is ready to use.
type exclusive struct {
	mu sync.Mutex
	// by records the shard that works on each object, and done the objects that each shard has
	// worked on.
	by       map[string]string
	done     map[string]map[string]bool
	breaches []string
}

// work works on an object for a while.
func (e *exclusive) work(ctx context.Context, shard, name string) error {
	e.mu.Lock()
	if e.by == nil {
		e.by, e.done = map[string]string{}, map[string]map[string]bool{}
	}
	if other := e.by[name]; other != "" {
		e.breaches = append(e.breaches, fmt.Sprintf("%s by %s and %s", name, other, shard))
	}
	if e.by[name] = shard; e.done[shard] == nil {
		e.done[shard] = map[string]bool{}
	}
	e.done[shard][name] = true
	e.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.by, name)
	return nil
}

// worked returns the number of objects that a shard has worked on.
func (e *exclusive) worked(shard string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.done[shard])
}

func (e *exclusive) shared() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.breaches
}
