package stuck_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/watcher/stuck"
)

// node returns a Node of an age.
func node(name, marker string, age time.Duration) *nodeview.Node {
	n := nodes.Metadata(name)
	n.UID, n.CreationTimestamp, n.Labels = types.UID(name), metav1.NewTime(time.Now().Add(-age)), map[string]string{"rack": "r1"}
	if marker != "" {
		n.Labels[labels.Marker] = marker
	}
	return nodeview.View{}.OfMetadata(n).Compact() // as the cache does
}

// gatedAgain returns a Node created ten hours ago and gated again later.
func gatedAgain(name string, ago time.Duration) *nodeview.Node {
	n := nodes.Metadata(name)
	n.UID, n.CreationTimestamp, n.Labels = types.UID(name), metav1.NewTime(time.Now().Add(-10*time.Hour)), map[string]string{labels.Marker: labels.Pending}
	n.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Time: &n.CreationTimestamp, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:rack":{}}}}`)},
		{Manager: "karpenter", Time: new(metav1.NewTime(time.Now().Add(-ago))), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:labels_restored":{}}}}`)},
	}
	return nodeview.View{}.OfMetadata(n).Compact()
}

func TestStuckStartupTaintsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := events.NewFakeRecorder(10)
		all, store := cached(t,
			node("new", "", time.Hour), node("restored", "70", time.Hour), node("young", labels.Pending, 0),
			node("old", labels.Pending, time.Hour), node("anothers", labels.Pending, 2*time.Hour),
			gatedAgain("anothers-again", time.Minute),
		)
		r := &stuck.Reporter{
			Nodes: all, Events: recorder, Owner: func(node string) bool { return !strings.HasPrefix(node, "anothers") },
		}
		require.NoError(t, testutil.CollectAndCompare(r, strings.NewReader(`
# HELP nodekeeper_gated_nodes Nodes that wait behind the startup taint, by their marker. Every watcher reports all of them.
# TYPE nodekeeper_gated_nodes gauge
nodekeeper_gated_nodes 4
# HELP nodekeeper_oldest_gate_age_seconds Seconds since the first of these Nodes got that marker, or since its field manager last changed another field of the Node. 0 if there are none.
# TYPE nodekeeper_oldest_gate_age_seconds gauge
nodekeeper_oldest_gate_age_seconds 7200
`)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		assert.Empty(t, recorder.Events, "each may have been closed a moment ago")
		require.NoError(t, store.Delete(node("young", "", 0)))
		require.NoError(t, store.Add(node("closed", labels.Pending, time.Hour)))
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		assert.Contains(t, <-recorder.Events, "kubectl taint node old nodekeeper.dev/restoring-; kubectl label node old labels_restored-")
		assert.Empty(t, recorder.Events, "the others are gone, closed since, or another replica's")
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		assert.Len(t, recorder.Events, 2, "old, and the one that was closed")
		cancel()
		require.NoError(t, <-ended)
	})
}
