package cli

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/internal/txn"
)

// TestNothingIsStuckWhile2000DeletedNodesAreSaved, ten in each second, which takes longer than
// --stuck-after. When the processor makes no more progress, all that are left are stuck.
func TestNothingIsStuckWhile2000DeletedNodesAreSaved(t *testing.T) {
	const nodes, each, step = 2000, 200, 20 * time.Second
	synctest.Test(t, func(t *testing.T) {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "members", Name: "p", Labels: map[string]string{ring.Label: inspect.ProcessorService}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("p"), LeaseDurationSeconds: new(int32(15))},
		}
		objects := []client.Object{lease}
		start := time.Now()
		for i := range nodes {
			end := txn.Transaction{
				Type: txn.Deleted, Node: fmt.Sprintf("node-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), Revision: revision.Of("7"),
				Labels: map[string]string{"rack": "r7"}, ObservedAt: start,
			}.ConfigMap("transactions")
			end.CreationTimestamp = metav1.Time{Time: start}
			objects = append(objects, end)
		}
		cluster := &inspect.Cluster{
			Client: faults.Fake().WithObjects(objects...).Build(), TransactionNamespace: "transactions", MetadataNamespace: "metadata", MembershipNamespace: "members",
		}
		look := func() *status {
			survey, err := cluster.Survey(t.Context(), apilabels.Everything())
			require.NoError(t, err)
			return newStatus(survey, nil, time.Now(), time.Minute)
		}
		for saved := 0; saved < nodes-each; {
			time.Sleep(step)
			for _, end := range objects[1+saved : 1+saved+each] {
				require.NoError(t, cluster.Client.Delete(t.Context(), end))
			}
			saved += each
			renew(t, cluster.Client, lease, time.Since(start))
			s := look()
			assert.Equal(t, nodes-saved, s.Pending.Nodes)
			assert.True(t, s.Pending.CatchingUp)
			assert.Empty(t, s.Stuck, "after %s", time.Since(start))
		}
		time.Sleep(31 * time.Second)
		assert.Len(t, look().Stuck, each)
	})
}

// renew renews a Lease of a processor that is late by now.
func renew(t *testing.T, c client.Client, lease *coordinationv1.Lease, by time.Duration) {
	t.Helper()
	at := metav1.NowMicro()
	lease.Spec.RenewTime = &at
	lease.Annotations = map[string]string{settings.LateAnnotation: settings.Late{At: at.Time, By: by}.String()}
	require.NoError(t, c.Update(t.Context(), lease))
}
