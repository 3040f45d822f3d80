package e2e_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

func TestReturnedNodeHasItsLabelsBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	name := e.name("node")
	first := e.create(name, labelSet{"rack": "r7"})
	e.set(name, "example.com/team", "blue")
	want := labelSet{"rack": "r7", "example.com/team": "blue"}
	before := e.saved(name, want)
	assert.Equal(t, first.UID, before.Source)
	assert.Equal(t, record.Restoration{}, before.Restored)
	assert.False(t, before.SavedAt.IsZero())

	e.delete(name)
	e.ended(first)
	deleted := e.record(t, name)
	require.NotNil(t, deleted)
	assert.Equal(t, before.Revision, deleted.Revision, "the labels are the same")
	assert.Equal(t, first.UID, deleted.Restored.UID)
	isAfterSave, err := resourceversion.CompareResourceVersion(deleted.Restored.Revision.String(), before.Revision.String())
	require.NoError(t, err)
	assert.Positive(t, isAfterSave, "since the delete, an older event is known as such")
	second := e.create(name, nil)

	e.restored(name, want)
	e.settle()
	e.hasRestored(t, name, want)
	after := e.record(t, name)
	require.NotNil(t, after)
	assert.Equal(t, want, after.Labels)
	assert.Equal(t, deleted.Revision, after.Revision, "nothing new was saved")
	assert.Equal(t, first.UID, after.Source)
	assert.Equal(t, second.UID, after.Restored.UID)
	restoredNode := e.node(t, name)
	assert.Equal(t, after.Revision.String(), restoredNode.Labels["labels_restored"])
	isAfterCreate, err := resourceversion.CompareResourceVersion(after.Restored.Revision.String(), second.ResourceVersion)
	require.NoError(t, err)
	assert.Positive(t, isAfterCreate)
	isAfterNow, err := resourceversion.CompareResourceVersion(after.Restored.Revision.String(), restoredNode.ResourceVersion)
	require.NoError(t, err)
	assert.LessOrEqual(t, isAfterNow, 0)
}

// TestRestoreWaitsForNoSaveDelay checks that with the default flags, a restore includes labels that
// are still waiting to be saved.
func TestRestoreWaitsForNoSaveDelay(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor("--save-delay=1h")
	name := e.name("node")
	first := e.create(name, labelSet{"rack": "r7"}) // a new node, so it gets a record at once
	e.saved(name, labelSet{"rack": "r7"})
	e.applied(first)
	e.set(name, "example.com/team", "blue")
	e.delete(name)
	e.recorded(first.UID, txn.Deleted)
	assert.NotEmpty(t, e.queue(t, name), "the end waits, and the edit if that was stored before it")
	second := e.create(name, nil)
	e.restored(name, labelSet{"rack": "r7", "example.com/team": "blue"})
	e.applied(second)
}

func TestFirstIncarnationIsLeftAlone(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	name := e.name("node")
	want := labelSet{"rack": "r7", "kubernetes.io/hostname": name}
	e.create(name, want)
	e.saved(name, want)
	e.set(name, "rack", "r8")
	want["rack"] = "r8"
	e.saved(name, want)

	e.settle()

	own, marker := e.labels(t, name)
	assert.Equal(t, want, own)
	assert.Empty(t, marker)
}

func TestLabelsOfAReturnedNodeAreReplaced(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	name := e.name("node")
	want := labelSet{"rack": "r7", "team": "blue"}
	e.create(name, want)
	e.delete(name)

	e.create(name, labelSet{"rack": "r9", "other": "x"})

	e.restored(name, want)
	e.settle()
	e.hasRestored(t, name, want)
}

func TestUserEditsWin(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	name := e.name("node")
	e.create(name, labelSet{"kept": "1", "removed": "1", "edited": "1"})
	e.remove(name, "removed")
	e.delete(name)
	e.create(name, labelSet{"removed": "again"})
	e.restored(name, labelSet{"kept": "1", "edited": "1"})

	e.set(name, "edited", "2")
	e.remove(name, "kept")
	e.set(name, "new", "1")
	want := labelSet{"edited": "2", "new": "1"}
	e.saved(name, want)
	own, _ := e.labels(t, name)
	require.Equal(t, want, own, "no older event undoes an edit")

	e.delete(name)
	e.create(name, labelSet{"kept": "1"})
	e.restored(name, want)
	e.settle()
	e.hasRestored(t, name, want)
}

func TestEditJustBeforeTheDeleteIsKept(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	names := e.names(10)
	for _, name := range names {
		e.create(name, labelSet{"rack": "r7"})
	}
	for i, name := range names {
		e.set(name, "last", strconv.Itoa(i))
		e.delete(name)
		e.create(name, nil)
	}

	for i, name := range names {
		e.restored(name, labelSet{"rack": "r7", "last": strconv.Itoa(i)})
	}
	e.settle()
	for i, name := range names {
		e.hasRestored(t, name, labelSet{"rack": "r7", "last": strconv.Itoa(i)})
	}
}
