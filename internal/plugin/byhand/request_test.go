package byhand_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestPutRetriesIfTheNameIsFreedMeanwhile: a watcher has put the same event. A processor applies
// that one after the API server has refused the other.
func TestPutRetriesIfTheNameIsFreedMeanwhile(t *testing.T) {
	tx := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "live", Revision: revision.MustParse("7"), Labels: set{"rack": "r1"}, AtOnce: true}
	recorded := tx.ConfigMap("transactions")
	c := faults.Fake().WithObjects(recorded).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := client.IgnoreNotFound(c.Delete(ctx, recorded)); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	h := &byhand.Requests{
		Cluster: &inspect.Cluster{Client: c, TransactionNamespace: "transactions"}, Type: txn.Added, Done: "restored",
		Timeout: time.Minute, Progress: func(string, ...any) {},
	}
	require.NoError(t, h.Put(t.Context(), []byhand.Request{{Transaction: tx}}))
	var queued corev1.ConfigMapList
	require.NoError(t, c.List(t.Context(), &queued, client.InNamespace("transactions")))
	assert.Len(t, queued.Items, 1)
}
