package browser_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestAwayCountsFromTheDeletion on the page: the record of a node is a month old, and the node was
// deleted a quarter of an hour ago. First its end is pending; then it is saved, which writes the
// record again.
func TestAwayCountsFromTheDeletion(t *testing.T) {
	written, deleted := time.Now().Add(-30*24*time.Hour), time.Now().Add(-15*time.Minute)
	board := newBoard(t, 1)
	n, before := node(0, "r1")
	recordAt := func(at time.Time, change func(*record.Record)) *corev1.ConfigMap {
		r, err := record.Parse(before)
		require.NoError(t, err)
		change(r)
		cm := r.ConfigMap(metadata)
		cm.ResourceVersion, cm.CreationTimestamp = revision.Of("9").String(), metav1.Time{Time: written}
		cm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "nodekeeper-processor", Time: &metav1.Time{Time: at}}}
		return cm
	}
	old := recordAt(written, func(*record.Record) {})
	board.feed.Record(before, old, false)
	b := newTab(t)
	b.visit(board.url)
	b.until(live)
	const last = `document.querySelector('#rows .row .c-last').textContent`
	b.until(last + ` === ''`) // it is not away

	end := txn.Of(txn.Deleted, nodeview.View{}.OfMetadata(n.DeepCopy()))
	end.ObservedAt = deleted
	pending := end.ConfigMap(transactions)
	pending.CreationTimestamp = metav1.Time{Time: deleted}
	board.feed.Transaction(nil, pending, false)
	board.feed.Node(n, nil, false)
	b.until(`/^away for 1[5-9]m$/.test(` + last + `)`)

	board.feed.Record(old, recordAt(time.Now(), func(r *record.Record) { r.Ended, r.EndedAt = true, deleted }), false)
	board.feed.Transaction(pending, nil, false)
	b.until(`document.querySelector('#rows .row .c-pending').textContent === '0'`)
	b.until(`/^away for 1[5-9]m$/.test(` + last + `)`)
}
