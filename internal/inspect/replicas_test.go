package inspect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"nodekeeper.dev/internal/inspect"
)

// lease is one that its holder renewed so long ago. With a service it is that of a replica, else the lock of a node.
func lease(name, holder, service string, renewed time.Duration) *coordinationv1.Lease {
	at := metav1.NewMicroTime(time.Now().Add(-renewed))
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "transactions", Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(5)), RenewTime: &at},
	}
	if service != "" {
		l.Labels = map[string]string{"nodekeeper.dev/ring": service}
	}
	return l
}

func TestSurveyTellsReplicasFromLocks(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(
		lease("w-1", "w-1", "watcher", time.Second),
		lease("p-2", "p-2", "processor", time.Hour), // does not renew it
		lease("p-1", "", "processor", time.Second),  // has released it
		lease("p-3", "w-1", "processor", 0),         // another one has taken it over
		lease("node-2", "p-1", "", time.Second),
		lease("node-1", "p-2", "", time.Minute),
	).Build()
	cluster := &inspect.Cluster{Client: c, TransactionNamespace: "transactions", MetadataNamespace: "metadata"}
	s, err := cluster.Survey(t.Context(), apilabels.Everything())
	require.NoError(t, err)
	assert.Equal(t, []inspect.Replica{
		{Name: "p-1", Service: "processor"},
		{Name: "p-2", Service: "processor"},
		{Name: "p-3", Service: "processor"},
		{Name: "w-1", Service: "watcher", IsAlive: true},
	}, s.Replicas)
	assert.Equal(t, []inspect.Lock{
		{Node: "node-1", Holder: "p-2", IsExpired: true},
		{Node: "node-2", Holder: "p-1"},
	}, s.Locks)
	assert.Empty(t, s.Nodes)
}
