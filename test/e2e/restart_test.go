package e2e_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/txn"
)

const hostnameKey = "kubernetes.io/hostname" // a live label

func TestRestartOfEveryServiceChangesNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.quietNodes(50)
	for _, p := range e.running("processor") {
		e.stop(p)
	}
	before := e.snapshot()
	started := len(e.programs)

	for range 2 {
		e.watcher()
		e.processor()
	}
	for _, w := range e.running("watcher") {
		e.eventually(func(c *assert.CollectT) {
			assert.Len(c, loggedMessages(w, "Compared nodes with their records"), 1)
		}, "%s has compared the nodes with their records", w.Identity)
	}
	// The programs handle the other nodes before this one.
	sentinel := e.name("sentinel")
	e.create(sentinel, labelSet{"rack": "r7"})
	e.saved(sentinel, labelSet{"rack": "r7"})
	e.settle()

	after := e.snapshot()
	for key := range after {
		if strings.HasSuffix(key, " "+sentinel) {
			delete(after, key)
		}
	}
	assert.Equal(t, before, after)
	for _, p := range e.programs[started:] {
		for _, line := range loggedMessages(p, "Recorded transaction") {
			assert.Condition(t, func() bool { return line["node"] == sentinel || !e.nodes[fmt.Sprint(line["node"])] }, "%v", line)
		}
	}
}

// quietNodes creates n nodes that need no further work: new nodes, restored nodes, and restored
// nodes with a live label that differs from the saved one. No watcher runs at the end.
func (e *env) quietNodes(n int) {
	e.t.Helper()
	e.watcher()
	e.processor()
	want := map[string]labelSet{}
	returned := map[string]bool{}
	for i, name := range e.names(n) {
		want[name] = labelSet{"rack": strconv.Itoa(i), hostnameKey: "old"}
		e.create(name, want[name])
		switch i % 3 {
		case 1:
			e.delete(name)
			e.create(name, nil)
			returned[name] = true
		case 2:
			e.delete(name)
			e.create(name, labelSet{hostnameKey: "new"})
			want[name][hostnameKey] = "new"
			returned[name] = true
		}
	}
	// A watcher stores everything it has seen before it exits, so it must have seen the returns.
	for name := range returned {
		e.restored(name, want[name])
	}
	for name := range want {
		e.saved(name, want[name])
	}
	e.settle()
	for name := range returned {
		e.hasRestored(e.t, name, want[name])
	}
}

// snapshot returns the resourceVersions of every Node of the test, its record, its transactions and
// its lock, by kind and name.
func (e *env) snapshot() map[string]string {
	e.t.Helper()
	versions := map[string]string{}
	for name := range e.nodes {
		node := e.node(e.t, name)
		versions["node "+name] = node.ResourceVersion
		if e.plane == nil { // controllers write the status and taints of Nodes there
			versions["node "+name] = fmt.Sprint(node.UID, node.Labels)
		}
	}
	for _, cm := range e.configMaps(e.t, e.metadata) {
		if e.nodes[cm.Name] {
			versions["record "+cm.Name] = cm.ResourceVersion
		}
	}
	for _, cm := range e.queued(e.t) {
		versions["transaction "+cm.Name] = cm.ResourceVersion
	}
	for _, lease := range e.locks(e.t) {
		versions["lock "+lease.Name] = lease.ResourceVersion
	}
	return versions
}

func TestNodeThatWasReplacedWhileNoWatcherRanIsRestored(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.watcher()
	e.processor()
	name := e.name("node")
	first := e.create(name, labelSet{"rack": "r7"})
	e.set(name, "team", "blue")
	e.recorded(first.UID, txn.Updated)
	e.stop(w)
	e.delete(name)
	e.create(name, labelSet{"rack": "r9"})

	e.watcher()

	want := labelSet{"rack": "r7", "team": "blue"}
	e.restored(name, want)
	e.settle()
	e.hasRestored(t, name, want)
}

func TestDeleteThatTheWatchMissedIsRecordedFromTheLastStateSeen(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	if e.plane == nil {
		t.Skip("it restarts the API server, which is not ours")
	}
	way := e.newProxy()
	w := e.start("watcher", way.kubeconfig(e), "-v=1")
	e.ready(w)
	e.processor()
	replaced, gone := e.name("replaced"), e.name("gone")
	want := labelSet{"rack": "r7", "team": "blue"}
	last := map[string]string{} // UID to the last resourceVersion that the watcher saw
	for _, name := range []string{replaced, gone} {
		e.create(name, labelSet{"rack": "r7"})
		e.set(name, "team", "blue")
		node := e.node(t, name)
		last[string(node.UID)] = node.ResourceVersion
		e.recorded(node.UID, txn.Updated)
	}

	// A restarted API server does not know which events the watcher missed before.
	way.setCut(true)
	e.delete(gone)
	e.delete(replaced)
	e.create(replaced, labelSet{"rack": "r9"})
	require.NoError(t, e.plane.RestartAPIServer())
	way.setCut(false)

	e.restored(replaced, want)
	e.eventually(func(c *assert.CollectT) {
		deletes := map[string]string{}
		// The record may already contain the last event; then the delete adds nothing.
		for _, line := range slices.Concat(loggedMessages(w, "Recorded transaction"), loggedMessages(w, "Skipped an event that is already stored")) {
			if line["type"] == string(txn.Deleted) {
				deletes[fmt.Sprint(line["uid"])] = fmt.Sprint(line["resourceVersion"])
			}
		}
		assert.Equal(c, last, deletes)
	}, "the deletes are known, as of what was seen last")
	e.create(gone, nil)
	e.restored(gone, want)
	e.settle()
}
