package e2e_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/txn"
)

func TestRapidCyclesBeforeAnyProcessorRuns(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	name := e.name("node")
	e.create(name, labelSet{"rack": "r7"})
	e.set(name, "team", "blue")
	for i := range 20 {
		e.delete(name)
		e.create(name, labelSet{"rack": strconv.Itoa(i), "cycle": strconv.Itoa(i)})
	}
	last := e.node(t, name)
	e.recorded(last.UID, txn.Added)
	require.Greater(t, len(e.queue(t, name)), 20, "every incarnation waits")

	e.processor()

	want := labelSet{"rack": "r7", "team": "blue"}
	e.restored(name, want)
	e.settle()
	e.hasRestored(t, name, want)
	require.Equal(t, last.UID, e.record(t, name).Restored.UID)
}

func TestManyServicesWorkTogether(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for range 2 {
		e.watcher()
	}
	for range 3 {
		e.processor()
	}
	names := e.names(40)
	want := map[string]labelSet{}
	for i, name := range names {
		e.create(name, labelSet{"rack": strconv.Itoa(i)})
		want[name] = labelSet{"rack": strconv.Itoa(i), "edited": name}
	}
	e.replaceAll(names, want)
	late := e.start("watcher", e.kubeconfig) // it waits until the others have stored the events they saw
	e.replaceAll(names, want)
	e.ready(late)
	for _, w := range e.running("watcher") {
		if w != late {
			require.NoError(t, w.Kill())
		}
	}
	e.replaceAll(names, want)

	e.settle()
	records := map[string]int{}
	for _, cm := range e.configMaps(t, e.metadata) {
		records[cm.Name]++
	}
	for _, name := range names {
		e.hasRestored(t, name, want[name])
		assert.Equal(t, want[name], e.record(t, name).Labels)
		assert.Equal(t, 1, records[name])
	}
}

// replaceAll edits each node, replaces it by a new incarnation, and waits until that has its
// labels.
func (e *env) replaceAll(names []string, want map[string]labelSet) {
	e.t.Helper()
	for _, name := range names {
		e.set(name, "edited", name)
	}
	for _, name := range names {
		e.delete(name)
		e.create(name, labelSet{"rack": "new"})
	}
	for _, name := range names {
		e.restored(name, want[name])
	}
}
