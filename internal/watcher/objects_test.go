package watcher_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

func transformed(t *testing.T, s *watcher.Stored, cm *corev1.ConfigMap) any {
	t.Helper()
	obj, err := s.Transform(cm.DeepCopy())
	require.NoError(t, err)
	again, err := s.Transform(obj)
	require.NoError(t, err)
	require.Same(t, obj, again, "client-go transforms some objects twice")
	return obj
}

// A transaction that a user corrects, or breaks, counts from then on as what it is.
func TestStoredFollowsEdits(t *testing.T) {
	s := watcher.NewStored(transactions, records)
	var changed, taken []string
	handler := s.Handler(func(node string) { changed = append(changed, node) }, func(hash string) { taken = append(taken, hash) })
	tx := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "u1", Revision: revision.MustParse("10"), Labels: set{"rack": "r1"}, ObservedAt: time.Now()}
	good := transformed(t, s, tx.ConfigMap(transactions))
	bad := transformed(t, s, spoilt(tx.ConfigMap(transactions)))

	handler.OnAdd(bad, false)
	assert.Equal(t, map[string]bool{txn.NodeHash("node-1"): true}, s.Pending())
	assert.Equal(t, []string{txn.NodeHash("node-1")}, taken)
	handler.OnUpdate(bad, good)
	handler.OnUpdate(good, bad)
	assert.Equal(t, []string{"node-1"}, changed)
	handler.OnDelete(bad)
	assert.Empty(t, s.Pending())
	assert.Len(t, taken, 3)
}

func TestStoredRecords(t *testing.T) {
	s := watcher.NewStored(transactions, records)
	handler := s.Handler(func(string) {}, func(string) {})
	r := record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("10"), Source: "u1"}
	assert.Nil(t, s.Record("node-1"))
	handler.OnAdd(transformed(t, s, r.ConfigMap(records)), true)
	require.NotNil(t, s.Record("node-1"))
	assert.Equal(t, r.Source, s.Record("node-1").Source)
	assert.Empty(t, s.Record("node-1").Labels, "a watcher does not need them")
	handler.OnUpdate(nil, transformed(t, s, spoilt(r.ConfigMap(records))))
	assert.Nil(t, s.Record("node-1"), "it is unreadable")
	assert.Empty(t, s.Pending())
}
