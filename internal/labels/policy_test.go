package labels_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
)

func TestPolicyRestored(t *testing.T) {
	const zone = "topology.kubernetes.io/zone" // the only live label
	type set = map[string]string
	for name, tc := range map[string]struct {
		mode              labels.Mode
		live, saved, want set
	}{
		"replace: nothing on either side":           {labels.Replace, nil, nil, set{}},
		"replace: nothing saved takes labels away":  {labels.Replace, set{"rack": "r1"}, nil, set{}},
		"replace: saved is restored":                {labels.Replace, nil, set{"rack": "r7"}, set{"rack": "r7"}},
		"replace: saved wins":                       {labels.Replace, set{"rack": "r1"}, set{"rack": "r7"}, set{"rack": "r7"}},
		"replace: only on the node, goes":           {labels.Replace, set{"new": "n"}, set{"rack": "r7"}, set{"rack": "r7"}},
		"replace: live label on both, node wins":    {labels.Replace, set{zone: "b"}, set{zone: "a"}, set{zone: "b"}},
		"replace: live label only on node, stays":   {labels.Replace, set{zone: "b"}, set{"rack": "r7"}, set{zone: "b", "rack": "r7"}},
		"replace: live label only saved, restored":  {labels.Replace, set{"rack": "r1"}, set{zone: "a"}, set{zone: "a"}},
		"replace: live label empty on node, wins":   {labels.Replace, set{zone: ""}, set{zone: "a"}, set{zone: ""}},
		"merge: nothing on either side":             {labels.Merge, nil, nil, set{}},
		"merge: nothing saved takes nothing away":   {labels.Merge, set{"rack": "r1"}, nil, set{"rack": "r1"}},
		"merge: saved is added":                     {labels.Merge, set{"new": "n"}, set{"rack": "r7"}, set{"new": "n", "rack": "r7"}},
		"merge: saved wins":                         {labels.Merge, set{"rack": "r1"}, set{"rack": "r7"}, set{"rack": "r7"}},
		"merge: saved wins with an empty value":     {labels.Merge, set{"rack": "r1"}, set{"rack": ""}, set{"rack": ""}},
		"merge: live label on both, node wins":      {labels.Merge, set{zone: "b"}, set{zone: "a"}, set{zone: "b"}},
		"merge: live label only on the node, stays": {labels.Merge, set{zone: "b"}, set{"rack": "r7"}, set{zone: "b", "rack": "r7"}},
		"merge: live label only saved, restored":    {labels.Merge, set{"rack": "r1"}, set{zone: "a"}, set{"rack": "r1", zone: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := labels.Policy{Mode: tc.mode, Live: parse(t, zone)}
			live, saved := maps.Clone(tc.live), maps.Clone(tc.saved)
			got := policy.Restored(labels.Side{Labels: live}, labels.Side{Labels: saved})
			assert.Equal(t, tc.want, got)

			assert.Equal(t, got, policy.Restored(labels.Side{Labels: got}, labels.Side{Labels: saved}), "to restore again changes nothing")
			got["other"] = "v"
			assert.Equal(t, tc.live, live, "the arguments stay as they are")
			assert.Equal(t, tc.saved, saved, "the arguments stay as they are")
		})
	}
}

func TestPolicyWithoutLivePatternsReplacesEverything(t *testing.T) {
	policy := labels.Policy{Mode: labels.Replace, Live: parse(t, "")}
	live := labels.Side{Labels: map[string]string{"kubernetes.io/hostname": "new", "x": "y"}}
	got := policy.Restored(live, labels.Side{Labels: map[string]string{"kubernetes.io/hostname": "old"}})
	assert.Equal(t, map[string]string{"kubernetes.io/hostname": "old"}, got)
}

func TestParseModeAcceptsOnlyItsNames(t *testing.T) {
	for _, want := range []labels.Mode{labels.Replace, labels.Merge} {
		got, err := labels.ParseMode(string(want))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, name := range []string{"", "Replace", "merge ", "add"} {
		_, err := labels.ParseMode(name)
		require.ErrorContains(t, err, `use "replace" or "merge"`, "%q", name)
	}
}

func parse(t *testing.T, list string) labels.Patterns {
	t.Helper()
	patterns, err := labels.ParsePatterns(list)
	require.NoError(t, err)
	return patterns
}
