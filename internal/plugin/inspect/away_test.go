package inspect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestAwaySince: the record of a node was written a month ago, and the node was deleted a minute
// ago. The save of its end has written the record again, or not yet.
func TestAwaySince(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	written, saved, deleted := now.Add(-30*24*time.Hour), now.Add(-15*time.Second), now.Add(-time.Minute)
	end := pending(txn.Deleted, 0).Pending[0]
	end.ObservedAt, end.Created = deleted, deleted
	edit := pending(txn.Updated, 0).Pending[0]
	edit.ObservedAt, edit.Created, edit.Revision = saved, saved, revision.MustParse("3")
	for name, tc := range map[string]struct {
		endedAt   time.Time
		isEnded   bool
		pending   []inspect.Pending
		written   time.Time
		want      time.Time
		lastHeard time.Time
	}{
		"its end is pending":              {pending: []inspect.Pending{edit, end}, written: written, want: deleted, lastHeard: written},
		"it was on record before, too":    {isEnded: true, endedAt: written, pending: []inspect.Pending{end}, written: written, want: deleted, lastHeard: written},
		"its end is saved":                {isEnded: true, endedAt: deleted, written: saved, want: deleted, lastHeard: saved},
		"saved by a program without time": {isEnded: true, written: saved, want: saved, lastHeard: saved},
		"its end is unknown":              {pending: []inspect.Pending{edit}, written: written, want: written, lastHeard: written},
	} {
		t.Run(name, func(t *testing.T) {
			cm := record.Record{Node: "node-1", Labels: map[string]string{"rack": "r1"}, Revision: revision.MustParse("5"), Ended: tc.isEnded, EndedAt: tc.endedAt}.ConfigMap("metadata")
			cm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "nodekeeper-processor", Time: &metav1.Time{Time: tc.written}}}
			b := inspect.NewBoard(apilabels.Everything())
			b.SetRecord(cm)
			for _, p := range tc.pending {
				b.SetPending(p)
				b.SetPending(p) // it was touched by a retry
			}
			s, found := b.Summary("node-1")
			require.True(t, found)
			assert.Equal(t, inspect.Away, s.State)
			assert.Equal(t, len(tc.pending), s.Pending)
			assert.Equal(t, tc.want, s.AwaySince.UTC())
			assert.Equal(t, tc.lastHeard, s.LastHeard.UTC())
			n := &inspect.Node{Name: "node-1", Saved: inspect.ParseSaved(cm), Pending: tc.pending}
			assert.Equal(t, tc.want, n.AwaySince().UTC())
			for _, p := range tc.pending {
				b.RemovePending(p)
			}
			s, _ = b.Summary("node-1")
			assert.Zero(t, s.Pending)
		})
	}
}
