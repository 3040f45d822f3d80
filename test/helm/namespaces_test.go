package helm_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// named returns the values that name these namespaces.
func named(records, transactions string) map[string]any {
	return map[string]any{"namespaces": map[string]any{"records": records, "transactions": transactions}}
}

// byHand returns the same values for namespaces that people have created.
func byHand(records, transactions string) map[string]any {
	values := named(records, transactions)
	values["namespaces"].(map[string]any)["create"] = false
	return values
}

// put creates a ConfigMap with a label and returns a function that deletes it.
func (h *helmCommand) put(namespace, objectName, key, value string) (remove func()) {
	h.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objectName, Labels: map[string]string{key: value}}}
	require.NoError(h.t, h.client.Create(h.t.Context(), cm))
	remove = func() {
		assert.NoError(h.t, client.IgnoreNotFound(h.client.Delete(context.WithoutCancel(h.t.Context()), cm)))
	}
	h.t.Cleanup(remove)
	return remove
}

// template renders the chart as helm template does.
func (h *helmCommand) template(values map[string]any) error {
	run := action.NewInstall(h.config())
	run.ReleaseName, run.Namespace, run.DryRunStrategy, run.Replace = h.name, h.namespace, action.DryRunClient, true
	run.KubeVersion = &common.KubeVersion{Version: "v1.36.0", Major: "1", Minor: "36"}
	_, err := run.RunWithContext(h.t.Context(), h.chart, values)
	return err
}

// release returns the commands of a release of this name in a namespace of its own.
func release(t *testing.T, releaseName, namespace string) *helmCommand {
	t.Helper()
	c, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	return &helmCommand{t: t, client: c, chart: load(t), name: releaseName, namespace: namespace}
}

// TestRecordsAreNotLeftBehind: records and transactions stay in their namespaces, so the programs
// would start without them.
func TestRecordsAreNotLeftBehind(t *testing.T) {
	h := release(t, "left", "left-system")
	const moveThem = "Move to other namespaces"
	require.NoError(t, h.install(named("left-records", "left-transactions"), true))
	h.put("left-records", "istio-ca-root-cert", "istio.io/config", "true")
	require.NoError(t, h.upgrade(named("left-records", "left-other"), false), "nothing is saved yet")
	require.NoError(t, h.upgrade(named("left-records", "left-transactions"), false))

	require.ErrorContains(t, h.upgrade(named("left-transactions", "left-records"), false), "choose another name")
	require.ErrorContains(t, h.upgrade(named("left-transactions", "left-other"), false), "choose another name")

	removeTransaction := h.put("left-transactions", "transaction", "nodekeeper.dev/type", "added")
	require.ErrorContains(t, h.upgrade(named("left-records", "left-other"), false), "the namespace left-transactions has records or transactions")
	removeTransaction()
	removeRecord := h.put("left-records", "node-1", "app.kubernetes.io/managed-by", "nodekeeper")
	err := h.upgrade(named("left-other", "left-transactions"), false)
	require.ErrorContains(t, err, "the namespace left-records has records or transactions")
	require.ErrorContains(t, err, moveThem)
	require.NoError(t, h.template(named("left-other", "left-transactions")), "it renders without a cluster")
	require.NoError(t, h.upgrade(named("left-records", "left-other"), false), "no transaction is left behind")

	require.NoError(t, h.uninstall())
	require.ErrorContains(t, h.install(named("left-other", "left-transactions"), true), moveThem)
	beside := release(t, "beside", "beside-system")
	require.NoError(t, beside.install(named("beside-records", "beside-transactions"), true), "another release has its own")
	require.NoError(t, beside.uninstall())

	removeRecord()
	require.NoError(t, h.install(named("left-other", "left-transactions"), true), "they were moved")
	require.NoError(t, h.uninstall())
}

// TestNamespacesMadeByHandAreNotLeftBehind: Helm knows nothing of them, but the processors use them.
func TestNamespacesMadeByHandAreNotLeftBehind(t *testing.T) {
	h := release(t, "hand", "hand-system")
	for _, namespace := range []string{"hand-records", "hand-transactions", "hand-other", "hand-new"} {
		require.NoError(t, h.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	require.NoError(t, h.install(byHand("hand-records", "hand-transactions"), false))
	remove := h.put("hand-records", "node-1", "app.kubernetes.io/managed-by", "nodekeeper")
	require.ErrorContains(t, h.upgrade(byHand("hand-other", "hand-transactions"), false), "the namespace hand-records has records or transactions")
	require.NoError(t, h.upgrade(byHand("hand-records", "hand-other"), false))
	remove()
	require.NoError(t, h.upgrade(byHand("hand-new", "hand-transactions"), false))
	require.NoError(t, h.uninstall())
}
