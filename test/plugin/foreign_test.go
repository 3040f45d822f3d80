package plugin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/pages"
)

// configMap creates a ConfigMap of another program.
func (e *env) configMap(namespace, name string, data set) {
	e.t.Helper()
	require.NoError(e.t, e.client.Create(e.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}))
}

// ofKubeStateRS returns the data of a record of kube-state-rs.
func ofKubeStateRS(name string, own set) set {
	data := labels.Encode(own)
	data["node_name"], data["transaction_type"], data["last_store_resource_version"] = name, "deleted", "190"
	return data
}

// advised types the command that explain advises for a node.
func (e *env) advised(name string) string {
	e.t.Helper()
	var command string
	e.eventually(func(c *assert.CollectT) {
		_, advice, found := strings.Cut(e.must("explain", name), "nothing is saved or restored: ")
		require.True(c, found)
		_, command, found = strings.Cut(advice, "kubectl ")
		require.True(c, found)
	}, "explain advises what to do about %s", name)
	command, _, _ = strings.Cut(command, "\n")
	args := strings.Fields(command)
	if args[0] == "nodekeeper" {
		return e.must(args[1:]...)
	}
	out, err := e.Command(e.t.Context(), "kubectl", args...).CombinedOutput()
	require.NoError(e.t, err, "%s", out)
	return string(out)
}

// TestForeignConfigMapKeepsOnlyItsNodeWaiting and what explain, show, status and the event advise
// makes nodekeeper keep the node.
func TestForeignConfigMapKeepsOnlyItsNodeWaiting(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.configMap(e.metadata, "live-1", ofKubeStateRS("live-1", of("live-1", "r0")))
	e.configMap(e.metadata, "away-1", ofKubeStateRS("away-1", set{"rack": "r1", "example.com/team": "blue"}))
	e.configMap(e.metadata, "other-1", set{"owner": "us"})
	e.configMap(e.metadata, "settings", set{"owner": "us"})
	for _, name := range []string{"live-1", "other-1", "fine-1"} {
		e.create(name, of(name, "r1"))
	}
	e.start("watcher")
	e.start("processor")
	e.saved("fine-1", of("fine-1", "r1"))
	e.label("live-1", "r2")
	for name, owner := range map[string]string{"live-1": "kube-state-rs. To take over its labels: kubectl nodekeeper import --from kube-state-rs", "other-1": "another program"} {
		program, _, _ := strings.Cut(owner, ".")
		assert.Contains(t, e.must("show", name), "the ConfigMap belongs to "+program)
		e.eventually(func(c *assert.CollectT) {
			assert.Regexp(c, "Warning RecordUnreadable: Node "+name+" waits for its labels until .* belongs to "+owner, e.must("explain", name))
		}, "an event names what is in the way")
	}
	status := e.run("status")
	assert.Equal(t, 1, status.code)
	assert.Contains(t, status.stdout, "live-1: not a readable record: the ConfigMap belongs to kube-state-rs\n    take over its labels: kubectl nodekeeper import --from kube-state-rs\n")
	assert.Contains(t, status.stdout, "delete it: kubectl delete configmap other-1 -n "+e.metadata)
	assert.NotContains(t, status.stdout+e.must("list"), "settings", "there is no such node")
	assert.NotContains(t, status.stdout, "away-1", "there is no such node yet")
	assert.Contains(t, e.fails("forget", "other-1", "--yes", "--ignore-pending"), "kubectl delete configmap other-1")

	assert.Contains(t, e.must("import", "--from", "kube-state-rs", "--dry-run=server"), "node/away-1 imported (server dry run)")
	imported := e.advised("live-1")
	assert.Contains(t, imported, "node/away-1 imported\n")
	assert.Contains(t, imported, "node/live-1 not imported: ")
	assert.Contains(t, imported, "  not taken over: rack=r0\n")
	e.saved("live-1", of("live-1", "r2"))
	e.advised("other-1")
	e.saved("other-1", of("other-1", "r1"))
	e.create("away-1", nil)
	e.restored("away-1", set{"rack": "r1", "example.com/team": "blue"})
	e.eventually(func(c *assert.CollectT) { assert.Equal(c, 0, e.run("status").code) }, "all is well")
}

// TestTakeoverBeforeNodekeeperRuns: the usual order of a move. What cannot be read keeps only its
// node from being taken over.
func TestTakeoverBeforeNodekeeperRuns(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.configMap(e.metadata, "away-1", ofKubeStateRS("away-1", set{"rack": "r1"}))
	e.configMap(e.metadata, "bad-1", ofKubeStateRS("bad-1", set{"rack": "not a value"}))
	e.configMap(e.metadata, "live-1", ofKubeStateRS("live-1", set{"rack": "r1"}))
	e.configMap(e.transactions, txn.NodeHash("away-1")+".200", set{"node_name": "away-1", "transaction_type": "deleted", "last_store_resource_version": "200", "rack": "r2"})
	e.create("live-1", of("live-1", "r3"))
	r := e.run("import", "--from", "kube-state-rs")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, "ConfigMap "+e.metadata+"/bad-1: the labels that kube-state-rs has stored: ")
	assert.Contains(t, r.stderr, "1 transaction of kube-state-rs left in the queue")
	assert.Contains(t, r.stdout, "node/away-1 imported\n")
	assert.Contains(t, r.stdout, "node/live-1 not imported: the node is there, and keeps the labels that it has\n")
	assert.Equal(t, of("live-1", "r3"), e.record(t, "live-1").Labels)
	_, discard, found := strings.Cut(r.stderr, "kubectl nodekeeper discard ")
	require.True(t, found)
	discard, _, _ = strings.Cut(discard, "\n")
	e.must("discard", strings.TrimSpace(discard), "--yes")

	e.start("watcher")
	e.start("processor")
	e.create("away-1", nil)
	e.restored("away-1", set{"rack": "r2"})
	e.saved("live-1", of("live-1", "r3"))
	assert.Contains(t, e.fails("import", "--from", "kube-state-rs"), "bad-1")
	assert.Contains(t, e.refuses("import", "--from", "velero"), `unknown program "velero"`)
}

// TestTakeoverFromAFile reads what kubectl get has printed, into a cluster in which a node is there.
func TestTakeoverFromAFile(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.configMap(e.members, "away-1", ofKubeStateRS("away-1", set{"rack": "r1"}))
	e.configMap(e.members, "live-1", ofKubeStateRS("live-1", set{"rack": "r1"}))
	out, err := e.Command(t.Context(), "kubectl", "get", "configmaps", "-n", e.members, "-o", "yaml").Output()
	require.NoError(t, err)
	e.create("live-1", of("live-1", "r2"))
	assert.Equal(t, "node/away-1 imported\nnode/live-1 not imported: the node is there, and keeps the labels that it has\n  not taken over: rack=r1\n",
		e.must("import", "--from", "kube-state-rs", "-f", e.file(string(out))))
	assert.Equal(t, set{"rack": "r1"}, e.record(t, "away-1").Labels)
	assert.Nil(t, e.record(t, "live-1"), "a watcher records it")
}

// TestMoveFromKubeStateRS types the commands of the page.
func TestMoveFromKubeStateRS(t *testing.T) {
	t.Parallel()
	e := newEnvIn(t, ownPlane(t), "node-metadata-transactions", "node-metadata", ring.DefaultNamespace)
	e.configMap(e.metadata, "away-1", ofKubeStateRS("away-1", set{"rack": "r1"}))
	e.configMap(e.metadata, "live-1", ofKubeStateRS("live-1", set{"rack": "r1"}))
	e.create("live-1", set{"rack": "r2", "last_store_resource_version": "190"})
	dir := t.TempDir()
	for _, name := range []string{"watcher", "processor"} {
		out, code := e.Shell(dir, "", "kubectl create deployment -n default kube-state-rs-"+name+" --image=kube-state-rs-"+name)
		require.Zero(t, code, out)
	}
	page, err := pages.Read("docs/how-to/move-from-kube-state-rs.md")
	require.NoError(t, err)
	var typed strings.Builder
	for _, step := range page.Steps {
		out, code := e.Shell(dir, "", step.Script)
		require.Zero(t, code, "%s: %s", step.Script, out)
		typed.WriteString(step.Script + "\n" + out)
	}
	assert.Contains(t, typed.String(), "\nkubectl nodekeeper import --from kube-state-rs\nnode/away-1 imported\nnode/live-1 not imported: ")
	backup, err := os.ReadFile(filepath.Join(dir, "kube-state-rs.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(backup), "transaction_type: deleted")

	e.start("watcher")
	e.start("processor")
	e.saved("live-1", set{"rack": "r2"})
	e.create("away-1", nil)
	e.restored("away-1", set{"rack": "r1"})
	assert.Zero(t, e.run("status").code)
	assert.Contains(t, e.must("import", "--from", "kube-state-rs", "-f", filepath.Join(dir, "kube-state-rs.yaml"), "--overwrite"), "node/away-1 not imported: ")
}
