package place_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/handover"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/sharding/slots"
)

// An invalid table counts as no table: users can edit the status.
func TestBrokenTableCountsAsNone(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]*v1alpha1.Table{
		"none":         nil,
		"short":        {Shards: []string{"a"}, Slots: []int32{0}},
		"out of range": {Shards: []string{"a"}, Slots: append(make([]int32, slots.Count-1), 1)},
		"negative":     {Shards: []string{"a"}, Slots: append(make([]int32, slots.Count-1), -1)},
	} {
		assert.Equal(t, handover.Place{}, place.TableOf(table).Of("k"), name)
	}
	table := place.TableOf(&v1alpha1.Table{Shards: []string{"a"}, Slots: make([]int32, slots.Count), Next: []int32{7}})
	assert.Equal(t, handover.Place{Now: "a", Next: "a"}, table.Of("k"), "the table replaces an invalid next")
	assert.Empty(t, table.Silent)
}

func TestShardsWithoutTheirSlotsInNextAreSilent(t *testing.T) {
	t.Parallel()
	next := make([]int32, slots.Count)
	for i := range next {
		next[i] = 1
	}
	table := place.TableOf(&v1alpha1.Table{Shards: []string{"a", "b"}, Slots: make([]int32, slots.Count), Next: next})
	assert.Equal(t, map[string]bool{"a": true}, table.Silent)
	assert.Equal(t, handover.Place{Now: "a", Next: "b"}, table.Of("k"))
}

func TestSelection(t *testing.T) {
	t.Parallel()
	standard, some, none := place.AllBut("kube-system"), place.Only("a"), place.Only()
	assert.True(t, standard.Has("a"))
	assert.False(t, standard.Has("kube-system"))
	assert.True(t, place.Selection{}.Has("kube-system"), "all")
	assert.True(t, some.Has("a"))
	assert.False(t, some.Has("b"))
	assert.False(t, none.Has("a"))
	for _, s := range []place.Selection{standard, some, none} {
		assert.True(t, s.Has(""), "cluster-scoped objects")
		same := s
		assert.True(t, s.Equal(same))
		assert.False(t, s.Leaves(same))
	}
	assert.False(t, none.Equal(place.Selection{}), "no namespaces are not all namespaces")
	assert.True(t, some.Leaves(none))
	assert.False(t, none.Leaves(some))
	assert.True(t, place.Selection{}.Leaves(standard))
	assert.True(t, some.Selects(v1alpha1.GroupResource{Resource: "namespaces"}, "", "a"))
	assert.False(t, some.Selects(v1alpha1.GroupResource{Resource: "namespaces"}, "", "b"), "a Namespace is selected by its own name")
	assert.True(t, some.Selects(v1alpha1.GroupResource{Resource: "nodes"}, "", "b"))
}

func TestSelectionOf(t *testing.T) {
	t.Parallel()
	var listed []string
	list := func(s labels.Selector) ([]string, error) {
		listed = append(listed, s.String())
		return []string{"a"}, nil
	}
	for name, tc := range map[string]struct {
		selector *metav1.LabelSelector
		want     place.Selection
	}{
		"unset":    {nil, place.AllBut("kube-system", "sharders")},
		"empty":    {&metav1.LabelSelector{}, place.Selection{}},
		"selector": {&metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}, place.Only("a")},
	} {
		got, err := place.SelectionOf(&v1alpha1.ClusterRing{Spec: v1alpha1.ClusterRingSpec{NamespaceSelector: tc.selector}}, "sharders", list)
		require.NoError(t, err, name)
		assert.True(t, tc.want.Equal(got), name)
	}
	assert.Equal(t, []string{"team=blue"}, listed)
	broken := &metav1.LabelSelector{MatchLabels: map[string]string{"!": "blue"}}
	_, err := place.SelectionOf(&v1alpha1.ClusterRing{Spec: v1alpha1.ClusterRingSpec{NamespaceSelector: broken}}, "sharders", list)
	require.ErrorContains(t, err, "namespace selector")
}

// TestKeys has the keys of R11, which the policies compute as well.
func TestKeys(t *testing.T) {
	t.Parallel()
	m := map[string]string{"team": "", "app": "web"}
	deployment := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	o := place.Main(deployment, "n", "x")
	byLabel := func(key string) v1alpha1.Resource { return v1alpha1.Resource{Key: v1alpha1.KeyLabel, KeyLabel: key} }
	assert.Equal(t, "apps/Deployment/n/x", place.Key(v1alpha1.Resource{Key: v1alpha1.KeyName}, m, o))
	assert.Equal(t, "n", place.Key(v1alpha1.Resource{Key: v1alpha1.KeyNamespace}, m, o))
	assert.Equal(t, "web", place.Key(byLabel("app"), m, o))
	assert.Empty(t, place.Key(byLabel("team"), m, o), "an empty value counts")
	assert.Equal(t, "apps/Deployment/n/x", place.Key(byLabel("missing"), m, o))
	o.Namespace = ""
	assert.Empty(t, place.Key(v1alpha1.Resource{Key: v1alpha1.KeyNamespace}, m, o))
}

func TestChildrenHaveTheKeyOfTheirController(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	ref := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"}
	assert.Equal(t, "apps/Deployment/n/x", place.Controller(kind, false, "n", ref).Key())
	assert.Equal(t, "apps/Deployment//x", place.Controller(kind, true, "n", ref).Key())

	pods := v1alpha1.GroupResource{Resource: "pods"}
	main := v1alpha1.Resource{ControlledResources: []v1alpha1.GroupResource{pods}}
	assert.True(t, place.Controls(main, kind, pods, ref))
	assert.False(t, place.Controls(main, kind, v1alpha1.GroupResource{Resource: "secrets"}, ref), "not a controlled resource")
	assert.False(t, place.Controls(main, schema.GroupKind{Kind: "Deployment"}, pods, ref), "another group")
	assert.False(t, place.Controls(main, kind, pods, &metav1.OwnerReference{APIVersion: "a/b/c", Kind: "Deployment"}))
}
