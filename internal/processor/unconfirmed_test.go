package processor_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// unconfirmed returns a detector that has seen an interrupted watch.
func unconfirmed(t *testing.T) *rewind.Detector {
	t.Helper()
	h := rewind.New()
	h.Informers(func(lw toolscache.ListerWatcher, _ runtime.Object, _ time.Duration, _ toolscache.Indexers) toolscache.SharedIndexInformer {
		_, err := toolscache.ToListerWatcherWithContext(lw).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "9"})
		require.Error(t, err)
		return nil
	})(&toolscache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return nil, errors.New("the API server is down")
	}}, nil, 0, nil)
	require.True(t, h.Unconfirmed(time.Now()))
	return h
}

func TestTransactionOfALostFutureIsNotApplied(t *testing.T) {
	t.Parallel()
	saved := record.Record{Labels: set{"rack": "r1"}, Revision: revision.MustParse("9"), Source: "a"}
	for name, tc := range map[string]struct {
		saved *record.Record
		ghost txn.Transaction
		want  record.Record
	}{
		"onto a record":       {&saved, event(txn.Updated, "", "a", "9999", set{"rack": "lost"}), record.Record{Labels: set{"rack": "r2"}, Revision: revision.MustParse("50"), Source: "a"}},
		"of another":          {&saved, event(txn.Deleted, "", "b", "9999", set{"rack": "lost"}), record.Record{Labels: set{"rack": "r2"}, Revision: revision.MustParse("50"), Source: "a"}},
		"as the first record": {nil, event(txn.Added, "", "b", "40", set{"rack": "lost"}), record.Record{Labels: set{"rack": "r2"}, Revision: revision.MustParse("50"), Source: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.name("node")
			tc.ghost.Node, tc.want.Node = node, node
			if tc.saved != nil {
				r := *tc.saved // rows share it
				r.Node = node
				c.save(t, r)
			}
			ghost := tc.ghost.ConfigMap(c.transactions)
			ghost.UID = "lost"
			c.put(t, event(txn.Updated, node, "a", "50", set{"rack": "r2"}))
			c.process(t, setup{history: unconfirmed(t), ghosts: []*corev1.ConfigMap{ghost}})
			c.waitApplied(t, node)
			assert.Equal(t, &tc.want, c.record(t, node), "only transactions in the queue are applied")
		})
	}
}

// A person sets a label on a returned Node and removes it again. Then etcd is restored from a backup
// from before that.
func TestEditsOfALostFutureKeepNoLabelAway(t *testing.T) {
	t.Parallel()
	restored := set{"new": "n", "rack": "r7", "example.com/team": "blue", zone: "a"}
	for name, states := range map[string][]txn.Transaction{
		"set and removed": {{Labels: set{"new": "n", "rack": "r8"}}, {Labels: set{"new": "n"}}},
		"restored":        {{Labels: restored, Marker: lastLife.Revision.String(), Restored: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n, added := c.returned(t, set{"new": "n"}, lastLife)
			var ghosts []*corev1.ConfigMap
			for i, state := range states {
				later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "later-"}}
				require.NoError(t, c.Create(t.Context(), later))
				ghost := event(txn.Updated, n.Name, n.UID, later.ResourceVersion, state.Labels)
				ghost.Marker, ghost.Restored = state.Marker, state.Restored
				cm := ghost.ConfigMap(c.transactions)
				cm.UID = types.UID("lost-" + strconv.Itoa(i))
				ghosts = append(ghosts, cm)
			}
			c.process(t, setup{history: unconfirmed(t), ghosts: ghosts})
			c.put(t, added)
			c.waitApplied(t, n.Name)
			assert.Equal(t, "r7", c.node(t, n.Name).Labels["rack"], "nobody has removed it")
		})
	}
}
