package e2e_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestDatastoreReplaced replaces the datastore, as k3s does when a cluster moves from SQLite to
// etcd: objects keep their uids, and resourceVersions start low.
func TestDatastoreReplaced(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	if e.plane == nil {
		t.Skip("it replaces the etcd, which is not ours")
	}
	kept, back, away, edited, ended := e.name("kept"), e.name("back"), e.name("away"), e.name("edited"), e.name("ended")
	e.raise(e.revision() + 5000) // an old cluster
	w, p := e.watcher(), e.processor()
	for _, name := range []string{kept, back, away, edited, ended} {
		e.create(name, original)
		e.saved(name, original)
	}
	e.delete(away)
	e.delete(back)
	e.create(back, nil)
	e.restored(back, original)
	e.eventually(func(c *assert.CollectT) { assert.Empty(c, e.queued(c)) }, "everything is applied")
	e.stop(p)
	e.set(edited, "late", "before") // and a transaction of it is left in the queue
	e.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, e.queue(c, edited)) }, "the edit is recorded")
	e.stop(w)

	before := e.revision()
	e.replaceDatastore()
	require.Less(t, e.revision(), before/2)

	e.watcher()
	want := labelSet{"rack": "r8", "team": "blue", "late": "edit"}
	for _, name := range []string{kept, back, edited, ended} {
		e.set(name, "late", "edit")
		e.set(name, "rack", "r8")
	}
	e.delete(ended) // before any processor knows of the edits
	e.eventually(func(c *assert.CollectT) {
		for _, name := range []string{kept, back, edited, ended} {
			assert.NotEmpty(c, e.queue(c, name))
		}
		types := make([]string, 0, 3)
		for _, cm := range e.queue(c, ended) {
			types = append(types, cm.Data[labels.TypeKey])
		}
		assert.Contains(c, types, string(txn.Deleted))
	}, "every edit is recorded")
	e.processor()
	for _, name := range []string{kept, back, edited, ended} {
		r := e.saved(name, want)
		assert.False(t, r.Revision.After(e.present()), "%s: its revision is of the new datastore", name)
	}
	assert.NotEmpty(t, e.warned(e.node(t, kept).UID, reasons.RecordAhead))
	for _, name := range []string{kept, back, edited} {
		e.delete(name)
	}
	for _, name := range []string{kept, back, edited, ended, away} {
		e.create(name, nil)
	}
	for _, name := range []string{kept, back, edited, ended} {
		e.restored(name, want)
	}
	e.restored(away, original)
	e.set(away, "late", "edit")
	e.saved(away, labelSet{"rack": "r7", "team": "blue", "late": "edit"})
	e.settle()
}

// TestMistypedRevision gives a record a revision higher than that of all Nodes.
func TestMistypedRevision(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	node := e.name("node")
	n := e.create(node, labelSet{"rack": "r7"})
	e.saved(node, labelSet{"rack": "r7"})
	e.editRecord(node, map[string]string{"labels_restored": "999999999999"})
	e.set(node, "rack", "r8")
	e.saved(node, labelSet{"rack": "r8"})
	assert.NotEmpty(t, e.warned(n.UID, reasons.RecordAhead))
	e.delete(node)
	e.create(node, nil)
	e.restored(node, labelSet{"rack": "r8"})
	e.settle()
}

// present returns etcd's current revision as one of Nodes.
func (e *env) present() revision.Revision {
	e.t.Helper()
	return revision.MustParse(strconv.FormatInt(e.revision(), 10))
}

// replaceDatastore copies everything into an empty etcd. No service may run.
func (e *env) replaceDatastore() {
	e.t.Helper()
	type pair struct{ Key, Value []byte }
	var all struct{ Kvs []pair }
	require.NoError(e.t, e.etcd("range", map[string]any{"key": []byte("/"), "range_end": []byte("0")}, &all))
	require.NotEmpty(e.t, all.Kvs)
	require.NoError(e.t, e.plane.Restore(e.t.TempDir(), func() error {
		for _, kv := range all.Kvs {
			if err := e.etcd("put", map[string]any{"key": kv.Key, "value": kv.Value}, nil); err != nil {
				return err
			}
		}
		return nil
	}))
}
