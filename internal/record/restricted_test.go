package record_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

const role = "node-role.kubernetes.io/worker"

// withheld is a record with an identity and withheld labels.
func withheld() record.Record {
	r := saved()
	r.Labels["node-restriction.kubernetes.io/tenant"] = "a"
	r.Identity = record.Identity{UID: r.Restored.UID, Identity: identity.Identity{ProviderID: "aws:///i-1", SystemUUID: "ec2-1"}}
	r.Withheld = []record.Withheld{
		{
			Labels: map[string]string{role: ""}, Source: "u1", Identity: identity.Identity{SystemUUID: "ec2-0"}, State: record.WaitingFor("u2"),
		},
		{
			Labels: map[string]string{"node-role.kubernetes.io/db": "x"}, Source: "u0", Identity: identity.Identity{ProviderID: "p"},
			State: record.RestoredBy("7", revision.MustParse("8")),
		},
	}
	return r
}

func TestMachinesAndWithheldLabelsAreStored(t *testing.T) {
	r := withheld()
	cm := r.ConfigMap("records")
	assert.Equal(t, "aws:///i-1", cm.Annotations["nodekeeper.dev/provider-id"])
	assert.Equal(t, "ec2-1", cm.Annotations["nodekeeper.dev/system-uuid"])
	assert.JSONEq(t, `[{"labels":{"node-role.kubernetes.io/worker":""},"sourceUID":"u1","systemUUID":"ec2-0","waitingForUID":"u2"},
		{"labels":{"node-role.kubernetes.io/db":"x"},"sourceUID":"u0","providerID":"p","marker":"7","putBackRV":"8"}]`,
		cm.Annotations["nodekeeper.dev/withheld-labels"])
	read, err := record.Parse(cm)
	require.NoError(t, err)
	assert.True(t, read.Equal(r), "%+v", read)
	assert.Contains(t, read.All(), role)
	assert.True(t, read.WaitsFor("u2"))
	assert.False(t, read.WaitsFor(""))

	r.Identity, r.Withheld = record.Identity{}, nil
	r.Write(cm)
	for key := range cm.Annotations {
		for _, part := range []string{"identity", "provider", "system", "withheld"} {
			assert.NotContains(t, key, part)
		}
	}
}

func TestStatesOfWithheldLabelsAreStored(t *testing.T) {
	r := withheld()
	for fields, state := range map[string]record.WithheldState{
		"":                                   record.Kept,
		`,"waitingForUID":"u2"`:              record.WaitingFor("u2"),
		`,"waitingForUID":"u2","marker":"7"`: record.DecidedFor("u2", "7"),
		`,"marker":"7","putBackRV":"8"`:      record.RestoredBy("7", revision.MustParse("8")),
	} {
		r.Withheld = []record.Withheld{{Labels: map[string]string{role: ""}, State: state}}
		cm := r.ConfigMap("records")
		assert.JSONEq(t, `[{"labels":{"node-role.kubernetes.io/worker":""}`+fields+`}]`, cm.Annotations["nodekeeper.dev/withheld-labels"])
		read, err := record.Parse(cm)
		require.NoError(t, err)
		require.Len(t, read.Withheld, 1)
		assert.Equal(t, state, read.Withheld[0].State)
	}
}

// A state in memory equals the one that another program parses, whatever its arguments are.
func TestEveryStateOfWithheldLabelsIsParsedAsItIs(t *testing.T) {
	states := map[string]record.WithheldState{"Kept": record.Kept}
	for _, uid := range []types.UID{"", "u2"} {
		states[fmt.Sprintf("WaitingFor(%q)", uid)] = record.WaitingFor(uid)
		states[fmt.Sprintf("RefusedFor(%q)", uid)] = record.RefusedFor(uid)
		for _, marker := range []string{"", "7"} {
			states[fmt.Sprintf("DecidedFor(%q, %q)", uid, marker)] = record.DecidedFor(uid, marker)
			states[fmt.Sprintf("Unconfirmed(%q, %q)", uid, marker)] = record.Unconfirmed(uid, marker)
		}
	}
	for _, marker := range []string{"", "7"} {
		for _, at := range []revision.Revision{{}, revision.MustParse("8")} {
			states[fmt.Sprintf("RestoredBy(%q, %v)", marker, at)] = record.RestoredBy(marker, at)
		}
	}
	r := withheld()
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			r.Withheld = []record.Withheld{{Labels: map[string]string{role: ""}, State: state}}
			read, err := record.Parse(r.ConfigMap("records"))
			require.NoError(t, err)
			require.Len(t, read.Withheld, 1)
			assert.Equal(t, state, read.Withheld[0].State)
		})
	}
	assert.Equal(t, record.WaitingFor("u2"), record.DecidedFor("u2", ""))
	assert.True(t, record.DecidedFor("u2", "7").IsDecidedFor("u2"))
}

// Releases without identities leave the annotations unchanged.
func TestIdentityLeftByOldReleaseIsIgnored(t *testing.T) {
	r := withheld()
	for annotation, value := range map[string]string{
		"nodekeeper.dev/restored-rv": "2651", "nodekeeper.dev/identity-rv": "2571", "nodekeeper.dev/identity-uid": "",
	} {
		cm := r.ConfigMap("records")
		cm.Annotations[annotation] = value
		read, err := record.Parse(cm)
		require.NoError(t, err)
		assert.Equal(t, record.Identity{}, read.Identity, annotation)
	}
}

// A key that is among the labels is not withheld.
func TestLabelsSavedByOldReleaseAreNewer(t *testing.T) {
	cm := withheld().ConfigMap("records")
	cm.Data["node-role.kubernetes.io---SLASH---worker"] = "newer"
	read, err := record.Parse(cm)
	require.NoError(t, err)
	assert.Equal(t, "newer", read.All()[role])
	require.Len(t, read.Withheld, 1)
}

func TestWithheldLabelsAreReadStrictly(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":        "x",
		"empty":          "",
		"unknown field":  `[{"label":{}}]`,
		"something more": `[] []`,
		"no label":       `[{"labels":{"label:rack":"r1"}}]`,
		"no label value": `[{"labels":{"node-role.kubernetes.io/worker":"a b"}}]`,
		"no label key":   `[{"labels":{"node-role.kubernetes.io/":"a"}}]`,
		"twice":          `[{"labels":{"node-role.kubernetes.io/w":"a"}},{"labels":{"node-role.kubernetes.io/w":"a"}}]`,
		"no marker":      `[{"labels":{"node-role.kubernetes.io/w":"a"},"marker":"x y"}]`,
		"no revision":    `[{"labels":{"node-role.kubernetes.io/w":"a"},"putBackRV":"x"}]`,
	} {
		cm := saved().ConfigMap("records")
		cm.Annotations["nodekeeper.dev/withheld-labels"] = text
		_, err := record.Parse(cm)
		require.ErrorIs(t, err, record.ErrUnreadable, name)
	}
}

// The annotations of an object are limited to 256 KiB in total.
func TestOldestWithheldLabelsAreDropped(t *testing.T) {
	var sets []record.Withheld
	for i := range 600 {
		key := "node-restriction.kubernetes.io/" + strings.Repeat("x", 50) + strconv.Itoa(i)
		sets = append(sets, record.Withheld{Labels: map[string]string{key: strings.Repeat("v", 63)}})
	}
	bounded, without := record.Bounded(sets)
	assert.Less(t, len(bounded), len(sets))
	assert.Len(t, slices.Collect(without.All()), len(sets)-len(bounded))
	assert.Greater(t, len(bounded), 100)
	assert.Equal(t, sets[:len(bounded)], bounded)
	r := saved()
	r.Withheld = bounded
	large := map[string]string{}
	for _, set := range sets {
		maps.Copy(large, set.Labels)
	}
	bounded, without = record.Bounded([]record.Withheld{{Labels: large}, sets[0]})
	assert.Equal(t, sets[:1], bounded, "a set that is too large does not displace others")
	assert.Equal(t, labels.KeysOf(maps.Keys(large)), without)
	assert.LessOrEqual(t, len(r.ConfigMap("records").Annotations["nodekeeper.dev/withheld-labels"]), 32<<10)
}
