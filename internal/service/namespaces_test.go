package service_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/test/controlplane"
)

// deleteNamespace deletes a namespace, and does what the namespace controller does.
func deleteNamespace(t *testing.T, name string) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(api.Config)
	require.NoError(t, err)
	namespaces := clients.CoreV1().Namespaces()
	require.NoError(t, namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}))
	ns, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	ns.Spec.Finalizers = nil
	_, err = namespaces.Finalize(t.Context(), ns, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// unlessTerminating repeats a request as long as the answer is that the namespace is being
// terminated, and returns the first other answer. The admission plugin NamespaceLifecycle knows
// namespaces from a cache.
func unlessTerminating(t *testing.T, request func() error) (err error) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		err = request()
		assert.False(c, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), "%v", err)
	}, patience, 10*time.Millisecond)
	return err
}

// connectAs creates a service as a user, and returns its manager and the address of its probes.
func connectAs(t *testing.T, u *user, transactions, records string) (manager.Manager, *program) {
	t.Helper()
	p := &program{address: freeAddress(t)}
	mgr, err := service.New(t.Context(), service.Config{Program: "watcher", Options: &service.Options{
		Options:              daemon.Options{Kubeconfig: u.kubeconfig, MetricsBindAddress: "0", HealthProbeBindAddress: p.address},
		TransactionNamespace: transactions, MetadataNamespace: records, MembershipNamespace: records,
	}})
	require.NoError(t, err)
	return mgr, p
}

func configMap(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "test-"}}
}

func TestDeletedNamespaceIsCreatedAgain(t *testing.T) {
	c, u := newClient(t), newUser(t)
	transactions, records := controlplane.Namespace(t, c), controlplane.Namespace(t, c)
	u.grant(t, append(daemon.Permissions("", "namespaces", "", "get", "create"), daemon.Permissions("", "configmaps", "", "create")...)...)
	u.grant(t, daemon.Permissions("coordination.k8s.io", "leases", "", "create")...)
	as, p := connectAs(t, u, transactions, records)
	for name, create := range map[string]func() error{
		"records": func() error { return as.GetClient().Create(t.Context(), configMap(records)) },
		"Leases of the members, which have a client of their own": func() error {
			leases, err := coordinationv1client.NewForConfigAndClient(as.GetConfig(), as.GetHTTPClient())
			require.NoError(t, err)
			_, err = leases.Leases(records).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
			return err
		},
	} {
		require.NoError(t, unlessTerminating(t, create), name)
		deleteNamespace(t, records)
		err := unlessTerminating(t, create)
		require.True(t, apierrors.IsNotFound(err), "%s: the caller decides again: %v", name, err)
		require.NoError(t, unlessTerminating(t, create), name)
	}
	p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "[+]namespaces: ok") // it is not started
}

func TestServiceThatMayNotCreateNamespacesIsNotReadyWithoutThem(t *testing.T) {
	c, u := newClient(t), newUser(t)
	transactions, records := controlplane.Namespace(t, c), controlplane.Namespace(t, c)
	u.grant(t, append(daemon.Permissions("", "namespaces", "", "get"), daemon.Permissions("", "configmaps", "", "create")...)...)
	as, p := connectAs(t, u, transactions, records)
	p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "[+]namespaces: ok")
	deleteNamespace(t, transactions)
	err := unlessTerminating(t, func() error { return as.GetClient().Create(t.Context(), configMap(transactions)) })
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "[-]namespaces: namespace "+transactions+" is missing: run kubectl create namespace "+transactions)

	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: transactions}}))
	p.awaitProbe(t, "/readyz", http.StatusInternalServerError, "[+]namespaces: ok")
	assert.NoError(t, c.Get(t.Context(), types.NamespacedName{Name: transactions}, &corev1.Namespace{}))
}
