package labels_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
)

func TestRestrictedLabelsAreForbiddenToKubelets(t *testing.T) {
	for key, want := range map[string]bool{
		"node-restriction.kubernetes.io/tenant":       true,
		"team.node-restriction.kubernetes.io/tenant":  true,
		"node-role.kubernetes.io/control-plane":       true,
		"node-role.kubernetes.io":                     false, // a name without a prefix
		"node-restriction.kubernetes.io":              false,
		"team.node-role.kubernetes.io/control-plane":  false,
		"notnode-restriction.kubernetes.io/tenant":    false,
		"node-restriction.kubernetes.io.evil/tenant":  false,
		"kubernetes.io/node-role.kubernetes.io":       false,
		"example.com/node-restriction.kubernetes.io":  false,
		"node-role.kubernetes.io.example.com/control": false,

		labels.AnnotationKey("team.node-restriction.kubernetes.io/tenant"):    false,
		labels.TaintKey("team.node-restriction.kubernetes.io/x", "NoExecute"): false,
	} {
		assert.Equal(t, want, labels.Restricted(key), key)
	}
}

func TestRestrictedModes(t *testing.T) {
	for _, mode := range []labels.RestrictedMode{labels.Keep, labels.Drop, labels.SameMachine} {
		parsed, err := labels.ParseRestrictedMode(string(mode))
		require.NoError(t, err)
		assert.Equal(t, mode, parsed)
	}
	_, err := labels.ParseRestrictedMode("maybe")
	require.ErrorContains(t, err, `"same-machine"`)
}

// It was set by others.
func TestUnrestoredLabelsStay(t *testing.T) {
	const role, tenant = "node-role.kubernetes.io/worker", "node-restriction.kubernetes.io/tenant"
	live := labels.Side{Labels: map[string]string{role: "new", "extra": "1"}}
	withheld := labels.Side{Labels: map[string]string{"rack": "r1"}, Withheld: role + ""}
	p := labels.Policy{Mode: labels.Replace}
	assert.Equal(t, map[string]string{role: "new", "rack": "r1"}, p.Restored(live, withheld), "only withheld labels stay")

	p.Restricted = labels.Drop
	saved := labels.Side{Labels: map[string]string{role: "old", tenant: "a", "rack": "r1"}}
	assert.Equal(t, map[string]string{role: "new", "rack": "r1"}, p.Restored(live, saved))

	p.Restricted = labels.Keep
	assert.Equal(t, saved.Labels, p.Restored(live, saved))
}
