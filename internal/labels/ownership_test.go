package labels_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
)

func TestPolicyRestoredUsesOwnership(t *testing.T) {
	type set = map[string]string
	const zone = "topology.kubernetes.io/zone" // the only live label
	for name, tc := range map[string]struct {
		live, saved    labels.Side
		replace, merge set
	}{
		"the agents' new value stays": {
			labels.Side{Labels: set{"pool": "new"}, Machine: "pool"},
			labels.Side{Labels: set{"pool": "old"}, Machine: "pool"},
			set{"pool": "new"},
			set{"pool": "new"},
		},
		"what agents bring for the first time stays": {
			labels.Side{Labels: set{"pool": "new"}, Machine: "pool"},
			labels.Side{Labels: set{"rack": "r7"}},
			set{"pool": "new", "rack": "r7"},
			set{"pool": "new", "rack": "r7"},
		},
		"labels that only agents had set are not restored": {
			labels.Side{},
			labels.Side{Labels: set{"initialized": "true", "rack": "r7"}, Machine: "initialized"},
			set{"rack": "r7"},
			set{"rack": "r7"},
		},
		"a user's value that overrides an agent's is restored": {
			labels.Side{Labels: set{"pool": "new"}, Machine: "pool"},
			labels.Side{Labels: set{"pool": "mine"}, Overruled: "pool"},
			set{"pool": "mine"},
			set{"pool": "mine"},
		},
		"a user's value of a key that agents now set is restored": {
			labels.Side{Labels: set{"pool": "new"}, Machine: "pool"},
			labels.Side{Labels: set{"pool": "mine"}},
			set{"pool": "mine"},
			set{"pool": "mine"},
		},
		"a label that a user removed stays removed": {
			labels.Side{Labels: set{"pool": "new"}, Machine: "pool"},
			labels.Side{Overruled: "pool"},
			set{},
			set{"pool": "new"},
		},
		"another writer's value of an agents' label stays": { // for example of the creator of the Node
			labels.Side{Labels: set{"pool": "new"}},
			labels.Side{Labels: set{"pool": "old"}, Machine: "pool"},
			set{"pool": "new"},
			set{"pool": "new"},
		},
		"a live label wins, whoever had set it": {
			labels.Side{Labels: set{zone: "b"}, Machine: zone},
			labels.Side{Labels: set{zone: "mine"}, Overruled: zone},
			set{zone: "b"},
			set{zone: "b"},
		},
		"a live label stays, whoever had removed it": {
			labels.Side{Labels: set{zone: "b"}, Machine: zone},
			labels.Side{Overruled: zone},
			set{zone: "b"},
			set{zone: "b"},
		},
		"a live label that only agents had set is not restored": {
			labels.Side{},
			labels.Side{Labels: set{zone: "a"}, Machine: zone},
			set{},
			set{},
		},
		"an unclear label is restored": {
			labels.Side{Labels: set{"rack": "r1"}},
			labels.Side{Labels: set{"rack": "r7", "tier": "x"}, Unclear: "rack,tier"},
			set{"rack": "r7", "tier": "x"},
			set{"rack": "r7", "tier": "x"},
		},
		"an unclear label yields to the agents' value": {
			labels.Side{Labels: set{"pool": "new"}, Machine: "pool"},
			labels.Side{Labels: set{"pool": "old"}, Unclear: "pool"},
			set{"pool": "new"},
			set{"pool": "new"},
		},
		"unless a user is known to have overruled them": {
			labels.Side{Labels: set{"pool": "new"}, Machine: "pool"},
			labels.Side{Labels: set{"pool": "mine"}, Unclear: "pool", Overruled: "pool"},
			set{"pool": "mine"},
			set{"pool": "mine"},
		},
		"the value of a policy at creation, which no manager owns, stays": {
			labels.Side{Labels: set{"tier": "new"}, Unclear: "tier"},
			labels.Side{Labels: set{"tier": "old", "gone": "x"}, Unclear: "gone,tier"},
			set{"tier": "new", "gone": "x"},
			set{"tier": "new", "gone": "x"},
		},
		"unless a user is known to have replaced it": {
			labels.Side{Labels: set{"tier": "new"}, Unclear: "tier"},
			labels.Side{Labels: set{"tier": "mine"}, Unclear: "tier", Overruled: "tier"},
			set{"tier": "mine"},
			set{"tier": "mine"},
		},
		"a live unclear label yields to the saved value": {
			labels.Side{Labels: set{"pool": "new", "zone": "b", "rack": "r1"}, Unclear: "pool,rack,zone"},
			labels.Side{Labels: set{"pool": "mine", "zone": "a"}, Machine: "zone"},
			set{"pool": "mine", "zone": "b", "rack": "r1"},
			set{"pool": "mine", "zone": "b", "rack": "r1"},
		},
		"other labels are replaced as ever": {
			labels.Side{Labels: set{"rack": "r1", "other": "x", "pool": "new"}, Machine: "pool"},
			labels.Side{Labels: set{"rack": "r7"}},
			set{"rack": "r7", "pool": "new"},
			set{"rack": "r7", "other": "x", "pool": "new"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.replace, labels.Policy{Mode: labels.Replace, Live: parse(t, zone)}.Restored(tc.live, tc.saved), "replace")
			assert.Equal(t, tc.merge, labels.Policy{Mode: labels.Merge, Live: parse(t, zone)}.Restored(tc.live, tc.saved), "merge")
		})
	}
}

// This holds for all saved labels, unless a user has overruled the agents.
func TestMachineLabelsAreNeitherOverwrittenNorRestored(t *testing.T) {
	g := rand.New(rand.NewPCG(7, 8))
	keys := []string{"a", "b", "c", "d"}
	side := func() labels.Side {
		s := labels.Side{Labels: map[string]string{}}
		var machine, unclear, overruled []string
		for _, key := range keys {
			if g.IntN(3) > 0 {
				s.Labels[key] = keys[g.IntN(2)]
				switch g.IntN(4) {
				case 0, 1:
					machine = append(machine, key)
				case 2:
					unclear = append(unclear, key)
				}
			}
			if g.IntN(4) == 0 && !slices.Contains(machine, key) {
				overruled = append(overruled, key)
			}
		}
		s.Machine, s.Unclear = labels.KeysOf(slices.Values(machine)), labels.KeysOf(slices.Values(unclear))
		s.Overruled = labels.KeysOf(slices.Values(overruled))
		return s
	}
	for range 20_000 {
		live, saved := side(), side()
		for _, mode := range []labels.Mode{labels.Replace, labels.Merge} {
			policy := labels.Policy{Mode: mode}
			got := policy.Restored(live, saved)
			for _, key := range keys {
				value, isThere := live.Labels[key]
				wish, isSaved := saved.Labels[key]
				isAgents := live.Machine.Set()[key] && !saved.Overruled.Set()[key]
				mayBeAgents := isAgents || live.Unclear.Set()[key] && !saved.Overruled.Set()[key]
				isWish := isSaved && !saved.Machine.Set()[key] && (!saved.Unclear.Set()[key] || !mayBeAgents)
				if isWish {
					require.Equal(t, wish, got[key], "the user's value of %s: %+v and %+v", key, live, saved)
					continue
				}
				if isThere && isAgents {
					require.Equal(t, value, got[key], "the machine's value of %s: %+v and %+v", key, live, saved)
				}
				if !isThere && saved.Machine.Set()[key] {
					require.NotContains(t, got, key, "the former machine's value: %+v and %+v", live, saved)
				}
			}
			restored := labels.Side{Labels: got, Machine: live.Machine, Unclear: live.Unclear}
			require.Equal(t, got, policy.Restored(restored, saved), "to restore again changes nothing")
		}
	}
}

func TestIgnoredLabelsAreNotRestored(t *testing.T) {
	saved := labels.Side{Labels: map[string]string{"karpenter.sh/initialized": "true", "rack": "r7"}}
	policy := labels.Policy{Mode: labels.Replace, Ignored: parse(t, labels.DefaultIgnored)}
	assert.Equal(t, map[string]string{"rack": "r7"}, policy.Restored(labels.Side{}, saved))
}
