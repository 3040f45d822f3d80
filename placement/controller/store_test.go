package controller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/daemon/rewind"
)

// testStore is a store of the resourceVersions of ConfigMaps.
type testStore struct {
	*store[string]

	changes int
	err     error
}

func newTestStore() *testStore {
	s := &testStore{}
	s.store = &store[string]{
		parse: metav1.Object.GetResourceVersion, changed: func() { s.changes++ },
		compare: func(before, after string) error {
			s.err = rewind.New().Compare(before, after)
			return s.err
		},
		objects: map[string]*version[string]{}, deleted: map[types.UID]bool{},
	}
	return s
}

func object(name, uid, resourceVersion string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: resourceVersion}}
}

// has returns the stored resourceVersions by name.
func (s *testStore) has() map[string]string {
	has := map[string]string{}
	for name, v := range s.all() {
		has[name] = v.parsed
	}
	return has
}

func TestStoreKeepsTheNewestOfCacheAndOwnWrites(t *testing.T) {
	t.Parallel()
	s := newTestStore()
	assert.False(t, s.synced())
	require.NoError(t, s.Replace([]any{object("a", "1", "5")}, "5"))
	assert.True(t, s.synced())
	own := s.wrote(object("a", "1", "9"))
	require.NoError(t, s.Update(object("a", "1", "7"))) // behind the own write
	assert.Equal(t, map[string]string{"a": "9"}, s.has())
	changes := s.changes
	require.NoError(t, s.Update(object("a", "1", "9")))
	assert.Same(t, own, s.all()["a"], "the own write comes back, and nothing has changed")
	assert.Equal(t, changes, s.changes)
	require.NoError(t, s.Update(object("a", "1", "10")))
	assert.Equal(t, map[string]string{"a": "10"}, s.has())
	assert.Equal(t, changes+1, s.changes)
}

func TestStoreDoesNotReviveWhatWasDeleted(t *testing.T) {
	t.Parallel()
	s := newTestStore()
	require.NoError(t, s.Replace([]any{object("a", "1", "5")}, "5"))
	require.NoError(t, s.Delete(object("a", "1", "8")))
	assert.Nil(t, s.wrote(object("a", "1", "7")), "the answer to a write from before the deletion comes late")
	assert.Empty(t, s.has())
	assert.True(t, s.isDeleted("1"))
	s.forget(func(types.UID) bool { return false })
	assert.False(t, s.isDeleted("1"))

	s.wrote(object("b", "2", "12"))
	require.NoError(t, s.Delete(object("b", "2", "11")))
	assert.Equal(t, map[string]string{"b": "12"}, s.has(), "it was created again under its name")
}

func TestStoreReplacesByAList(t *testing.T) {
	t.Parallel()
	s := newTestStore()
	require.NoError(t, s.Replace([]any{object("a", "1", "5"), object("b", "2", "5")}, "5"))
	s.wrote(object("c", "3", "6"))
	s.wrote(object("d", "4", "9"))
	require.NoError(t, s.Replace([]any{object("a", "1", "5")}, "7"))
	assert.Equal(t, map[string]string{"a": "5", "d": "9"}, s.has(), "b and c were deleted, d is newer than the list")
	require.NoError(t, s.Bookmark("10"))
	require.NoError(t, s.Replace([]any{object("a", "1", "5")}, "10"))
	require.NoError(t, s.err)
	require.NoError(t, s.Update(object("a", "1", "11")))
	require.NoError(t, s.Replace([]any{object("a", "1", "5")}, "12"))
	require.NoError(t, s.err)
	assert.Equal(t, map[string]string{"a": "5"}, s.has(), "etcd was restored, and has gone on since then")
	require.NoError(t, s.Replace([]any{object("a", "1", "5")}, "6"))
	assert.ErrorIs(t, s.err, rewind.ErrRewound)
}

// TestOnlyLaterDecisionsAreLive: what was written or read before the present version of a contract
// was observed proves nothing about it.
func TestOnlyLaterDecisionsAreLive(t *testing.T) {
	t.Parallel()
	m := newMemory()
	resource := &version[*resource]{resourceVersion: "7", uid: "q"}
	contract := func(resourceVersion string) *version[*stored] {
		cm := object("w-0", "1", resourceVersion)
		return &version[*stored]{resourceVersion: resourceVersion, uid: "1", parsed: parseContract(cm)}
	}
	assert.False(t, m.isLive("w-0", resource), "the contract was not observed")
	m.number = 1
	m.observe("w-0", contract("5"), false)
	assert.False(t, m.isLive("w-0", resource), "it comes from the cache")
	m.fresh["q"] = freshness{"7", 1}
	assert.True(t, m.isLive("w-0", resource))
	m.observe("w-0", contract("8"), true)
	assert.True(t, m.isLive("w-0", resource), "no other writer has changed the contract")
	m.number = 2
	m.observe("w-0", contract("9"), false)
	assert.False(t, m.isLive("w-0", resource))
	m.fresh["q"] = freshness{"6", 2}
	assert.False(t, m.isLive("w-0", resource), "another version was read")
}
