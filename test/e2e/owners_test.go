package e2e_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
)

// applyAs applies labels of a node server-side, as Argo CD, Flux and Terraform do.
func (e *env) applyAs(manager, name string, own labelSet, options ...client.PatchOption) error {
	e.t.Helper()
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"labels": own}})
	require.NoError(e.t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return e.client.Patch(e.t.Context(), node, client.RawPatch(types.ApplyPatchType, body), append(options, client.FieldOwner(manager))...)
}

// owners returns the managers of each label, annotation and of the taints of a node, with their
// operation.
func (e *env) owners(t require.TestingT, name string) map[string][]string {
	all := map[string][]string{}
	for _, entry := range e.node(t, name).ManagedFields {
		var fields struct {
			Metadata struct {
				Labels      map[string]any `json:"f:labels"`
				Annotations map[string]any `json:"f:annotations"`
			} `json:"f:metadata"`
			Spec map[string]any `json:"f:spec"`
		}
		require.NoError(t, json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields))
		for _, owned := range []map[string]any{fields.Metadata.Labels, fields.Metadata.Annotations, fields.Spec} {
			for key := range owned {
				all[key] = append(all[key], entry.Manager+" "+string(entry.Operation))
			}
		}
	}
	return all
}

func TestOwnersOfRestoredLabels(t *testing.T) {
	t.Parallel()
	for name, withWebhook := range map[string]bool{"processor": false, "webhook": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher(annotationsFlag, taintsFlag)
			e.processor(annotationsFlag, taintsFlag)
			if withWebhook {
				e.webhooks().run(annotationsFlag, taintsFlag)
			}
			node := e.name("node")
			e.createAs("kubelet", node, labelSet{"zone": "a"})
			require.NoError(t, e.applyAs("argocd-controller", node, labelSet{"example.com/team": "blue", "example.com/tier": "gold"}))
			require.NoError(t, e.applyAs("Terraform", node, labelSet{"example.com/tier": "gold"}))
			e.editAs("kubectl-label", node, labelSet{"rack": "r7"})
			body := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/owner":"storage"}}}`))
			require.NoError(t, e.client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, body, client.FieldOwner("kubectl-annotate")))
			e.taint(node, noSchedule("dedicated", "db"))
			want := labelSet{"example.com/team": "blue", "example.com/tier": "gold", "rack": "r7"}
			e.saved(node, union(want, labelSet{"zone": "a", "annotation:example.com/owner": "storage", "taint:dedicated:NoSchedule": "db"}))
			before := e.owners(t, node)
			for range 2 { // the second restore knows the owners from the first
				e.delete(node)
				if withWebhook {
					e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, node).Ended) }, "the end is on record")
					e.webhookKnows()
				}
				e.createAs("kubelet", node, labelSet{"zone": "b"})
				e.restored(node, union(want, labelSet{"zone": "b"}))
				e.eventually(func(c *assert.CollectT) {
					assert.Equal(c, []corev1.Taint{noSchedule("dedicated", "db")}, e.taintsOf(c, node))
					after := e.owners(c, node)
					for _, key := range []string{"f:example.com/team", "f:example.com/tier", "f:rack", "f:example.com/owner", "f:taints"} {
						assert.ElementsMatch(c, before[key], after[key], key)
					}
					assert.Len(c, after["f:"+labels.Marker], 1)
				}, "each label has its owners")
				e.drained(node)
			}
		})
	}
}

// A label leaves Git while the node is away, and another one afterwards.
func TestLabelThatLeavesGitLeavesTheNode(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	node := e.name("node")
	e.createAs("kubelet", node, nil)
	inGit := labelSet{"example.com/team": "blue", "example.com/tier": "gold", "example.com/pool": "a"}
	require.NoError(t, e.applyAs("kustomize-controller", node, inGit, client.ForceOwnership))
	e.saved(node, inGit)
	e.delete(node)
	delete(inGit, "example.com/pool")
	e.createAs("kubelet", node, nil)
	require.NoError(t, e.applyAs("kustomize-controller", node, inGit, client.ForceOwnership), "it applies while the labels are restored")
	e.restored(node, union(inGit, labelSet{"example.com/pool": "a"}))
	e.drained(node)
	require.NoError(t, e.applyAs("kustomize-controller", node, inGit, client.ForceOwnership))
	e.restored(node, inGit)
	delete(inGit, "example.com/tier")
	require.NoError(t, e.applyAs("kustomize-controller", node, inGit, client.ForceOwnership))
	e.restored(node, inGit)
	e.saved(node, inGit)
}

// Terraform applies without force, so another owner of a label is a conflict.
func TestTerraformChangesALabelAfterAReturn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	node := e.name("node")
	e.createAs("kubelet", node, nil)
	require.NoError(t, e.applyAs("Terraform", node, labelSet{"example.com/tier": "gold"}))
	e.saved(node, labelSet{"example.com/tier": "gold"})
	e.delete(node)
	e.createAs("kubelet", node, nil)
	e.restored(node, labelSet{"example.com/tier": "gold"})
	e.drained(node)
	require.NoError(t, e.applyAs("Terraform", node, labelSet{"example.com/tier": "silver"}))
	e.saved(node, labelSet{"example.com/tier": "silver"})
}

// A record of a release without owners: nodekeeper keeps the labels of the first return, and knows
// their owners from what the tool applies then.
func TestOwnersAreKnownAgainAfterAnUpgrade(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	node := e.name("node")
	inGit := labelSet{"example.com/team": "blue", "example.com/tier": "gold"}
	e.createAs("kubelet", node, nil)
	require.NoError(t, e.applyAs("argocd-controller", node, inGit, client.ForceOwnership))
	e.saved(node, inGit)
	for life := range 2 {
		e.delete(node)
		e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, node).Ended) }, "the end is on record")
		e.drained(node)
		if life == 0 {
			old := e.recordObject(t, node)
			delete(old.Annotations, "nodekeeper.dev/label-owners")
			require.NoError(t, e.client.Update(t.Context(), old))
		}
		e.createAs("kubelet", node, nil)
		e.restored(node, inGit)
		e.drained(node)
		require.NoError(t, e.applyAs("argocd-controller", node, inGit, client.ForceOwnership))
	}
	delete(inGit, "example.com/tier")
	require.NoError(t, e.applyAs("argocd-controller", node, inGit, client.ForceOwnership))
	e.restored(node, inGit)
	e.saved(node, inGit)
}

func TestValueThatAPersonHasGivenIsNotTheToolsAfterAReturn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	node := e.name("node")
	e.createAs("kubelet", node, nil)
	require.NoError(t, e.applyAs("Terraform", node, labelSet{"example.com/team": "blue"}))
	e.saved(node, labelSet{"example.com/team": "blue"})
	e.editAs("Go-http-client", node, labelSet{"example.com/team": "red"}) // no owner is known of it
	e.saved(node, labelSet{"example.com/team": "red"})
	e.delete(node)
	e.createAs("kubelet", node, nil)
	e.restored(node, labelSet{"example.com/team": "red"})
	e.drained(node)
	require.Error(t, e.applyAs("Terraform", node, labelSet{"example.com/team": "blue"}), "a conflict, as it was before")
}
