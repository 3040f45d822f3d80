package stuck_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher/stuck"
)

func TestNodesThatTheirRecordDoesNotFollowAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []client.Object
		for name, source := range map[string]types.UID{
			"followed": "followed", "returned": "former", "queued": "former", "anothers": "former", "replaced": "former", "mended": "former",
		} {
			n := nodes.Metadata(name)
			n.UID = types.UID(name)
			r := record.Record{Node: name, Labels: map[string]string{"rack": "r7"}, Revision: revision.MustParse("50"), Source: source}
			switch name {
			case "returned":
				r.Restored = record.Restoration{UID: n.UID, Revision: revision.MustParse("60")}
			case "replaced":
				n.Labels = map[string]string{labels.Marker: "50"} // the earlier record was restored onto it
			case "queued":
				objects = append(objects, txn.Transaction{Type: txn.Added, Node: name, UID: n.UID, Revision: revision.MustParse("70")}.ConfigMap("queue"))
			}
			objects = append(objects, n, r.ConfigMap("records"))
		}
		bare := nodes.Metadata("bare")
		bare.UID = "bare"
		recorder := events.NewFakeRecorder(10)
		c := faults.Fake().WithObjects(append(objects, bare)...).Build()
		u := &stuck.Unfollowed{
			Cache: c, TransactionNamespace: "queue", MetadataNamespace: "records", Events: recorder,
			Owner: func(node string) bool { return node != "anothers" },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- u.Run(ctx) }()
		synctest.Wait()
		assert.Empty(t, recorder.Events, "each may have returned a moment ago")

		require.NoError(t, c.Delete(ctx, record.Record{Node: "mended"}.ConfigMap("records")))
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		require.Len(t, recorder.Events, 1)
		event := <-recorder.Events
		assert.Contains(t, event, "RecordUnfollowed")
		assert.Contains(t, event, "kubectl nodekeeper save replaced")
		cancel()
		require.NoError(t, <-ended)
	})
}
