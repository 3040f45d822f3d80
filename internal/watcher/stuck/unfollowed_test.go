package stuck_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher/stuck"
)

// stored are stored objects.
type stored struct {
	mu      sync.Mutex
	records map[string]*record.Record
	pending map[string]bool
}

func (s *stored) Record(node string) *record.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[node]
}

func (s *stored) Pending() map[string]bool { return s.pending }

func (s *stored) remove(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, node)
}

func TestNodesThatTheirRecordDoesNotFollowAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := &stored{records: map[string]*record.Record{}, pending: map[string]bool{}}
		var all []*nodeview.Node
		for name, source := range map[string]types.UID{
			"followed": "followed", "returned": "former", "queued": "former", "anothers": "former", "replaced": "former", "mended": "former",
		} {
			n := &nodeview.Node{Name: name, UID: types.UID(name)}
			r := record.Record{Node: name, Labels: map[string]string{"rack": "r7"}, Revision: revision.MustParse("50"), Source: source}
			switch name {
			case "returned":
				r.Restored = record.Restoration{UID: n.UID, Revision: revision.MustParse("60")}
			case "replaced":
				n.Marker = "50" // the earlier record was restored onto it
			case "queued":
				known.pending[txn.NodeHash(name)] = true
			}
			known.records[name], all = &r, append(all, n)
		}
		inCache, _ := cached(t, append(all, &nodeview.Node{Name: "bare", UID: "bare"})...)
		recorder := events.NewFakeRecorder(10)
		u := &stuck.Unfollowed{
			Nodes: inCache, Stored: known, Events: recorder,
			Owner: func(node string) bool { return node != "anothers" },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- u.Run(ctx) }()
		synctest.Wait()
		assert.Empty(t, recorder.Events, "each may have returned a moment ago")

		known.remove("mended")
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
