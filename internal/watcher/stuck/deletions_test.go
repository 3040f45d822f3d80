package stuck_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/watcher/stuck"
)

// protected returns a Node with finalizers.
func protected(name string, finalizers ...string) client.Object {
	n := nodes.Metadata(name)
	n.UID, n.Finalizers = types.UID(name), finalizers
	return n
}

func TestStuckDeletionsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := events.NewFakeRecorder(10)
		c := faults.Fake().WithObjects(
			protected("live", nodes.Finalizer), protected("another-finalizer", "example.com/hold", nodes.Finalizer),
			protected("waits", nodes.Finalizer), protected("saved", nodes.Finalizer), protected("anothers", nodes.Finalizer),
		).Build()
		for _, name := range []string{"another-finalizer", "waits", "saved", "anothers"} {
			require.NoError(t, c.Delete(t.Context(), nodes.Metadata(name)))
		}
		d := &stuck.Deletions{Cache: c, Events: recorder, Owner: func(node string) bool { return !strings.HasPrefix(node, "anothers") }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		synctest.Wait()
		assert.Empty(t, recorder.Events, "each may have been deleted a moment ago")

		released := nodes.Metadata("saved")
		require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(released), released))
		released.Finalizers = nil
		require.NoError(t, c.Update(ctx, released))
		require.NoError(t, c.Delete(ctx, nodes.Metadata("live")))
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		event := <-recorder.Events
		assert.Contains(t, event, "DeletionWaits")
		assert.Contains(t, event, `kubectl patch node waits -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["nodekeeper.dev/save-labels"]}}'`)
		assert.Empty(t, recorder.Events, "the others are gone, deleted since, kept by others, or another replica's")
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		assert.Len(t, recorder.Events, 2, "waits, and the one that was deleted")
		cancel()
		require.NoError(t, <-ended)
	})
}
