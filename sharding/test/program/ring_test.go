package program

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestDefaultsOfARing covers a part of R1.
func TestDefaultsOfARing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.NamespaceSelector = nil
	s := c.create(ring).Spec
	assert.Equal(t, v1alpha1.KeyName, s.Resources[0].Key)
	assert.Equal(t, v1alpha1.AssignmentLabel, s.Assignment)
	assert.Equal(t, v1alpha1.FenceAudit, s.Fence)
	assert.Nil(t, s.NamespaceSelector)
	assert.Equal(t, v1alpha1.Handover{
		DrainTimeout: &metav1.Duration{Duration: time.Minute}, OnTimeout: v1alpha1.Wait, Settle: &metav1.Duration{Duration: 5 * time.Second}, MaxConcurrentMoves: 100,
	}, s.Handover)
}

// TestInvalidRingIsRefusedWithAMessage covers the rest of R1.
func TestInvalidRingIsRefusedWithAMessage(t *testing.T) {
	t.Parallel()
	of := func(resource string) v1alpha1.GroupResource { return v1alpha1.GroupResource{Resource: resource} }
	d := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, tc := range map[string]struct {
		change  func(r *v1alpha1.ClusterRing)
		message string
	}{
		"a long name":         {func(r *v1alpha1.ClusterRing) { r.Name = strings.Repeat("n", 64) }, "use at most 63 characters"},
		"no namespace":        {func(r *v1alpha1.ClusterRing) { r.Spec.Shards.Namespace = "" }, "spec.shards.namespace"},
		"no resources":        {func(r *v1alpha1.ClusterRing) { r.Spec.Resources = nil }, "spec.resources"},
		"a resource twice":    {func(r *v1alpha1.ClusterRing) { r.Spec.Resources = append(r.Spec.Resources, r.Spec.Resources[0]) }, "Duplicate value"},
		"no such key":         {func(r *v1alpha1.ClusterRing) { r.Spec.Resources[0].Key = "Uid" }, "Unsupported value"},
		"a key without label": {func(r *v1alpha1.ClusterRing) { r.Spec.Resources[0].Key = v1alpha1.KeyLabel }, "set keyLabel if and only if key is Label"},
		"a label without key": {func(r *v1alpha1.ClusterRing) { r.Spec.Resources[0].KeyLabel = "project" }, "set keyLabel if and only if key is Label"},
		"main and controlled": {func(r *v1alpha1.ClusterRing) {
			r.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{of("secrets")}
		}, "both a main resource and a controlled one"},
		"no drain timeout":         {func(r *v1alpha1.ClusterRing) { r.Spec.Handover.DrainTimeout = d(time.Millisecond) }, "must be at least 1s"},
		"a settle time of hours":   {func(r *v1alpha1.ClusterRing) { r.Spec.Handover.Settle = d(time.Hour) }, "from 0s to 10m"},
		"too many moves":           {func(r *v1alpha1.ClusterRing) { r.Spec.Handover.MaxConcurrentMoves = 1001 }, "1000"},
		"force without a fence":    {func(r *v1alpha1.ClusterRing) { r.Spec.Handover.OnTimeout = v1alpha1.Force }, "requires fence Deny"},
		"a fence without accounts": {func(r *v1alpha1.ClusterRing) { r.Spec.Fence = v1alpha1.FenceDeny }, "list their service accounts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			ring := c.ring("")
			tc.change(ring)
			err := c.Create(t.Context(), ring)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, tc.message)
		})
	}
}

// Otherwise the shards in the former namespace would lose objects that they are working on. For all
// namespaces, the label keys also differ.
func TestNamespaceOfShardsCannotBeChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.create(c.ring(""))
	for _, namespace := range []string{"elsewhere", "*"} {
		err := c.Patch(t.Context(), ring.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"shards":{"namespace":"`+namespace+`"}}}`)))
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		assert.ErrorContains(t, err, "create another ring")
	}
}

// Settings that depend on each other are accepted together.
func TestSettingsThatBelongTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts = []string{"web-operator"}
	ring.Spec.Fence, ring.Spec.Handover.OnTimeout = v1alpha1.FenceDeny, v1alpha1.Force
	ring.Spec.Handover.Settle = &metav1.Duration{}
	ring.Spec.Resources[0].Key, ring.Spec.Resources[0].KeyLabel = v1alpha1.KeyLabel, "example.com/project"
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.create(ring)
	assert.Zero(t, ring.Spec.Handover.Settle.Duration, "and is not the default")
	require.NoError(t, c.Delete(t.Context(), ring, client.Preconditions{UID: &ring.UID}))
}
