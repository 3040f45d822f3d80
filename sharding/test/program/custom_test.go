package program

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// TestCustomResourceIsNamedLate covers R17: creates succeed throughout while a CRD is created,
// deleted and recreated, and after half a minute the objects are assigned.
func TestCustomResourceIsNamedLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.needPolicies()
	group := c.namespace + ".example.com"
	ring := c.ring("")
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Group: group, Resource: "websites"}})
	ring.Spec.Handover.Settle = &metav1.Duration{}
	c.create(ring)
	c.lease(ring, "web-0", 600, 0)
	waits := func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		admitted(t, s, metav1.ConditionFalse, "WaitingForResource")
	}
	c.eventually(ring, waits)
	for range 2 {
		crd := c.define(group, "Website")
		established := time.Now()
		c.eventually(ring, waits)
		require.Eventually(t, func() bool {
			site := object(group, "Website", c.namespace)
			require.NoError(t, unstructured.SetNestedField(site.Object, nil, "metadata", "labels")) // null is legal
			began := time.Now()
			err := c.Create(t.Context(), site)
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				established = began
				return false // not served yet
			}
			require.NoError(t, err, "%s after it was served", time.Since(established))
			if err := c.as("other", "").Update(t.Context(), site); !apierrors.IsConflict(err) { // the sharder has assigned it
				require.NoError(t, err)
			}
			return site.GetLabels()[prefix.ShardLabel(ring.Name)] == "web-0"
		}, 2*patience, 2*period)
		assert.Greater(t, time.Since(established), 25*time.Second)
		c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
			c.installed(t, s)
		})
		require.NoError(t, c.Delete(t.Context(), crd))
		require.EventuallyWithT(t, func(t *assert.CollectT) { // until then, it refuses objects of the next definition, too
			err := c.Create(c.t.Context(), object(group, "Website", c.namespace))
			assert.True(t, meta.IsNoMatchError(err) || apierrors.IsNotFound(err), "%v", err)
		}, patience, period, "the API server still serves it")
		c.eventually(ring, waits)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			policy := c.policies(t, ring)[0].(*admissionregistrationv1.MutatingAdmissionPolicy)
			assert.False(t, slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
				return slices.Contains(r.APIGroups, group)
			}))
		}, patience, period)
	}
}

// The cost limit of an expression is one million. A ring with 32 main resources that control 32
// resources each, and 256 shards, is well below that for the longest names.
func TestCostOfTheLargestRing(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.sharder("a")
	ring := c.ring("")
	part := func(i int) string { return fmt.Sprintf("%02d.%s.example.com", i, strings.Repeat("g", 40)) }
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	for i := range 31 {
		r := v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Group: part(i), Resource: "websites"}}
		for j := range 32 {
			r.ControlledResources = append(r.ControlledResources, v1alpha1.GroupResource{Group: part(j), Resource: "pages"})
		}
		ring.Spec.Resources = append(ring.Spec.Resources, r)
	}
	shards := make([]string, v1alpha1.MaxShards)
	for i := range shards {
		shards[i] = fmt.Sprintf("web-%03d-%s", i, strings.Repeat("s", 55))
	}
	ring.Spec.Handover.Settle = &metav1.Duration{}
	c.create(ring)
	for _, name := range shards {
		c.lease(ring, name, 600, 0)
	}
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) { assert.Len(t, shares(s, now), len(shards)) })
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring))
	label := prefix.ShardLabel(ring.Name)
	long := strings.Repeat("z", 253)
	reference := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: long, Controller: new(true)}
	want := placed(ring, slots.Object{Kind: "Secret", Namespace: c.namespace, Name: long}.Key())
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		s := secret(c.namespace, long)
		require.NoError(t, c.Create(c.t.Context(), s, client.DryRunAll))
		assert.Equal(t, want, s.Labels[label])
		o := child(c.namespace, reference)
		require.NoError(t, c.Create(c.t.Context(), o, client.DryRunAll))
		assert.Equal(t, want, o.Labels[label])
	}, patience, period)
	begun := time.Now()
	const n = 200
	for range n {
		require.NoError(t, c.Create(t.Context(), secret(c.namespace, long), client.DryRunAll))
	}
	t.Logf("a create takes %s", time.Since(begun)/n)
}

// define creates a namespaced custom resource definition.
func (c *cluster) define(group, kind string) client.Object {
	c.t.Helper()
	singular := strings.ToLower(kind)
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": singular + "s." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": singular + "s", "singular": singular, "kind": kind, "listKind": kind + "List"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	require.EventuallyWithT(c.t, func(t *assert.CollectT) { // an earlier one of that name may still be terminating
		require.NoError(t, c.Create(c.t.Context(), crd))
	}, patience, period)
	c.t.Cleanup(func() {
		assert.NoError(c.t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(c.t.Context()), crd)))
	})
	return crd
}

func object(group, kind, namespace string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	o.SetNamespace(namespace)
	o.SetName(fmt.Sprintf("site-%d", time.Now().UnixNano()))
	return o
}
