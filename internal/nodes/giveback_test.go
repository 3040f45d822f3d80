package nodes_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/owners"
)

const (
	applies = metav1.ManagedFieldsOperationApply
	updates = metav1.ManagedFieldsOperationUpdate
)

// processor returns Nodes that write as a processor does, with flags for annotations and taints.
func processor(t *testing.T) *nodes.Nodes {
	t.Helper()
	n := keeping(t, "example.com/*", "dedicated")
	config := rest.CopyConfig(api.Config)
	config.UserAgent = "nodekeeper-processor/v1"
	c, err := client.NewWithWatch(config, client.Options{})
	require.NoError(t, err)
	n.Client = c
	return n
}

// fieldsOf returns the fields of each manager and operation of a Node.
func fieldsOf(t *testing.T, n *nodes.Nodes, name string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for _, entry := range whole(t, n, name).ManagedFields {
		fields[entry.Manager+" "+string(entry.Operation)] = entry.FieldsV1.GetRawString()
	}
	return fields
}

// relabelled returns a Node after a restore of one label, annotation and taint.
func relabelled(t *testing.T, n *nodes.Nodes) *nodeview.Node {
	t.Helper()
	read := create(t, n, set{"own": "1"})
	read, err := n.Get(t.Context(), read.Name)
	require.NoError(t, err)
	restored, err := n.Relabel(t.Context(), read, to(set{
		"own": "1", "rack": "r7", "team": "blue", "annotation:example.com/owner": "a", "taint:dedicated:NoSchedule": "db", "labels_restored": "7",
	}), time.Now())
	require.NoError(t, err)
	return restored
}

var everyOwner = owners.Of([]owners.Owner{
	{Manager: "argocd-controller", Operation: applies, Keys: "rack"},
	{Manager: "kubectl-label", Operation: updates, Keys: "team"},
	{Manager: "kubectl-annotate", Operation: updates, Keys: "annotation:example.com/owner"},
	{Manager: "kubectl-taint", Operation: updates, Keys: "taint:dedicated:NoSchedule"},
})

func TestRestoredLabelsGoBackToTheirOwners(t *testing.T) {
	t.Parallel()
	n := processor(t)
	restored := relabelled(t, n)
	require.NoError(t, n.GiveBack(t.Context(), restored, everyOwner))
	left, err := n.Get(t.Context(), restored.Name)
	require.NoError(t, err)
	assert.Equal(t, restored.Labels, left.Labels)
	fields := fieldsOf(t, n, restored.Name)
	assert.JSONEq(t, `{"f:metadata":{"f:labels":{"f:rack":{}}}}`, fields["argocd-controller Apply"])
	assert.JSONEq(t, `{"f:metadata":{"f:labels":{"f:team":{}}}}`, fields["kubectl-label Update"])
	assert.JSONEq(t, `{"f:metadata":{"f:annotations":{"f:example.com/owner":{}}}}`, fields["kubectl-annotate Update"])
	assert.JSONEq(t, `{"f:spec":{"f:taints":{}}}`, fields["kubectl-taint Update"])
	assert.Contains(t, fields["nodekeeper-processor Update"], "f:labels_restored")
	for _, field := range []string{"f:rack", "f:team", "f:example.com/owner", "f:taints"} {
		assert.NotContains(t, fields["nodekeeper-processor Update"], field)
	}
	require.NoError(t, n.GiveBack(t.Context(), left, everyOwner))
	again, err := n.Get(t.Context(), restored.Name)
	require.NoError(t, err)
	assert.Equal(t, left.Revision, again.Revision, "there is nothing left to give back")

	// The tool that applied a label removes it, and changes another without a conflict.
	applied := func(own string) error {
		body := client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"labels":`+own+`}}`))
		return n.Client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: restored.Name}}, body, client.FieldOwner("argocd-controller"))
	}
	require.NoError(t, applied(`{"rack":"r8"}`))
	require.NoError(t, applied(`{"own":"1"}`))
	assert.NotContains(t, whole(t, n, restored.Name).Labels, "rack")
}

// That is why giving labels back takes a write of its own.
func TestOneWriteCannotGiveItsLabelsToOthers(t *testing.T) {
	t.Parallel()
	n := processor(t)
	read := create(t, n, set{"own": "1"})
	for name, operation := range map[string]metav1.ManagedFieldsOperationType{"argocd-controller": applies, "kubectl-label": updates} {
		now := metav1.Now()
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": set{name: "1"}, "managedFields": append(whole(t, n, read.Name).ManagedFields, metav1.ManagedFieldsEntry{
			Manager: name, Operation: operation, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:` + name + `":{}}}}`),
		})}})
		require.NoError(t, err)
		require.NoError(t, n.Client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: read.Name}}, client.RawPatch(types.MergePatchType, body)))
		fields := fieldsOf(t, n, read.Name)
		assert.Contains(t, fields["nodekeeper-processor Update"], "f:"+name)
		assert.NotContains(t, fields[name+" "+string(operation)], "f:"+name)
	}
}

// That is why a label whose owner is unknown stays nodekeeper's. The value may be a person's: a tool
// that applies another one without force must get a conflict.
func TestLabelWithoutAnOwnerIsTakenWithoutAConflict(t *testing.T) {
	t.Parallel()
	n := processor(t)
	restored := relabelled(t, n)
	apply := func() error {
		body := client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"labels":{"team":"red"}}}`))
		return n.Client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: restored.Name}}, body, client.FieldOwner("Terraform"))
	}
	require.NoError(t, n.GiveBack(t.Context(), restored, owners.Of([]owners.Owner{{Manager: "kubectl-label", Operation: updates, Keys: "rack"}})))
	require.True(t, apierrors.IsConflict(apply()), "nodekeeper keeps team")
	require.Equal(t, "blue", whole(t, n, restored.Name).Labels["team"])

	released := whole(t, n, restored.Name)
	released.ManagedFields = slices.DeleteFunc(released.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == owners.Processor })
	require.NoError(t, n.Client.Update(t.Context(), released))
	require.NoError(t, apply())
	assert.Equal(t, "red", whole(t, n, restored.Name).Labels["team"])
}

func TestGiveBackAmidOtherWrites(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		write       func(t *testing.T, n *nodes.Nodes, name string)
		wantPatches int
		wantFields  string // of kubectl-label
	}{
		"the status changes": {func(t *testing.T, n *nodes.Nodes, name string) {
			t.Helper()
			node := whole(t, n, name)
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			require.NoError(t, n.Client.Status().Update(t.Context(), node, client.FieldOwner("kubelet")))
		}, 2, `{"f:metadata":{"f:labels":{"f:team":{}}}}`},
		"a person changes the label": {func(t *testing.T, n *nodes.Nodes, name string) {
			t.Helper()
			edit(t, n, name, `{"team":"red"}`, "kubectl-edit")
		}, 2, ""},
		"a person changes another": {func(t *testing.T, n *nodes.Nodes, name string) {
			t.Helper()
			edit(t, n, name, `{"rack":"r9"}`, "kubectl-edit")
		}, 2, `{"f:metadata":{"f:labels":{"f:team":{}}}}`},
		"the owner writes": {func(t *testing.T, n *nodes.Nodes, name string) {
			t.Helper()
			edit(t, n, name, `{"tier":"gold"}`, "kubectl-label")
		}, 2, `{"f:metadata":{"f:labels":{"f:team":{},"f:tier":{}}}}`},
		"a manager comes whose entry is the last": {func(t *testing.T, n *nodes.Nodes, name string) {
			t.Helper()
			edit(t, n, name, `{"tier":"gold"}`, "rancher")
		}, 2, `{"f:metadata":{"f:labels":{"f:team":{}}}}`},
		"another record is restored": {func(t *testing.T, n *nodes.Nodes, name string) {
			t.Helper()
			edit(t, n, name, `{"team":"red","labels_restored":"8"}`, "nodekeeper-processor")
		}, 1, ""},
		"the node goes": {func(t *testing.T, n *nodes.Nodes, name string) {
			t.Helper()
			require.NoError(t, n.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := processor(t)
			restored := relabelled(t, n)
			patches, inner := 0, n.Client
			n.Client = interceptor.NewClient(inner.(client.WithWatch), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if patches++; patches == 1 {
						tc.write(t, &nodes.Nodes{Client: inner}, restored.Name)
					}
					return c.Patch(ctx, o, p, opts...)
				},
			})
			require.NoError(t, n.GiveBack(t.Context(), restored, owners.Of([]owners.Owner{
				{Manager: "kubectl-label", Operation: updates, Keys: "team"}, {Manager: "rancher", Operation: updates, Keys: "own,rack"},
			})))
			assert.Equal(t, tc.wantPatches, patches)
			n.Client = inner
			if name != "the node goes" {
				assert.Equal(t, tc.wantFields, fieldsOf(t, n, restored.Name)["kubectl-label Update"])
				assert.Len(t, fieldsOf(t, n, restored.Name), len(whole(t, n, restored.Name).ManagedFields), "no manager has two entries")
			}
		})
	}
}

func edit(t *testing.T, n *nodes.Nodes, name, own, manager string) {
	t.Helper()
	body := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":`+own+`}}`))
	require.NoError(t, n.Client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, body, client.FieldOwner(manager)))
}
