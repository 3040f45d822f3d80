package inspect_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/plugin/inspect"
)

// lock returns the lock of a node with this time since its renewal.
func lock(name, holder string, renewed time.Duration) *coordinationv1.Lease {
	at := metav1.NewMicroTime(time.Now().Add(-renewed))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "transactions", Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(5)), RenewTime: &at},
	}
}

// place returns the Lease of a replica.
func place(name, holder, service string, renewed time.Duration) *coordinationv1.Lease {
	l := lock(name, holder, renewed)
	l.Namespace, l.Labels = "members", map[string]string{"nodekeeper.dev/ring": service}
	return l
}

func TestSurveyTellsWhoIsAtWorkAndWhatIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		neverRenewed, stranger := place("p-5", "p-5", "processor", 0), place("somebody", "somebody", "", 0)
		neverRenewed.Spec.RenewTime, stranger.Labels = nil, nil
		c := faults.Fake().WithObjects(
			place("w-1", "w-1", "watcher", time.Second),
			place("p-2", "p-2", "processor", time.Hour), // does not renew it
			place("p-1", "", "processor", time.Second),  // has ended
			place("p-3", "p-4", "processor", 0),         // was taken over
			place("p-4", "p-4", "processor", -time.Second),
			neverRenewed,
			stranger,
			lock("node-2", "p-1", time.Second),
			lock("node-1", "p-2", time.Minute),
		).Build()
		cluster := &inspect.Cluster{Client: c, TransactionNamespace: "transactions", MetadataNamespace: "metadata", MembershipNamespace: "members"}
		s, err := cluster.Survey(t.Context(), apilabels.Everything())
		require.NoError(t, err)
		assert.Equal(t, []inspect.Replica{
			{Name: "p-2", Service: "processor"},
			{Name: "p-4", Service: "processor", IsAlive: true},
			{Name: "p-5", Service: "processor"},
			{Name: "w-1", Service: "watcher", IsAlive: true},
		}, s.Replicas)
		assert.Equal(t, []inspect.Lock{
			{Node: "node-1", Holder: "p-2", IsExpired: true},
			{Node: "node-2", Holder: "p-1"},
		}, s.Locks)
		assert.Empty(t, s.Nodes)
	})
}

// TestReplicasGoByTheClockOfTheCluster and not by a wrong local clock.
func TestReplicasGoByTheClockOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := faults.Fake().WithObjects(place("p-1", "p-1", "processor", -time.Hour), place("p-2", "p-2", "processor", 0)).Build()
		cluster := &inspect.Cluster{Client: c, MembershipNamespace: "members", Clock: func(now time.Time) time.Time { return now.Add(time.Hour) }}
		replicas, err := cluster.Replicas(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []inspect.Replica{{Name: "p-1", Service: "processor", IsAlive: true}, {Name: "p-2", Service: "processor"}}, replicas)
	})
}
