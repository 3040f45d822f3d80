// Package helm_test compares the objects of the chart with those of the manifests, and installs,
// upgrades and uninstalls it in a real API server, as the command helm does. There are no
// controllers, so no pod starts and no namespace goes.
package helm_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/hack/helm"
	"nodekeeper.dev/hack/manifests"
	"nodekeeper.dev/test/controlplane"
)

const (
	name   = "nodekeeper"
	system = "nodekeeper-system"
)

var (
	deploy = filepath.Join("..", "..", "deploy")
	plane  *controlplane.ControlPlane
)

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) { plane = c }))
}

// TestTheLifeOfARelease is one story: a user who has installed the manifests moves to Helm,
// switches something on, uninstalls, and installs again.
func TestTheLifeOfARelease(t *testing.T) {
	c, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	h := &helmCommand{t: t, client: c, chart: load(t), name: name, namespace: system}
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "node-metadata", Name: "node-1"}}

	// By kustomize, with a record.
	tree, err := manifests.Load(deploy)
	require.NoError(t, err)
	objects, err := tree.Render(manifests.Kustomization("overlays/ha"))
	require.NoError(t, err)
	for _, obj := range objects {
		require.NoError(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("kubectl"), client.ForceOwnership))
	}
	require.NoError(t, c.Create(t.Context(), record))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.WithoutCancel(t.Context()), record)) })
	certificate := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "webhook-certificate"}}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(certificate), certificate))
	certificate.Data = map[string][]byte{"tls.crt": []byte("made by a webhook")}
	require.NoError(t, c.Update(t.Context(), certificate, client.FieldOwner("webhook")))

	// To Helm.
	values, err := helm.Values(filepath.Join(deploy, "chart", "nodekeeper", "values-ha.yaml"))
	require.NoError(t, err)
	require.ErrorContains(t, h.install(values, false), "ownership", "Helm takes nothing over unless it is told to")
	require.NoError(t, h.install(values, true))
	require.ErrorContains(t, h.upgrade(nil, false), "conflict", "fields that kubectl still owns, too, change only by force")
	require.NoError(t, h.upgrade(values, true))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(certificate), certificate))
	assert.Equal(t, "made by a webhook", string(certificate.Data["tls.crt"]), "what the webhooks write stays")
	assert.True(t, h.exists("apps/v1", "Deployment", system, "webhook"))

	// Switched off, a component goes with everything that it brought.
	require.NoError(t, h.upgrade(nil, true))
	for _, obj := range objects {
		if obj.GetName() == "webhook" || obj.GetName() == "nodekeeper-webhook" {
			assert.False(t, h.exists(obj.GetAPIVersion(), obj.GetKind(), obj.GetNamespace(), obj.GetName()), "%s %s", obj.GetKind(), obj.GetName())
		}
	}

	// Uninstalled, what was saved stays.
	require.NoError(t, h.uninstall())
	for _, obj := range objects {
		key := obj.GetKind() + " " + obj.GetName()
		assert.Equal(t, obj.GetKind() == "Namespace", h.exists(obj.GetAPIVersion(), obj.GetKind(), obj.GetNamespace(), obj.GetName()), key)
	}
	for _, namespace := range []string{system, "node-metadata", "node-metadata-transactions"} {
		ns := &corev1.Namespace{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: namespace}, ns))
		assert.Nil(t, ns.DeletionTimestamp, namespace)
	}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(record), record))

	// Again, without any special flag.
	require.NoError(t, h.install(nil, false))
	require.NoError(t, h.upgrade(values, false))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(record), record))
	assert.True(t, h.exists("apps/v1", "Deployment", system, "processor"))
	require.NoError(t, h.uninstall())
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := helm.Load(filepath.Join(deploy, "chart", "nodekeeper"))
	require.NoError(t, err)
	return c
}

// helmCommand does what the command helm does with its default flags.
type helmCommand struct {
	t      *testing.T
	client client.Client
	chart  *chart.Chart
	// name and namespace are those of the release.
	name, namespace string
}

func (h *helmCommand) config() *action.Configuration {
	h.t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = new(plane.Kubeconfig), new(h.namespace)
	config := action.NewConfiguration()
	require.NoError(h.t, config.Init(flags, h.namespace, "secret"))
	return config
}

func (h *helmCommand) install(values map[string]any, takeOwnership bool) error {
	run := action.NewInstall(h.config())
	run.ReleaseName, run.Namespace, run.CreateNamespace, run.TakeOwnership = h.name, h.namespace, true, takeOwnership
	run.WaitStrategy = kube.HookOnlyStrategy
	run.ForceConflicts = takeOwnership // kubectl owned the fields
	_, err := run.RunWithContext(h.t.Context(), h.chart, values)
	return err
}

func (h *helmCommand) upgrade(values map[string]any, force bool) error {
	run := action.NewUpgrade(h.config())
	run.Namespace, run.WaitStrategy = h.namespace, kube.HookOnlyStrategy
	run.ServerSideApply, run.ForceConflicts = "auto", force
	run.ResetValues = true // those of before do not stay
	_, err := run.RunWithContext(h.t.Context(), h.name, h.chart, values)
	return err
}

func (h *helmCommand) uninstall() error {
	run := action.NewUninstall(h.config())
	run.WaitStrategy, run.DeletionPropagation = kube.HookOnlyStrategy, "background"
	_, err := run.Run(h.name)
	return err
}

func (h *helmCommand) exists(apiVersion, kind, namespace, objectName string) bool {
	h.t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: namespace, Name: objectName}, obj)
	if !apierrors.IsNotFound(err) {
		require.NoError(h.t, err)
	}
	return err == nil
}
