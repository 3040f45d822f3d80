package deploy_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/test/controlplane"
)

// gatePolicy is the path of the policy with which the API server itself gates every node.
var gatePolicy = filepath.Join(root, "gate", "policy.yaml")

var late = corev1.Taint{Key: "example.com/late", Value: "v", Effect: corev1.TaintEffectNoExecute}

// The node either returns and is restored, or it has no record.
func TestProcessorOpensTheGateUnderThePolicies(t *testing.T) {
	t.Parallel()
	for _, components := range [][]string{nil, {withTaints, withAnnotations}} {
		v := variant{base, components}
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := newStory(t, v)
			s.start("watcher")
			s.start("processor", "--save-delay=0")
			name, unknown, labels := "gated-"+rand.String(5), "new-"+rand.String(5), set{"rack": "r7"}
			s.create(name, labels)
			s.saved(name, labels)
			s.delete(name)
			for _, each := range []string{name, unknown} {
				node := nodeNamed(each)
				node.Labels = set{"own": "1", "labels_restored": "pending"}
				node.Spec.Taints = []corev1.Taint{nodeview.StartupTaint(), late}
				require.NoError(t, s.client.Create(t.Context(), node))
				s.opened(each)
				require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(node), node))
				assert.Contains(t, node.Spec.Taints, late)
			}
			s.restored(name, labels)
		})
	}
}

// Every Node is gated, whatever its contents, and a processor opens the gate.
func TestPolicyGatesEveryNodeThatIsCreated(t *testing.T) {
	t.Parallel()
	s := newStory(t, variant{base, nil})
	s.gateByPolicy()
	for name, node := range map[string]*corev1.Node{"bare": bareNode(), "full": fullNode(), "gated already": gatedNode()} {
		asked := node.DeepCopy()
		got := addNode(t, s.client, node)
		assert.Equal(t, "pending", got.Labels["labels_restored"], name)
		for key, value := range asked.Labels {
			assert.Equal(t, value, got.Labels[key], name)
		}
		assert.Subset(t, got.Spec.Taints, append(asked.Spec.Taints, nodeview.StartupTaint()), name)
		gates := slices.DeleteFunc(slices.Clone(got.Spec.Taints), func(one corev1.Taint) bool { return !nodeview.IsStartupTaint(one) })
		assert.Len(t, gates, 1, name)
	}
	never := nodeNamed(record.RootCAName)
	require.NoError(t, s.client.Create(t.Context(), never, client.DryRunAll))
	assert.False(t, slices.ContainsFunc(never.Spec.Taints, nodeview.IsStartupTaint), "it would stay for ever")

	s.start("watcher")
	s.start("processor", "--save-delay=0")
	name, labels := "by-policy-"+rand.String(5), set{"rack": "r7"}
	s.create(name, labels)
	s.opened(name)
	s.saved(name, labels)
	s.delete(name)
	node := nodeNamed(name)
	node.Spec.Taints = []corev1.Taint{late}
	require.NoError(t, s.client.Create(t.Context(), node))
	assert.Contains(t, node.Spec.Taints, nodeview.StartupTaint())
	s.restored(name, labels)
	s.opened(name)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	assert.Contains(t, node.Spec.Taints, late)
}

// gateByPolicy applies the policy for the duration of a test.
func (s *story) gateByPolicy() {
	s.t.Helper()
	controlplane.NeedMutatingPolicies(s.t, s.client.plane.Kubeconfig)
	gates := func(ctx context.Context, c *assert.CollectT) bool {
		node := bareNode()
		require.NoError(c, s.client.Create(ctx, node, client.DryRunAll))
		return slices.ContainsFunc(node.Spec.Taints, nodeview.IsStartupTaint)
	}
	for _, obj := range parse(s.t, gatePolicy) {
		require.NoError(s.t, apply(s.t, s.client, obj))
	}
	ctx := context.WithoutCancel(s.t.Context())
	gone := func(c *assert.CollectT) { assert.False(c, gates(ctx, c)) }
	s.t.Cleanup(func() {
		for _, obj := range parse(s.t, gatePolicy) {
			require.NoError(s.t, client.IgnoreNotFound(s.client.Delete(ctx, obj)))
		}
		require.EventuallyWithT(s.t, gone, patience, period, "the other tests go without")
	})
	s.eventually(func(c *assert.CollectT) { assert.True(c, gates(ctx, c)) }, "the policy is in force")
}
