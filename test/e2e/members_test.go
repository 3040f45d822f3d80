package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/programs"
)

// TestMembershipNamespaceGoes deletes the namespace of the replicas' Leases while they run. They
// continue without a ring, create the namespace again and find each other in it.
func TestMembershipNamespaceGoes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	places := func(count int) {
		e.eventually(func(c *assert.CollectT) {
			all := &coordinationv1.LeaseList{}
			require.NoError(c, e.client.List(t.Context(), all, client.InNamespace(e.members)))
			assert.Len(c, all.Items, count)
		}, fmt.Sprintf("there are %d places", count))
	}
	for range 2 {
		e.watcher()
		e.processor()
	}
	places(4)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.members}}
	require.NoError(t, e.client.Delete(t.Context(), namespace))
	require.NoError(t, e.client.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(e.members)))
	require.NoError(t, e.client.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	namespace.Spec.Finalizers = nil // no controller runs that would remove them
	require.NoError(t, e.client.SubResource("finalize").Update(t.Context(), namespace))
	name, want := e.name("node"), labelSet{"rack": "r1"}
	e.create(name, want)
	e.saved(name, want)
	e.delete(name)
	e.create(name, nil)
	e.restored(name, want)
	places(4)
	e.settle()
}

// TestWatcherThatCannotRenewGoesOn refuses every write of a watcher for ten seconds. It renews its
// Lease every five. It must not start again: only its memory has what it has seen meanwhile.
func TestWatcherThatCannotRenewGoesOn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.needsProxy()
	e.processor()
	proxy, kubeconfig := e.faultProxy()
	w := e.start("watcher", kubeconfig)
	e.ready(w)
	name := e.name("node")
	e.create(name, labelSet{"team": "blue"})
	e.saved(name, labelSet{"team": "blue"})

	heal := proxy.Inject(forbids{writes})
	e.set(name, "team", "red")
	e.delete(name)
	e.eventually(func(c *assert.CollectT) {
		assert.NotEmpty(c, complaints(w, name))
		assert.Greater(c, time.Since(e.renewed(c, w)), 10*time.Second)
	}, "the end is seen and not stored, and the Lease is not renewed")
	status, _, err := w.Probe(t.Context(), "/healthz")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	heal()
	e.create(name, labelSet{})
	e.restored(name, labelSet{"team": "red"})
}

// writes reports whether a request changes something. The check of permissions is a POST, too.
func writes(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/authorization.k8s.io/")
}

// renewed returns when a watcher has renewed its Lease last.
func (e *env) renewed(t require.TestingT, w *programs.Program) time.Time {
	lease := &coordinationv1.Lease{}
	require.NoError(t, e.client.Get(e.t.Context(), client.ObjectKey{Namespace: e.members, Name: w.Identity}, lease))
	return lease.Spec.RenewTime.Time
}
