package library

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// parent is a reconciler that creates a ConfigMap for each Secret once. It must never observe a
// Secret without its ConfigMap afterwards.
type parent struct {
	client client.Client

	mu sync.Mutex
	// has contains the Secrets with a ConfigMap, at any shard.
	has     map[string]bool
	missing []string
}

func (p *parent) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := p.client.Get(ctx, req.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: "of-" + req.Name}}
	err := p.client.Get(ctx, client.ObjectKeyFromObject(child), child)
	if !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	p.mu.Lock()
	if p.has[req.Name] {
		p.missing = append(p.missing, req.Name)
	}
	p.mu.Unlock()
	if err := controllerutil.SetControllerReference(secret, child, p.client.Scheme()); err != nil {
		return reconcile.Result{}, err
	}
	if err := p.client.Create(ctx, child); err != nil {
		return reconcile.Result{}, client.IgnoreAlreadyExists(err) // the cache will catch up
	}
	return reconcile.Result{}, nil
}

// TestNoObjectIsSeenWithoutItsChildren covers R29 (F3: upstream's sharder moves children while the
// old shard is still working on their owner) and step 5 of the protocol, with one cache for all
// namespaces and with one per namespace.
func TestNoObjectIsSeenWithoutItsChildren(t *testing.T) {
	t.Parallel()
	for name, perNamespace := range map[string]bool{"one cache": false, "a cache for each namespace": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.secrets(40)
			parents := map[string]*parent{}
			start := func(name string) *replica {
				var s setup
				if perNamespace {
					s.manager.Cache.DefaultNamespaces = map[string]cache.Config{c.namespace: {}, "default": {}}
				}
				if name == "web-0" {
					s.options.LeaveTimeout = patience // the other shards end with the test
				}
				s.controllers = func(r *replica) error {
					p := &parent{client: r.mgr.GetClient(), has: map[string]bool{}}
					for i := range 40 {
						p.has[fmt.Sprintf("s-%d", i)] = name != "web-0" // the first shard creates them
					}
					parents[name] = p
					return r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).
						WithOptions(controller.Options{MaxConcurrentReconciles: 5}).Complete(p)
				}
				return c.replica(name, s)
			}
			first := start("web-0")
			c.eventually(func(t *assert.CollectT) {
				list := &corev1.ConfigMapList{}
				require.NoError(t, c.List(c.t.Context(), list, client.InNamespace(c.namespace), client.MatchingLabels{prefix.ShardLabel(c.ring.Name): "web-0"}))
				assert.Len(t, list.Items, 40)
			}, "all have a child")
			start("web-1")
			c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "half of them move")
			first.stop()
			require.NoError(t, first.wait())
			start("web-2")
			c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-1", "web-2") }, "all have moved")
			for name, p := range parents {
				p.mu.Lock()
				assert.Empty(t, p.missing, name)
				p.mu.Unlock()
			}
		})
	}
}

// TestCachesReportTheirResourceVersion covers the basis of step 5: a cache of objects with a label
// reaches the resourceVersion of a write that sets the label exactly when it contains that object,
// even if other objects get the label at the same time.
func TestCachesReportTheirResourceVersion(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const label = "example.com/mine"
	all, err := cache.New(c.config, cache.Options{
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(labels.Set{label: "yes"})}},
	})
	require.NoError(t, err)
	go func() { _ = all.Start(t.Context()) }()
	informer, err := all.GetInformer(t.Context(), &corev1.ConfigMap{})
	require.NoError(t, err)
	shared, ok := informer.(toolscache.SharedIndexInformer)
	require.True(t, ok)
	var objects []*corev1.ConfigMap
	for i := range 50 {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: fmt.Sprintf("m-%d", i)}}
		require.NoError(t, c.Create(t.Context(), m))
		objects = append(objects, m)
	}
	var wg sync.WaitGroup
	for _, m := range objects {
		wg.Go(func() {
			if !assert.NoError(t, c.Patch(t.Context(), m, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+label+`":"yes"}}}`)))) {
				return
			}
			for deadline := time.Now().Add(patience); ; {
				order, err := resourceversion.CompareResourceVersion(shared.GetStore().LastStoreSyncResourceVersion(), m.ResourceVersion)
				if err == nil && order >= 0 {
					break
				}
				if !assert.True(t, time.Now().Before(deadline), "the cache never gets there") {
					return
				}
				time.Sleep(time.Millisecond)
			}
			assert.NoError(t, all.Get(t.Context(), client.ObjectKeyFromObject(m), &corev1.ConfigMap{}), m.Name)
		})
	}
	wg.Wait()
}

// TestWritesPerMove covers R28 by the audit log: a hand-over of an object with controlled resources
// costs three writes, a move from a dead shard two, and each child one more.
func TestWritesPerMove(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const n = 30
	c.secrets(n)
	journal := filepath.Join(t.TempDir(), "journal")
	c.example("web-0", journal)
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, "web-0")
		c.hasChecksums(t, n)
	}, "the first shard has all")
	before := c.writes()
	second := c.example("web-1", journal)
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "the second has its share")
	moved := c.names("web-1")
	handover := c.writes()
	for _, name := range moved {
		assert.Equal(t, 3, handover["secrets/"+name]-before["secrets/"+name], name)
		assert.Equal(t, 1, handover["configmaps/checksums-"+name]-before["configmaps/checksums-"+name], name)
	}
	for _, name := range c.names("web-0") {
		assert.Equal(t, before["secrets/"+name], handover["secrets/"+name], "%s stays", name)
	}
	require.NoError(t, second.Kill())
	c.patch(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "web-1"}}, `{"spec":{"leaseDurationSeconds":5}}`) // it is dead soon
	c.has(n)
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0") }, "the first has all again")
	death := c.writes()
	for _, name := range moved {
		assert.Equal(t, 2, death["secrets/"+name]-handover["secrets/"+name], name)
		assert.Equal(t, 1, death["configmaps/checksums-"+name]-handover["configmaps/checksums-"+name], name)
	}
}

// writes returns the number of successful writes of each object.
func (c *cluster) writes() map[string]int {
	c.t.Helper()
	all := map[string]int{}
	for _, w := range writes(c.t, c.namespace) {
		if w.ResponseStatus.Code < 300 && !strings.HasPrefix(w.UserAgent, "kube-") {
			all[w.ObjectRef.Resource+"/"+w.ObjectRef.Name]++
		}
	}
	return all
}
