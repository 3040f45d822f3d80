package plugin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

const (
	worker = "node-role.kubernetes.io/worker"
	tenant = "node-restriction.kubernetes.io/tenant"
)

// register creates a Node as a kubelet does: with the status of the machine in the same request.
func (e *env) register(name, systemUUID string) {
	e.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeInfo.SystemUUID = systemUUID
	require.NoError(e.t, e.client.Create(e.t.Context(), n, client.FieldOwner("kubelet")))
}

// trust registers a machine, sets labels as a person does, saves the node and deletes it.
func (e *env) trust(name, systemUUID string, labels set) {
	e.t.Helper()
	e.register(name, systemUUID)
	e.relabel(name, labels)
	e.must("save", name)
	e.delete(name)
}

func (e *env) relabel(name string, labels set) {
	e.t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	require.NoError(e.t, err)
	require.NoError(e.t, e.client.Patch(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		client.RawPatch(types.MergePatchType, body), client.FieldOwner("kubectl-label")))
}

// obey ends the refusals of [env.refuse].
func (e *env) obey() {
	e.t.Helper()
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: e.metadata + "-policy"}}
	require.NoError(e.t, e.client.Delete(e.t.Context(), binding))
}

// withholds creates a record that follows machine b, and withholds labels that were saved from
// machine a.
func (e *env) withholds(name string) {
	e.t.Helper()
	e.trust(name, "a", set{"rack": "r1", worker: ""})
	e.register(name, "b")
	e.must("restore", name, "--ignore-missing-end")
	e.relabel(name, set{tenant: "b"})
	e.must("save", name)
	r := e.record(e.t, name)
	require.Len(e.t, r.Withheld, 1)
	require.Equal(e.t, set{worker: ""}, r.Withheld[0].Labels)
}

// TestLateEndLosesNothingThatIsAboutToBePutBack temporarily rejects the restore of the machine that
// returned. Meanwhile a watcher records the end of the previous node.
func TestLateEndLosesNothingThatIsAboutToBePutBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.withholds("node-1")
	e.relabel("node-1", set{"rack": "r2"})
	end := txn.Of(txn.Deleted, viewed(e.live("node-1"))) // a watcher has seen it and not stored it yet
	e.delete("node-1")
	e.refuse("node-1", "no racks today")
	e.register("node-1", "a")
	require.NoError(t, e.queue().Put(t.Context(), txn.Of(txn.Added, viewed(e.live("node-1")))))
	e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, "node-1").WaitsFor(e.live("node-1").UID)) }, "it is about to be put back")

	require.NoError(t, e.queue().Put(t.Context(), end))
	e.eventually(func(c *assert.CollectT) { assert.Equal(c, "r2", e.record(c, "node-1").Labels["rack"]) }, "the end is saved")
	assert.Contains(t, e.record(t, "node-1").All(), worker, "the label of machine a is not lost")
	e.obey()
	e.settled()
	own, _ := e.node(t, "node-1")
	assert.Equal(t, set{"rack": "r2", worker: ""}, own)
}

// TestLateEndGivesNoLabelsToAnotherMachine is similar, but machine a leaves again and b has
// returned when the end of b's former incarnation is recorded.
func TestLateEndGivesNoLabelsToAnotherMachine(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.withholds("node-1")
	e.relabel("node-1", set{"rack": "r2"})
	end := txn.Of(txn.Deleted, viewed(e.live("node-1")))
	e.delete("node-1")
	e.refuse("node-1", "no racks today")
	e.register("node-1", "a")
	require.NoError(t, e.queue().Put(t.Context(), txn.Of(txn.Added, viewed(e.live("node-1")))))
	e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, "node-1").WaitsFor(e.live("node-1").UID)) }, "a is about to get its label")
	e.delete("node-1")
	e.settled()
	e.register("node-1", "b")
	require.NoError(t, e.queue().Put(t.Context(), txn.Of(txn.Added, viewed(e.live("node-1")))))
	e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, "node-1").WaitsFor(e.live("node-1").UID)) }, "b is about to get its label")

	require.NoError(t, e.queue().Put(t.Context(), end))
	e.eventually(func(c *assert.CollectT) { assert.Equal(c, "r2", e.record(c, "node-1").Labels["rack"]) }, "the end is saved")
	e.delete("node-1")
	e.settled()
	e.obey()
	e.register("node-1", "a")
	e.must("restore", "node-1", "--ignore-missing-end")
	own, _ := e.node(t, "node-1")
	assert.Equal(t, set{"rack": "r2", worker: ""}, own, "tenant is of machine b")
}

// exportedWith returns an export of a node as if from another cluster, with one replacement.
func (e *env) exportedWith(name, old, replacement string) string {
	e.t.Helper()
	text := e.must("export", name)
	require.Contains(e.t, text, old)
	text = strings.ReplaceAll(text, old, replacement)
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "nodekeeper.dev/exported-from") {
			line = "    nodekeeper.dev/exported-from: another-cluster\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// TestImportReplacesWithheldLabelsOfOtherValues checks that labels with the same keys and other
// values are stored.
func TestImportReplacesWithheldLabelsOfOtherValues(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.trust("node-1", "a", set{"rack": "r1", tenant: "blue"})
	e.must("set", "node-1", "more=x", "--ignore-missing-end")
	require.Equal(t, set{tenant: "blue"}, e.record(t, "node-1").Withheld[0].Labels)
	printed := e.must("import", e.file(e.exportedWith("node-1", `"blue"`, `"red"`)), "--overwrite")
	assert.NotContains(t, printed, "unchanged")
	assert.Equal(t, "red", e.record(t, "node-1").All()[tenant])
}

// TestImportReplacesTheMachineOfWithheldLabels has a machine with a new board. A person changes its
// identity in the file.
func TestImportReplacesTheMachineOfWithheldLabels(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.trust("node-1", "old-board", set{"rack": "r1", tenant: "blue"})
	e.must("set", "node-1", "more=x", "--ignore-missing-end")
	printed := e.must("import", e.file(e.exportedWith("node-1", "old-board", "new-board")), "--overwrite")
	assert.NotContains(t, printed, "unchanged")
	assert.Equal(t, "new-board", e.record(t, "node-1").Withheld[0].Identity.SystemUUID)
}

// TestImportGivesRestrictedLabelsToTheName checks that imported labels count as set by hand, as
// documented, even if the record already has these labels from a machine.
func TestImportGivesRestrictedLabelsToTheName(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.trust("node-1", "a", set{"rack": "r1", worker: ""})
	printed := e.must("import", e.file(e.exportedWith("node-1", "r1", "r1")), "--overwrite")
	e.register("node-1", "b")
	e.must("restore", "node-1", "--ignore-missing-end")
	own, _ := e.node(t, "node-1")
	assert.Contains(t, own, worker, "import said: %s", printed)
}

// many returns restricted labels that exceed 32 KiB in total.
func many() set {
	all := set{"rack": "r1"}
	for i := range 100 {
		key := fmt.Sprintf("%s.%s.%s.node-restriction.kubernetes.io/%s-%03d", strings.Repeat("a", 63), strings.Repeat("b", 63), strings.Repeat("c", 63), strings.Repeat("n", 50), i)
		all[key] = strings.Repeat("v", 63)
	}
	return all
}

// TestSetOfAnotherLabelLosesNoRestrictedLabels checks that the labels are kept, or that the command
// fails.
func TestSetOfAnotherLabelLosesNoRestrictedLabels(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.trust("node-1", "a", many())
	before := len(e.record(t, "node-1").All())
	require.Equal(t, 101, before)
	r := e.run("set", "node-1", "more=x", "--ignore-missing-end")
	if r.code == 0 {
		assert.Len(t, e.record(t, "node-1").All(), before+1, "%s%s", r.stdout, r.stderr)
	}
}

// TestManyRestrictedLabelsAreNotForgottenInSilence covers a record without room for the labels to
// withhold.
func TestManyRestrictedLabelsAreNotForgottenInSilence(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.trust("node-1", "a", many())
	e.register("node-1", "b")
	e.must("restore", "node-1", "--ignore-missing-end")
	e.holds("node-1", set{"rack": "r1"})
	e.eventually(func(c *assert.CollectT) {
		var events corev1.EventList
		assert.NoError(c, e.client.List(t.Context(), &events))
		assert.True(c, slices.ContainsFunc(events.Items, func(event corev1.Event) bool {
			return event.InvolvedObject.UID == e.live("node-1").UID && event.Reason == "RestrictedLabelsDropped"
		}), "somebody hears of it")
	}, "an event")
}

func TestShowPrintsWhyLabelsWereRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.register("node-1", "a")
	e.relabel("node-1", set{"rack": "r1"})
	e.must("save", "node-1")
	refused := fmt.Sprintf(`[{"labels":{"pool":"a","team":"blue","tier":"gold"},"refusedForUID":%q}]`, e.live("node-1").UID)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": set{
		"nodekeeper.dev/withheld-labels": refused, "nodekeeper.dev/refusals": `{"pool":"immutable","team":"not allowed","tier":"not allowed"}`,
	}}})
	require.NoError(t, err)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: "node-1"}}
	require.NoError(t, e.client.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, body)))
	for _, command := range []string{"show", "explain"} {
		printed := e.must(command, "node-1")
		assert.Contains(t, printed, "1 label: refused by the API server: immutable; tried again when the node returns next\n  pool=a\n")
		assert.Contains(t, printed, "2 labels: refused by the API server: not allowed; tried again when the node returns next\n  team=blue\n  tier=gold\n")
	}
}
