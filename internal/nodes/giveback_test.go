package nodes_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
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
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
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

// relabelled returns a Node after a restore of two labels, an annotation and a taint.
func relabelled(t *testing.T, n *nodes.Nodes) *nodeview.Node {
	t.Helper()
	return relabelledFrom(t, n, create(t, n, set{"own": "1"}).Name)
}

// relabelledFrom is like relabelled, of a Node that exists.
func relabelledFrom(t *testing.T, n *nodes.Nodes, name string) *nodeview.Node {
	t.Helper()
	read, err := n.Get(t.Context(), name)
	require.NoError(t, err)
	restored, err := n.Relabel(t.Context(), read, to(set{
		"own": "1", "rack": "r7", "team": "blue", "annotation:example.com/owner": "a", "taint:dedicated:NoSchedule": "db", "labels_restored": "7",
	}), time.Now())
	require.NoError(t, err)
	return restored
}

var everyOwner = fieldmanagers.Of([]fieldmanagers.Owner{
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

	// The tool that applied a label changes it without a conflict, and removes it.
	require.NoError(t, applyAs(t, n, "argocd-controller", restored.Name, `{"metadata":{"labels":{"rack":"r8"}}}`))
	require.NoError(t, applyAs(t, n, "argocd-controller", restored.Name, `{"metadata":{"labels":{"own":"1"}}}`))
	assert.NotContains(t, whole(t, n, restored.Name).Labels, "rack")
}

// A tool that applies the list of taints removes those of others with its next change, so it gets
// the list back only if there are no others.
func TestAppliedTaintsAndAnnotationsGoBackToTheirTools(t *testing.T) {
	t.Parallel()
	const (
		annotation = `{"metadata":{"annotations":{"example.com/owner":"a"}}}`
		taints     = `{"spec":{"taints":[{"key":"dedicated","value":"db","effect":"NoSchedule"}]}}`
		fields     = `{"f:metadata":{"f:annotations":{"f:example.com/owner":{}}}}`
		list       = `{"f:spec":{"f:taints":{}}}`
	)
	owned := fieldmanagers.Owner{Manager: "argocd-controller", Operation: applies, Keys: "annotation:example.com/owner"}
	tainted := fieldmanagers.Owner{Manager: "argocd-controller", Operation: applies, Keys: "taint:dedicated:NoSchedule"}
	for name, tc := range map[string]struct {
		others     []corev1.Taint // of the returned Node
		owner      fieldmanagers.Owner
		applied    string // by the tool, as before
		want       string // the tool's fields
		isConflict bool
	}{
		"annotation":                       {owner: owned, applied: annotation, want: fields},
		"annotation, and taints of others": {others: notReady, owner: owned, applied: annotation, want: fields},
		"taints":                           {owner: tainted, applied: taints, want: list},
		"taints, and others":               {others: notReady, owner: tainted, applied: taints, isConflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := processor(t)
			returned := whole(t, n, create(t, n, set{"own": "1"}).Name)
			require.Equal(t, notReady, returned.Spec.Taints, "the API server taints each new Node")
			returned.Spec.Taints = tc.others
			require.NoError(t, n.Client.Update(t.Context(), returned, client.FieldOwner("kube-controller-manager")))
			restored := relabelledFrom(t, n, returned.Name)
			require.NoError(t, n.GiveBack(t.Context(), restored, fieldmanagers.Of([]fieldmanagers.Owner{tc.owner})))
			got := fieldsOf(t, n, restored.Name)["argocd-controller Apply"]
			err := applyAs(t, n, "argocd-controller", restored.Name, tc.applied)
			assert.Equal(t, tc.isConflict, apierrors.IsConflict(err), "%v", err)
			if tc.isConflict {
				assert.Empty(t, got)
				assert.Len(t, whole(t, n, restored.Name).Spec.Taints, 2, "no taint is lost")
				return
			}
			require.NoError(t, err)
			assert.JSONEq(t, tc.want, got)
			require.NoError(t, applyAs(t, n, "argocd-controller", restored.Name, `{"metadata":{}}`))
			left := whole(t, n, restored.Name)
			assert.NotContains(t, fieldsOf(t, n, restored.Name), "argocd-controller Apply")
			assert.Equal(t, tc.want != fields, left.Annotations["example.com/owner"] != "")
			assert.Equal(t, tc.want != list, slices.ContainsFunc(left.Spec.Taints, isDedicated))
		})
	}
}

var notReady = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}

func isDedicated(taint corev1.Taint) bool { return taint.Key == "dedicated" }

// applyAs applies fields of a Node server-side, without force.
func applyAs(t *testing.T, n *nodes.Nodes, manager, name, fields string) error {
	t.Helper()
	body := client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Node",`+strings.TrimPrefix(fields, "{")))
	return n.Client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, body, client.FieldOwner(manager))
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
		return applyAs(t, n, "Terraform", restored.Name, `{"metadata":{"labels":{"team":"red"}}}`)
	}
	require.NoError(t, n.GiveBack(t.Context(), restored, fieldmanagers.Of([]fieldmanagers.Owner{{Manager: "kubectl-label", Operation: updates, Keys: "rack"}})))
	require.True(t, apierrors.IsConflict(apply()), "nodekeeper keeps team")
	require.Equal(t, "blue", whole(t, n, restored.Name).Labels["team"])

	released := whole(t, n, restored.Name)
	released.ManagedFields = slices.DeleteFunc(released.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == fieldmanagers.Processor })
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
			require.NoError(t, n.GiveBack(t.Context(), restored, fieldmanagers.Of([]fieldmanagers.Owner{
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
