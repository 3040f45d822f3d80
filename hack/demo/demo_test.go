package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

func nodeEvent(second int, typ watch.EventType, uid, resourceVersion string, labels map[string]string) event {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID(uid), ResourceVersion: resourceVersion, Labels: labels}}
	return event{at: time.Unix(int64(second), 0), kind: nodes, typ: typ, obj: n}
}

func transactionEvent(second int, typ watch.EventType, resourceVersion string) event {
	t := txn.Transaction{Node: "n", Revision: revision.Of(resourceVersion)}
	return event{at: time.Unix(int64(second), 0), kind: transactions, typ: typ, obj: t.ConfigMap("ns")}
}

func TestLifeIsRestoredWhenTheMarkerShows(t *testing.T) {
	h := history{
		nodeEvent(1, watch.Added, "a", "1", nil),
		nodeEvent(2, watch.Modified, "a", "2", map[string]string{"x": "y"}),
		nodeEvent(4, watch.Modified, "a", "3", map[string]string{"rack": "r7", "labels_restored": "1"}),
		nodeEvent(5, watch.Deleted, "a", "4", map[string]string{"rack": "r7", "labels_restored": "1"}),
		nodeEvent(6, watch.Added, "b", "5", nil),
	}
	lives := h.lives()
	assert.Equal(t, 3*time.Second, lives["a"].latency())
	require.NoError(t, lives["a"].restoredAs("n", map[string]string{"rack": "r7"}))
	require.ErrorContains(t, lives["a"].restoredAs("n", map[string]string{"rack": "r8"}), "not map[rack:r8]")
	require.ErrorContains(t, lives["b"].restoredAs("n", nil), "was not seen with the label labels_restored")
}

func TestNodeIsSettledWhenEveryTransactionCameAndWent(t *testing.T) {
	var h history
	for _, step := range []struct {
		e    event
		want string
	}{
		{nodeEvent(1, watch.Added, "a", "1", nil), "no transaction was seen of ADDED node n"},
		{transactionEvent(2, watch.Added, "1"), "is in the queue"},
		{transactionEvent(3, watch.Deleted, "1"), ""},
		{nodeEvent(4, watch.Modified, "a", "2", map[string]string{"labels_restored": "1", "x": "z"}), ""}, // a restore
		{nodeEvent(5, watch.Modified, "a", "3", map[string]string{"labels_restored": "1", "x": "y"}), "no transaction was seen of MODIFIED node n"},
		{transactionEvent(6, watch.Added, "3"), "is in the queue"},
		{transactionEvent(7, watch.Deleted, "3"), ""},
		{nodeEvent(8, watch.Modified, "a", "5", map[string]string{"labels_restored": "1"}), "no transaction was seen of MODIFIED node n"},
		{nodeEvent(9, watch.Deleted, "a", "7", nil), "no transaction was seen of MODIFIED node n"},
		{transactionEvent(10, watch.Added, "7"), "no transaction was seen of MODIFIED node n"},
		{transactionEvent(11, watch.Deleted, "7"), ""}, // it took the place of the one before it
		{transactionEvent(12, watch.Added, "1"), "is in the queue again"},
	} {
		h = append(h, step.e)
		if err := h.settled("n"); step.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, step.want)
		}
	}
}

func TestHoldsComparesEveryEntry(t *testing.T) {
	cm := &corev1.ConfigMap{Data: map[string]string{"example.com---SLASH---team": "blue", "labels_restored": "1"}}
	require.NoError(t, holds(cm, map[string]string{"example.com/team": "blue"}))
	require.Error(t, holds(cm, map[string]string{"example.com/team": "red"}))
	require.Error(t, holds(cm, nil))
	delete(cm.Data, "labels_restored")
	require.ErrorContains(t, holds(cm, map[string]string{"example.com/team": "blue"}), "has no version")
}

func TestSpread(t *testing.T) {
	assert.Equal(t, "no restores", spread(nil))
	latencies := []time.Duration{30 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}
	assert.Equal(t, "3 restores p50 20 ms max 30 ms", strings.Join(strings.Fields(spread(latencies)), " "))
}
