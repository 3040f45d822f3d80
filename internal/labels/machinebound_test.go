package labels_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
)

const exclude = "node.kubernetes.io/exclude-from-external-load-balancers"

func bound(t *testing.T, list string) labels.MachineBound {
	t.Helper()
	b, err := labels.ParseMachineBound(list)
	require.NoError(t, err)
	return b
}

func TestModeOfALabel(t *testing.T) {
	const role = "node-role.kubernetes.io/worker"
	type modes map[labels.RestrictedMode]labels.RestrictedMode
	always := func(mode labels.RestrictedMode) modes {
		return modes{"": mode, labels.SameMachine: mode, labels.Keep: mode, labels.Drop: mode}
	}
	restricted := modes{"": labels.SameMachine, labels.SameMachine: labels.SameMachine, labels.Keep: labels.Keep, labels.Drop: labels.Drop}
	matched := modes{"": labels.SameMachine, labels.SameMachine: labels.SameMachine, labels.Keep: labels.SameMachine, labels.Drop: labels.Drop}
	for _, tc := range []struct {
		list, key string
		want      modes
	}{
		{labels.DefaultSameMachine, exclude, always(labels.SameMachine)},
		{labels.DefaultSameMachine, "rack", always(labels.Keep)},
		{labels.DefaultSameMachine, role, restricted},
		{"", exclude, always(labels.Keep)},
		{"", role, restricted},
		{"*", "rack", always(labels.SameMachine)},
		{"*", role, matched},
		{"*", labels.AnnotationKey("rack"), always(labels.Keep)},
		{"*", labels.TaintKey("rack", "NoSchedule"), always(labels.Keep)},
	} {
		for mode, want := range tc.want {
			p := labels.Policy{Mode: labels.Replace, Restricted: mode, MachineBound: bound(t, tc.list)}
			assert.Equal(t, want, p.ModeOf(tc.key), "%q of --same-machine-labels=%s, --restricted-labels=%s", tc.key, tc.list, mode)
		}
	}
}

func TestUnreadableMachineBound(t *testing.T) {
	_, err := labels.ParseMachineBound("a*b*")
	require.ErrorContains(t, err, "unreadable pattern")
}

// A key in both lists would be ignored, so its entry among the others would be misleading.
func TestDefaultsDoNotOverlap(t *testing.T) {
	ignored := parse(t, labels.DefaultIgnored)
	for key := range strings.SplitSeq(labels.DefaultSameMachine, ",") {
		assert.False(t, ignored.Match(strings.ReplaceAll(key, "*", "x")), key)
		assert.False(t, labels.Restricted(key), key)
	}
}

// That the former machine did not have such a label means nothing for the returned one.
func TestLabelsOfTheReturnedMachineStay(t *testing.T) {
	p := labels.Policy{Mode: labels.Replace, MachineBound: bound(t, exclude)}
	live := labels.Side{Labels: map[string]string{exclude: "", "extra": "1"}}
	saved := labels.Side{Labels: map[string]string{"rack": "r1"}}
	assert.Equal(t, map[string]string{exclude: "", "rack": "r1"}, p.Restored(live, saved))

	saved.Overruled = exclude
	assert.Equal(t, map[string]string{"rack": "r1"}, p.Restored(live, saved), "a user has removed what the agents of this machine set")

	saved.Overruled, saved.Labels = "", map[string]string{exclude: "saved"}
	assert.Equal(t, saved.Labels, p.Restored(live, saved))
}
