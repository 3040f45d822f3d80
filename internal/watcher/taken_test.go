package watcher_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// No processor runs, the last update of every node waits in the queue, and all nodes were deleted
// in a gap of the watch: each tombstone waits for the name of the update.
func TestTakenNamesAreNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 64
		c := faults.Fake().Build()
		calls := &faults.Log{}
		w := startConfigured(t, c, &informer{}, func(cfg *watcher.Config) {
			cfg.Stored, cfg.StoredInformer = watcher.NewStored(transactions, records), &informer{}
		}, calls)
		for i := range nodes {
			n := state(types.UID("u"+strconv.Itoa(i)), strconv.Itoa(i+1), nil)
			n.Name = "node-" + strconv.Itoa(i)
			seen := txn.Of(txn.Updated, n)
			seen.ObservedAt = time.Now()
			require.NoError(t, c.Create(t.Context(), seen.ConfigMap(transactions)))
			w.OnDelete(toolscache.DeletedFinalStateUnknown{Key: n.Name, Obj: n})
		}
		time.Sleep(10 * time.Second)
		before := len(calls.Entries())
		time.Sleep(time.Minute)
		perSecond := (len(calls.Entries()) - before) / 60
		assert.LessOrEqual(t, perSecond, 20, "requests a second")
		w.stop(t)
	})
}
