package placement_test

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

func full() placement.Status {
	return placement.Status{
		Placeable: placement.Placeable{MaxAllowedVReplicas: new(int32(12)), Placement: []placement.Placement{
			{PodName: "worker-0", VReplicas: 2, Incarnation: "41f0/7c1e", Indexes: "0-1", Since: 17},
			{PodName: "worker-3", VReplicas: 1, Incarnation: "9ab3/03ab", Indexes: "2", Since: 18},
		}},
		Releasing: []placement.Placement{{PodName: "worker-1", VReplicas: 1, Incarnation: "77d1/5e20", Indexes: "2", Since: 18}},
		Decision:  18, ObservedGeneration: 4, ReadyVReplicas: 2,
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "HandingOver"}},
	}
}

func TestStatusIsStoredLikeThis(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/status.json")
	require.NoError(t, err)
	got, err := json.MarshalIndent(full(), "", "  ")
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got)+"\n")
	var back placement.Status
	require.NoError(t, json.Unmarshal(want, &back))
	assert.Equal(t, full(), back)
}

func TestAnnotationsAreStoredLikeThis(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/annotations.json")
	require.NoError(t, err)
	s := full()
	got, err := json.MarshalIndent(placement.Annotations{}.Encode(&s, map[string]string{"example.com/mine": "1"}), "", "  ")
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got)+"\n")
}

// Status written by Knative is decoded, and encoded without changes.
func TestStatusOfKnativeIsRead(t *testing.T) {
	t.Parallel()
	const text = `{"maxAllowedVReplicas":3,"placements":[{"podName":"a","vreplicas":2}]}`
	var s placement.Status
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	back, err := json.Marshal(s)
	require.NoError(t, err)
	assert.JSONEq(t, text, string(back))
	empty, err := json.Marshal(placement.Status{})
	require.NoError(t, err)
	assert.Equal(t, "{}", string(empty))
}

func TestEncodeReplacesItsOwnKeysOnly(t *testing.T) {
	t.Parallel()
	s := full()
	before := placement.Annotations{Prefix: "example.com"}.Encode(&s, map[string]string{
		"example.com/scheduler.placeable.other": "x", "placement.nodekeeper.dev/scheduler.placeable.Decision": "1", "a": "b",
	})
	copied := maps.Clone(before)
	less := placement.Status{Placeable: placement.Placeable{Placement: full().Placement[1:]}}
	after := placement.Annotations{Prefix: "example.com"}.Encode(&less, before)
	assert.Equal(t, copied, before, "an argument has changed")
	assert.Equal(t, map[string]string{
		"example.com/scheduler.placeable.other": "x", "placement.nodekeeper.dev/scheduler.placeable.Decision": "1", "a": "b",
		"example.com/scheduler.placeable.Placements.0.PodName": "worker-3", "example.com/scheduler.placeable.Placements.0.VReplicas": "1",
		"example.com/scheduler.placeable.Placements.0.Incarnation": "9ab3/03ab", "example.com/scheduler.placeable.Placements.0.Indexes": "2",
		"example.com/scheduler.placeable.Placements.0.Since": "18",
	}, after)
	for key := range before {
		assert.Empty(t, validation.IsQualifiedName(key), key)
	}
}

func TestDecodeNamesTheMalformedKey(t *testing.T) {
	t.Parallel()
	const shares = "placement.nodekeeper.dev/scheduler.placeable.Placements."
	for key, annotations := range map[string]map[string]string{
		shares + "0.PodName":   {shares + "1.PodName": "a", shares + "1.VReplicas": "1"},
		shares + "0.VReplicas": {shares + "0.PodName": "a"},
		shares + "x.PodName":   {shares + "x.PodName": "a"},
		shares + "01.PodName":  {shares + "01.PodName": "a"},
		shares + "7":           {shares + "7": "a"},
		shares + "0.Indexes":   {shares + "0.PodName": "a", shares + "0.VReplicas": "1", shares + "0.Indexes": "2-1"},
		shares + "0.Since":     {shares + "0.PodName": "a", shares + "0.VReplicas": "1", shares + "0.Since": "soon"},
		shares + "0.Since:":    {shares + "0.PodName": "a", shares + "0.VReplicas": "1", shares + "0.Since": "9007199254740992"},
		shares + "999999":      {shares + "999999.PodName": "a"},
		"placement.nodekeeper.dev/scheduler.placeable.MaxAllowedVReplicas": {"placement.nodekeeper.dev/scheduler.placeable.MaxAllowedVReplicas": "2147483648"},
		"placement.nodekeeper.dev/scheduler.placeable.Decision":            {"placement.nodekeeper.dev/scheduler.placeable.Decision": "-1"},
		"placement.nodekeeper.dev/scheduler.placeable.Decision:":           {"placement.nodekeeper.dev/scheduler.placeable.Decision": "9223372036854775807"},
	} {
		_, err := placement.Annotations{}.Decode(annotations)
		require.ErrorIs(t, err, placement.ErrMalformedAnnotation, key)
		assert.ErrorContains(t, err, key)
	}
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	a := placement.Annotations{}
	n, err := a.Replicas(nil)
	require.NoError(t, err)
	assert.Equal(t, int32(placement.DefaultReplicas), n)
	n, err = a.Replicas(map[string]string{"placement.nodekeeper.dev/replicas": "0"})
	require.NoError(t, err)
	assert.Zero(t, n)
	for _, text := range []string{"", "-1", "many", "1.5", "2147483648", "+1", "01"} {
		_, err := a.Replicas(map[string]string{"placement.nodekeeper.dev/replicas": text})
		require.ErrorIs(t, err, placement.ErrInvalidReplicas, text)
		assert.ErrorContains(t, err, "placement.nodekeeper.dev/replicas")
	}
}

// TestF21TheMaximumHoldsForEveryKind covers F21: the maximum is part of the type, and the excess is
// not pending.
func TestF21TheMaximumHoldsForEveryKind(t *testing.T) {
	t.Parallel()
	n, limited, err := placement.Wanted(new(int32(12)), new(int32(3)), 0)
	require.NoError(t, err)
	assert.True(t, limited)
	next, pending := schedule.Schedule(schedule.Policy{}, []schedule.Pod{{Name: "a"}}, []schedule.Item{{Key: "x", Replicas: n}}, nil)
	assert.Equal(t, map[string]int32{"a": 3}, next["x"])
	assert.Empty(t, pending)
}

func TestWanted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		desired, most *int32
		valid, want   int32
		limited       bool
	}{
		"unset":            {want: 1},
		"no limit":         {desired: new(int32(9)), want: 9},
		"at the limit":     {desired: new(int32(9)), most: new(int32(9)), want: 9},
		"default at limit": {most: new(int32(0)), limited: true},
		"a negative limit": {desired: new(int32(2)), most: new(int32(-1)), limited: true},
		"just valid":       {desired: new(int32(9)), valid: 9, want: 9},
		"the highest":      {desired: new(int32(placement.MaxReplicas)), valid: math.MaxInt32, want: placement.MaxReplicas},
	} {
		n, limited, err := placement.Wanted(tc.desired, tc.most, tc.valid)
		require.NoError(t, err, name)
		assert.Equal(t, tc.want, n, name)
		assert.Equal(t, tc.limited, limited, name)
	}
	for _, tc := range []struct{ desired, valid int32 }{{-1, 0}, {10, 9}, {placement.MaxReplicas + 1, 0}, {math.MaxInt32, math.MaxInt32}} {
		_, _, err := placement.Wanted(&tc.desired, new(int32(3)), tc.valid)
		require.ErrorIs(t, err, placement.ErrInvalidReplicas, "%+v", tc)
	}
}

func TestDeepCopySharesNothing(t *testing.T) {
	t.Parallel()
	s := full()
	c := s.DeepCopy()
	require.Equal(t, &s, c)
	*c.MaxAllowedVReplicas = 1
	c.Placement[0].PodName, c.Releasing[0].PodName, c.Conditions[0].Reason = "x", "x", "x"
	assert.Equal(t, full(), s)
	assert.Nil(t, (*placement.Status)(nil).DeepCopy())
	assert.Nil(t, (*placement.Placeable)(nil).DeepCopy())
	assert.Nil(t, (*placement.Placement)(nil).DeepCopy())
	assert.Equal(t, &s.Placement[1], s.Placement[1].DeepCopy())
}

func FuzzAnnotations(f *testing.F) {
	f.Add("Placements.0.PodName", "a", "Placements.0.VReplicas", "1", "Placements.0.Indexes", "0-2")
	f.Add("Releasing.1.PodName", "a", "MaxAllowedVReplicas", "1", "Decision", "3")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2, key3, value3 string) {
		const prefix = "placement.nodekeeper.dev/scheduler.placeable."
		in := map[string]string{"other": "1", prefix + key1: value1, prefix + key2: value2, prefix + key3: value3}
		s, err := placement.Annotations{}.Decode(in)
		if err != nil {
			require.ErrorIs(t, err, placement.ErrMalformedAnnotation)
			return
		}
		out := placement.Annotations{}.Encode(&s, in)
		again, err := placement.Annotations{}.Decode(out)
		require.NoError(t, err)
		require.Equal(t, s, again)
		require.Equal(t, out, placement.Annotations{}.Encode(&again, out))
		require.Equal(t, "1", out["other"])
	})
}
