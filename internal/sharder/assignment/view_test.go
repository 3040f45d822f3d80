package assignment

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/api/sharding/v1alpha1"
	"nodekeeper.dev/internal/sharder/handover"
	"nodekeeper.dev/sharding/slots"
)

// viewOf returns the view of a ring with these live shards, of which the silent ones are named, after a former view.
func viewOf(former *view, shards []string, silent ...string) *view {
	before := slots.Table{}
	if former != nil {
		before = tableOf(former)
	}
	now := before.With(shards)
	var heard []string
	for _, name := range now.Shards {
		isSilent := false
		for _, s := range silent {
			isSilent = isSilent || s == name
		}
		if !isSilent {
			heard = append(heard, name)
		}
	}
	next := now.With(heard)
	table := &v1alpha1.Table{Shards: now.Shards, Slots: make([]int32, slots.Count), Next: make([]int32, slots.Count)}
	for slot := range table.Slots {
		table.Slots[slot] = int32(now.Slots[slot])
		for i, name := range now.Shards {
			if name == next.Shards[next.Slots[slot]] {
				table.Next[slot] = int32(i)
			}
		}
	}
	return newView(&v1alpha1.ClusterRing{Status: v1alpha1.ClusterRingStatus{Table: table}}, nil, selection{})
}

func tableOf(v *view) slots.Table {
	t := slots.Table{Shards: v.ring.Status.Table.Shards}
	for _, i := range v.ring.Status.Table.Slots {
		t.Slots = append(t.Slots, int(i))
	}
	return t
}

// TestPassesAreOnlyForWhatNoWatchShows is R24: objects of shards that live.
func TestPassesAreOnlyForWhatNoWatchShows(t *testing.T) {
	t.Parallel()
	three := viewOf(nil, []string{"a", "b", "c"})
	silent := viewOf(three, []string{"a", "b", "c"}, "b")
	assert.True(t, three.needsPass(nil), "a new leader")
	assert.False(t, viewOf(three, []string{"a", "b", "c"}).needsPass(three), "nothing changes")
	assert.True(t, viewOf(three, []string{"a", "b", "c", "d"}).needsPass(three), "a shard joins")
	assert.False(t, viewOf(three, []string{"a", "c"}).needsPass(three), "a shard dies")
	assert.False(t, silent.needsPass(three), "a shard is silent")
	assert.True(t, three.needsPass(silent), "it is back: what was placed meanwhile moves to it")
	assert.False(t, viewOf(silent, []string{"a", "c"}).needsPass(silent), "it dies")

	leaving := viewOf(three, []string{"a", "c"})
	leaving.live["b"] = true
	assert.True(t, leaving.needsPass(three), "a shard leaves, and still has its objects")
	other := viewOf(three, []string{"a", "b", "c"})
	other.ring.Generation++
	assert.True(t, other.needsPass(three), "the spec changes")
	narrow := viewOf(three, []string{"a", "b", "c"})
	narrow.selection = selection{only: map[string]bool{"n": true}}
	assert.True(t, narrow.needsPass(three), "namespaces leave")
	assert.False(t, three.needsPass(narrow), "namespaces join: the watch shows their objects")
	three.ring.Spec.Resources = []v1alpha1.Resource{{ControlledResources: []v1alpha1.GroupResource{{Resource: "pods"}}}}
	assert.True(t, three.needsPass(narrow), "but not the children")
}

// TestBrokenTableIsNone: people can edit a status.
func TestBrokenTableIsNone(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]*v1alpha1.Table{
		"none":         nil,
		"short":        {Shards: []string{"a"}, Slots: []int32{0}},
		"out of range": {Shards: []string{"a"}, Slots: append(make([]int32, slots.Count-1), 1)},
		"negative":     {Shards: []string{"a"}, Slots: append(make([]int32, slots.Count-1), -1)},
	} {
		v := newView(&v1alpha1.ClusterRing{Status: v1alpha1.ClusterRingStatus{Table: table}}, []string{"b"}, selection{})
		assert.Equal(t, handover.Place{}, v.place("k"), name)
		assert.True(t, v.live["b"], name)
	}
	table := &v1alpha1.Table{Shards: []string{"a"}, Slots: make([]int32, slots.Count), Next: []int32{7}}
	v := newView(&v1alpha1.ClusterRing{Status: v1alpha1.ClusterRingStatus{Table: table}}, nil, selection{})
	assert.Equal(t, handover.Place{Now: "a", Next: "a"}, v.place("k"), "a broken next is the table")
}

func TestSelection(t *testing.T) {
	t.Parallel()
	standard := selection{but: map[string]bool{"kube-system": true}}
	some, none := selection{only: map[string]bool{"a": true}}, selection{only: map[string]bool{}}
	assert.True(t, standard.has("a"))
	assert.False(t, standard.has("kube-system"))
	assert.True(t, selection{}.has("kube-system"), "all")
	assert.True(t, some.has("a"))
	assert.False(t, some.has("b"))
	assert.False(t, none.has("a"))
	for _, s := range []selection{standard, some, none} {
		assert.True(t, s.has(""), "cluster-scoped objects")
		assert.True(t, s.equal(s))
		assert.False(t, s.leaves(s))
	}
	assert.False(t, none.equal(selection{}), "none is not all")
	assert.True(t, some.leaves(none))
	assert.False(t, none.leaves(some))
	assert.True(t, selection{}.leaves(standard))
}

// TestKeys has the keys of R11's page, which the policies compute, too.
func TestKeys(t *testing.T) {
	t.Parallel()
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "", "app": "web"}}}
	o := slots.Object{Group: "apps", Kind: "Deployment", Namespace: "n", Name: "x"}
	byLabel := func(key string) v1alpha1.Resource { return v1alpha1.Resource{Key: v1alpha1.KeyLabel, KeyLabel: key} }
	assert.Equal(t, "apps/Deployment/n/x", keyOf(v1alpha1.Resource{Key: v1alpha1.KeyName}, m, o))
	assert.Equal(t, "n", keyOf(v1alpha1.Resource{Key: v1alpha1.KeyNamespace}, m, o))
	assert.Equal(t, "web", keyOf(byLabel("app"), m, o))
	assert.Empty(t, keyOf(byLabel("team"), m, o), "an empty value counts")
	assert.Equal(t, "apps/Deployment/n/x", keyOf(byLabel("missing"), m, o))
	o.Namespace = ""
	assert.Empty(t, keyOf(v1alpha1.Resource{Key: v1alpha1.KeyNamespace}, m, o))
}
