package plugin_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/ring"
)

// TestRolesAreEnough runs every command as a user who is only in the viewers' or the editors'
// group.
func TestRolesAreEnough(t *testing.T) {
	t.Parallel()
	e := newEnvIn(t, ownPlane(t), "node-metadata-transactions", "node-metadata", ring.DefaultNamespace)
	e.install(filepath.Join("..", "..", "deploy", "users"))
	e.enforcePolicies()
	w, p := e.start("watcher"), e.start("processor")
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		e.create(name, of(name, "r1"))
		e.saved(name, of(name, "r1"))
	}
	e.remove("node-2")
	e.remove("node-3")
	e.stop(w)
	e.label("node-1", "r5")
	records := filepath.Join(t.TempDir(), "records.yaml")
	require.NoError(t, os.WriteFile(records, []byte(e.must("export")), 0o600))

	e.become("viewer", "nodekeeper:viewers")
	for _, args := range [][]string{
		{"list"},
		{"show", "node-1"},
		{"pending"},
		{"pending", "node-1"},
		{"export"},
		{"save", "node-1", "--dry-run=client"},
		{"restore", "node-1", "--dry-run=client"},
		{"forget", "node-2", "--dry-run=client"},
		{"set", "node-2", "a=b", "--dry-run=client"},
		{"prune", "--older-than=0s", "--dry-run=client"},
		{"import", records, "--dry-run=client"},
		{"__complete", "show", ""},
		{"__complete", "discard", ""},
	} {
		e.must(args...)
	}
	status := e.run("status")
	assert.Empty(t, status.stderr)
	assert.Regexp(t, `^Status: +unwell: no ready watcher\n`, status.stdout)
	e.watchOnce()
	e.readPage()
	for _, args := range [][]string{
		{"save", "node-1"}, {"forget", "node-2", "--yes"}, {"set", "node-2", "a=b"}, {"prune", "--older-than=0s", "--yes"},
	} {
		assert.Contains(t, e.fails(args...), "nodekeeper-editor", "the needed right is named")
	}

	e.become("editor", "nodekeeper:editors")
	editor := e.Kubeconfig
	for _, args := range [][]string{
		{"save", "node-1"},
		{"save", "--all", "--dry-run=server"},
		{"restore", "node-1"},
		{"set", "node-2", "a=b"},
		{"forget", "node-2", "--yes"},
		{"prune", "--older-than=0s", "--yes"},
		{"import", records, "--overwrite"},
	} {
		e.must(args...)
	}
	e.stop(p)
	e.Kubeconfig = e.plane.Kubeconfig
	e.start("watcher")
	e.Kubeconfig = editor
	e.label("node-1", "r2")
	e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queued(c), 1) }, "the change is recorded")
	e.must("retry", "node-1")
	for len(e.queued(t)) > 0 {
		e.must("discard", e.shortNameOfOldest("node-1"), "--yes")
	}
}

// watchOnce runs the watch commands until they are watching.
func (e *env) watchOnce() {
	e.t.Helper()
	for _, args := range [][]string{{"watch"}, {"pending", "--watch"}} {
		out := &lineBuffer{}
		cmd := e.Command(e.t.Context(), "kubectl", append([]string{"nodekeeper"}, args...)...)
		cmd.Stdout, cmd.Stderr = out, out
		require.NoError(e.t, cmd.Start())
		e.eventually(func(c *assert.CollectT) { assert.Contains(c, out.String(), "Watching") }, "%v: %s", args, out)
		require.NoError(e.t, cmd.Process.Signal(os.Interrupt))
		require.NoError(e.t, cmd.Wait(), out.String())
		assert.NotContains(e.t, out.String(), "forbidden")
	}
}

// install applies the manifests of a directory.
func (e *env) install(dir string) {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), "kubectl", "kustomize", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	rendered, err := cmd.Output()
	require.NoError(e.t, err, stderr.String())
	e.apply(rendered)
}

// apply applies manifests.
func (e *env) apply(manifests []byte) {
	e.t.Helper()
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(e.t, err)
		require.NoError(e.t, e.client.Apply(e.t.Context(), client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("test")))
	}
}

// enforcePolicies applies the admission policies, and returns once a user who may write ConfigMaps
// is refused a write of nodekeeper's.
func (e *env) enforcePolicies() {
	e.t.Helper()
	policies, err := os.ReadFile(filepath.Join("..", "..", "deploy", "base", "admission.yaml"))
	require.NoError(e.t, err)
	e.apply(policies)
	require.NoError(e.t, e.client.Create(e.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test:forger"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "forger"}},
	}))
	cfg := rest.CopyConfig(e.plane.Config)
	cfg.Impersonate.UserName = "forger"
	forger, err := client.New(cfg, client.Options{})
	require.NoError(e.t, err)
	e.eventually(func(ct *assert.CollectT) {
		for _, namespace := range []string{e.transactions, e.metadata} {
			forged := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "forged", Annotations: map[string]string{"nodekeeper.dev/forgotten": "7"},
			}}
			assert.ErrorContains(ct, forger.Create(e.t.Context(), forged, client.DryRunAll), "labels.nodekeeper.dev")
		}
	}, "the admission policies are in force")
}
