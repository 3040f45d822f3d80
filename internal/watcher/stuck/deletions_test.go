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

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/watcher/stuck"
)

// protected returns a Node with finalizers, which is being deleted or not.
func protected(name string, isDeleted bool, finalizers ...string) *nodeview.Node {
	n := &nodeview.Node{Name: name, UID: types.UID(name), Finalizers: finalizers}
	if isDeleted {
		n.DeletedAt = time.Now()
	}
	return n
}

func TestStuckDeletionsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := events.NewFakeRecorder(10)
		all, store := cached(t,
			protected("live", false, nodes.Finalizer), protected("another-finalizer", true, "example.com/hold", nodes.Finalizer),
			protected("waits", true, nodes.Finalizer), protected("saved", true, nodes.Finalizer), protected("anothers", true, nodes.Finalizer),
		)
		d := &stuck.Deletions{Nodes: all, Events: recorder, Owner: func(node string) bool { return !strings.HasPrefix(node, "anothers") }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		synctest.Wait()
		assert.Empty(t, recorder.Events, "each may have been deleted a moment ago")

		require.NoError(t, store.Delete(protected("saved", true)))
		require.NoError(t, store.Update(protected("live", true, nodes.Finalizer)))
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
