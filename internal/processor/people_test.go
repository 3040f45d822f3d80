package processor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// refuseRestores makes the API server reject every update that sets the marker of the node, until
// stop is called.
func (c *cluster) refuseRestores(t *testing.T, node string) (stop func()) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: node}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				ResourceNames: []string{node},
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "!('" + labels.Marker + "' in object.metadata.?labels.orValue({}))",
				Message:    "restores are forbidden by the owner of this cluster",
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: node, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	require.NoError(t, c.Create(t.Context(), policy))
	require.NoError(t, c.Create(t.Context(), binding))
	stop = func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, client.IgnoreNotFound(c.Delete(ctx, binding)))
		assert.NoError(t, client.IgnoreNotFound(c.Delete(ctx, policy)))
	}
	t.Cleanup(stop)
	require.Eventually(t, func() bool {
		body := `{"metadata":{"labels":{"` + labels.Marker + `":"1"}}}`
		return c.Patch(t.Context(), c.node(t, node), client.RawPatch(types.MergePatchType, []byte(body)), client.DryRunAll) != nil
	}, patience, tick, "the policy comes into effect")
	return stop
}

func TestRefusedRestoreIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, added := c.returned(t, set{"new": "n"}, lastLife)
	stop := c.refuseRestores(t, n.Name)
	c.put(t, added)
	c.process(t, setup{})
	note := c.waitEvent(t, metav1.NamespaceDefault, n.Name, "LabelsRestoreFailed")
	assert.Contains(t, note, "restores are forbidden by the owner of this cluster")
	assert.Equal(t, n.ResourceVersion, c.node(t, n.Name).ResourceVersion)
	left, err := c.queued(t.Context(), n.Name)
	require.NoError(t, err)
	assert.Equal(t, []string{added.Name()}, left, "a restore is owed until it is done")
	assert.False(t, preserve.Owned(*c.record(t, n.Name), n.UID, ""))

	stop()
	c.waitApplied(t, n.Name)
	assert.Equal(t, "r7", c.node(t, n.Name).Labels["rack"])
}

func TestUnreadableRecordIsWaitedForUntilItIsMended(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, added := c.returned(t, set{"new": "n"}, lastLife)
	cm := &corev1.ConfigMap{}
	key := types.NamespacedName{Namespace: c.records, Name: n.Name}
	require.NoError(t, c.Get(t.Context(), key, cm))
	cm.Data["rack"] = "no legal value"
	require.NoError(t, c.Update(t.Context(), cm))
	c.put(t, event(txn.Deleted, n.Name, lastLife.Source, "10", set{"rack": "r1"}), added)
	other := c.name("other")
	c.put(t, event(txn.Updated, other, "a", "9", set{"rack": "r1"}))
	c.process(t, setup{})

	note := c.waitEvent(t, c.records, n.Name, "RecordUnreadable")
	assert.Contains(t, note, "Node "+n.Name+" waits for its labels until this record is corrected or deleted")
	c.waitApplied(t, other)
	left, err := c.queued(t.Context(), n.Name)
	require.NoError(t, err)
	assert.Len(t, left, 2)
	after := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), key, after))
	assert.Equal(t, cm.ResourceVersion, after.ResourceVersion, "the record is left as it is")
	assert.Equal(t, n.ResourceVersion, c.node(t, n.Name).ResourceVersion)

	cm.Data["rack"] = "r8"
	require.NoError(t, c.Update(t.Context(), cm))
	c.waitApplied(t, n.Name)
	assert.Equal(t, "r1", c.node(t, n.Name).Labels["rack"], "the delete was applied first")
	assert.Equal(t, set{"rack": "r1"}, c.record(t, n.Name).Labels)
}

func TestDeletedUnreadableRecordIsRecreated(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	broken := record.Record{Node: node}.ConfigMap(c.records)
	require.NoError(t, c.Create(t.Context(), broken))
	c.put(t, event(txn.Deleted, node, "a", "9", set{"rack": "r1"}))
	c.process(t, setup{})
	c.waitEvent(t, c.records, node, "RecordUnreadable")
	require.NoError(t, c.Delete(t.Context(), broken))
	c.waitApplied(t, node)
	assert.Equal(t, set{"rack": "r1"}, c.record(t, node).Labels)
}
