package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/processor/protection"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/test/controlplane"
)

// ownCluster skips the test on a foreign cluster, because it affects every node.
func (e *env) ownCluster() {
	e.t.Helper()
	if e.plane == nil {
		e.t.Skip("concerns every node, so it needs a cluster of its own: unset E2E_KUBECONFIG")
	}
}

// protected waits until a node has the finalizer.
func (e *env) protected(name string) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		assert.Contains(c, e.node(c, name).Finalizers, protection.Finalizer)
	}, "node %s has the finalizer", name)
}

// gone waits until the node no longer exists.
func (e *env) gone(name string) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		err := e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, &corev1.Node{})
		assert.True(c, apierrors.IsNotFound(err), "%v", err)
	}, "node %s is gone", name)
}

func TestProtectedNodesLoseNothingWithEveryServiceDown(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	watcher, processors := e.watcher(), e.processor("--protect=finalizer")
	edited, fresh := e.name("edited"), e.name("fresh")
	e.create(edited, labelSet{"rack": "r1"})
	e.saved(edited, labelSet{"rack": "r1"})
	require.NoError(t, watcher.Kill())
	e.create(fresh, labelSet{"rack": "r2"}) // no watcher ever sees it
	e.protected(edited)
	e.protected(fresh)
	require.NoError(t, processors.Kill())

	e.set(edited, "rack", "r3")
	for _, name := range []string{edited, fresh} {
		e.delete(name)
		require.NotNil(t, e.node(t, name).DeletionTimestamp, "the deletion waits")
		e.set(name, "late", "yes")
	}

	e.watcher()
	e.processor("--protect=finalizer")
	for name, want := range map[string]labelSet{edited: {"rack": "r3", "late": "yes"}, fresh: {"rack": "r2", "late": "yes"}} {
		e.gone(name)
		e.saved(name, want)
		e.create(name, nil)
		e.restored(name, want)
	}
	e.unprotect()
	e.settle()
}

// unprotect removes the protection of the test's nodes when the test ends.
func (e *env) unprotect() {
	e.t.Helper()
	for _, p := range e.running("processor") {
		e.stop(p)
	}
	for name := range e.nodes {
		err := e.patchFinalizers(name, `"$deleteFromPrimitiveList/finalizers":["`+protection.Finalizer+`"]`)
		require.NoError(e.t, client.IgnoreNotFound(err))
	}
	e.processor()
}

// patchFinalizers changes the finalizers of a Node with a strategic merge patch.
func (e *env) patchFinalizers(name, change string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return e.client.Patch(e.t.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(`{"metadata":{`+change+`}}`)))
}

func TestProtectionIsTurnedOffWithOneCommand(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	manual, err := os.ReadFile("../../docs/how-to/protect-nodes.md")
	require.NoError(t, err)
	require.Contains(t, string(manual), protection.UnprotectCommand)
	stopped := e.processor("--protect=finalizer")
	names := e.names(3)
	for _, name := range names {
		e.create(name, labelSet{"rack": "r1"})
		e.protected(name)
	}
	require.NoError(t, e.patchFinalizers(names[0], `"finalizers":["example.com/theirs"]`))
	e.stop(stopped)
	e.delete(names[1])

	after := e.processor()
	e.eventually(func(c *assert.CollectT) {
		assert.Len(c, loggedMessages(after, "Found protected nodes: their deletion waits for a processor with --protect=finalizer"), 1)
	}, "a processor that protects no nodes says that there are some")
	e.stop(after)
	e.kubectl("sh", "-c", protection.UnprotectCommand)

	assert.Equal(t, []string{"example.com/theirs"}, e.node(t, names[0]).Finalizers)
	e.gone(names[1])
	assert.Empty(t, e.node(t, names[2]).Finalizers)
	require.NoError(t, e.patchFinalizers(names[0], `"finalizers":null`))
}

func TestPolicyProtectsNodesWithoutTheServices(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	controlplane.NeedMutatingPolicies(t, e.kubeconfig)
	policy, err := filepath.Abs("../../deploy/protection/policy.yaml")
	require.NoError(t, err)
	e.kubectl("kubectl", "apply", "-f", policy)
	t.Cleanup(func() {
		e.kubectl("kubectl", "delete", "-f", policy)
		e.newNodesHave(nil) // otherwise the nodes of the cluster's next test wait for a processor
	})
	e.newNodesHave([]string{protection.Finalizer})
	name := e.name("node")
	e.create(name, labelSet{"rack": "r1"})
	e.set(name, "rack", "r2")
	e.delete(name)
	require.NotNil(t, e.node(t, name).DeletionTimestamp)

	e.processor("--protect=finalizer")
	e.gone(name)
	e.saved(name, labelSet{"rack": "r2"})
}

// newNodesHave waits until every new Node gets these finalizers: the API server enforces a changed
// policy about a second after the write.
func (e *env) newNodesHave(finalizers []string) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		probe := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.name("probe")}}
		assert.NoError(c, e.client.Create(context.WithoutCancel(e.t.Context()), probe, client.DryRunAll))
		assert.Equal(c, finalizers, probe.Finalizers)
	}, "new nodes have the finalizers %v", finalizers)
}

// kubectl runs a command that calls kubectl, as a cluster operator does.
func (e *env) kubectl(name string, args ...string) {
	e.t.Helper()
	controlplane.NeedKubectl(e.t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.t.Context()), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfig)
	output, err := cmd.CombinedOutput()
	require.NoError(e.t, err, "%s", output)
	e.t.Logf("%s", output)
}

// TestWatcherReportsADeletionThatWaits for the finalizer while no processor removes it, after one
// to two minutes. The event has the command that lets the Node go.
func TestWatcherReportsADeletionThatWaits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	e.ready(e.watcher())
	name := e.name("waits")
	e.create(name, labelSet{"rack": "r1"})
	require.NoError(t, e.patchFinalizers(name, `"finalizers":["`+protection.Finalizer+`"]`))
	uid := e.node(t, name).UID
	e.delete(name)
	require.Empty(t, e.warning(t, uid, reasons.DeletionWaits), "it may wait for a moment")

	_, command, found := strings.Cut(e.warned(uid, reasons.DeletionWaits), "Without one: ")
	require.True(t, found, "the event has the command")
	require.NotNil(t, e.node(t, name).DeletionTimestamp)
	e.kubectl("sh", "-c", command)
	e.gone(name)
}
