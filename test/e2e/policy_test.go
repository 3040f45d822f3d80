package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/txn"
)

func TestMergeKeepsWhatOnlyTheLiveNodeHas(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor("--restore-mode=merge")
	name := e.name("node")
	e.create(name, labelSet{"rack": "r7", "team": "blue"})
	e.delete(name)

	e.create(name, labelSet{"rack": "r9", "other": "x"})

	want := labelSet{"rack": "r7", "team": "blue", "other": "x"}
	e.restored(name, want)
	e.saved(name, want)
	e.settle()
	e.hasRestored(t, name, want)
}

func TestLiveLabelsAreTheMachines(t *testing.T) {
	t.Parallel()
	const (
		hostname = "kubernetes.io/hostname"
		zone     = "topology.kubernetes.io/zone"
		pool     = "fleet.example.com/pool"
	)
	saved := labelSet{hostname: "old", zone: "old", pool: "old", "rack": "r7"}
	returned := labelSet{hostname: "new", pool: "new", "sub.node.kubernetes.io/x": "new", "rack": "r9"}
	for name, tc := range map[string]struct {
		args []string
		want labelSet
	}{
		"default": {
			// The new incarnation does not bring the zone label, so it is restored like any other.
			want: labelSet{hostname: "new", zone: "old", pool: "old", "sub.node.kubernetes.io/x": "new", "rack": "r7"},
		},
		"empty":  {args: []string{"--live-labels="}, want: saved},
		"custom": {args: []string{"--live-labels=fleet.example.com/*"}, want: labelSet{hostname: "old", zone: "old", pool: "new", "rack": "r7"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher()
			e.processor(tc.args...)
			node := e.name("node")
			e.create(node, saved)
			e.delete(node)

			e.create(node, returned)

			e.restored(node, tc.want)
			e.saved(node, tc.want)
			e.settle()
			e.hasRestored(t, node, tc.want)
		})
	}
}

func TestWithoutUpdatesOnlyAddsAndDeletesAreRecorded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher("--record-updates=false")
	e.processor()
	name := e.name("node")
	first := e.create(name, labelSet{"rack": "r7"})
	e.set(name, "team", "blue")
	e.recorded(first.UID, txn.Added)
	e.drained(name)
	require.Nil(t, e.record(t, name), "labels that may be out of date are not saved")

	e.delete(name)
	want := labelSet{"rack": "r7", "team": "blue"}
	e.saved(name, want)
	second := e.create(name, nil)
	e.restored(name, want)
	e.set(name, "team", "red")
	e.delete(name)
	e.create(name, nil)
	want["team"] = "red"
	e.restored(name, want)

	e.settle()
	e.hasRestored(t, name, want)
	assert.Equal(t, []string{"added", "deleted"}, e.transactionTypes(first.UID))
	assert.Equal(t, []string{"added", "deleted"}, e.transactionTypes(second.UID))
}
