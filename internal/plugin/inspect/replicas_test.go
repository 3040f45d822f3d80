package inspect_test

import (
	"cmp"
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
	"nodekeeper.dev/internal/service/settings"
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

func TestSurveyReportsReplicasAndLocks(t *testing.T) {
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
		heard := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: time.Now().Add(-ago)} }
		assert.Equal(t, []inspect.Replica{
			{Name: "p-2", Service: "processor", Heard: heard(time.Hour), Silence: time.Hour},
			{Name: "p-4", Service: "processor", IsAlive: true, Heard: heard(-time.Second)},
			{Name: "p-5", Service: "processor"},
			{Name: "w-1", Service: "watcher", IsAlive: true, Heard: heard(time.Second)},
		}, s.Replicas)
		assert.Equal(t, []inspect.Lock{
			{Node: "node-1", Holder: "p-2", IsExpired: true},
			{Node: "node-2", Holder: "p-1"},
		}, s.Locks)
		assert.Empty(t, s.Nodes)
	})
}

// TestKilledReplicaIsSilentWhileItCountsAsAlive: its Lease has not ended.
func TestKilledReplicaIsSilentWhileItCountsAsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		for since, silent := range map[time.Duration]bool{0: false, 5 * time.Second: false, 9 * time.Second: false, 11 * time.Second: true, 14 * time.Second: true} {
			l := place("p", "p", "processor", since)
			l.Spec.LeaseDurationSeconds = new(int32(15))
			r := inspect.ReplicasOf([]*coordinationv1.Lease{l}, time.Now())[0]
			assert.True(t, r.IsAlive, since)
			assert.Equal(t, silent, r.Silence > 0, "%s: %s", since, r.Silence)
		}
	})
}

// TestProcessorCatchesUp for half a minute after it has applied its last late transaction, whatever
// its clock shows.
func TestProcessorCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		now := time.Now()
		for name, tc := range map[string]struct {
			ahead         time.Duration // the clock of the processor
			renewed, late time.Duration // how long ago
			text          string
			want          bool
		}{
			"at once":                          {want: true},
			"since":                            {renewed: 4 * time.Second, late: 25 * time.Second, want: true},
			"no longer":                        {renewed: 4 * time.Second, late: 35 * time.Second},
			"with a clock that is ahead":       {ahead: 20 * time.Second, renewed: 4 * time.Second, late: 25 * time.Second, want: true},
			"no longer, with such a clock":     {ahead: 20 * time.Second, renewed: 4 * time.Second, late: 35 * time.Second},
			"with a clock that is far ahead":   {ahead: time.Hour, renewed: 4 * time.Second, late: 25 * time.Second},
			"after its clock was set back":     {renewed: 4 * time.Second, late: -time.Hour},
			"but it died":                      {renewed: time.Minute, late: time.Minute},
			"with a text that is none":         {text: "soon"},
			"with the text of another release": {text: now.UTC().Format(time.RFC3339)},
		} {
			l := place("p", "p", "processor", tc.renewed-tc.ahead)
			l.Spec.LeaseDurationSeconds = new(int32(15))
			late := settings.Late{At: now.Add(tc.ahead - tc.late), By: time.Minute}
			l.Annotations = map[string]string{"nodekeeper.dev/applied-late": cmp.Or(tc.text, late.String())}
			got := inspect.ReplicasOf([]*coordinationv1.Lease{l}, now)[0].LateBy
			if assert.Equal(t, tc.want, got != nil, name) && tc.want {
				assert.Equal(t, time.Minute, got.Duration, name)
			}
			l.Labels["nodekeeper.dev/ring"] = "watcher"
			assert.Nil(t, inspect.ReplicasOf([]*coordinationv1.Lease{l}, now)[0].LateBy, "%s, of a watcher", name)
		}
	})
}

// TestSlowReadIsNotTheSilenceOfReplicas: in a large cluster, the Nodes take longer to read than the
// Leases.
func TestSlowReadIsNotTheSilenceOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := faults.Client(faults.Fake().WithObjects(place("p-1", "p-1", "processor", 0)).Build(), &faults.Slow{Calls: faults.Calls{Kind: "Node"}, Delay: 14 * time.Second})
		cluster := &inspect.Cluster{Client: slow, TransactionNamespace: "transactions", MetadataNamespace: "metadata", MembershipNamespace: "members"}
		s, err := cluster.Survey(t.Context(), apilabels.Everything())
		require.NoError(t, err)
		require.Len(t, s.Replicas, 1)
		assert.True(t, s.Replicas[0].IsAlive)
		assert.Zero(t, s.Replicas[0].Silence)
	})
}

// TestReplicasGoByTheClockOfTheCluster and not by a wrong local clock.
func TestReplicasGoByTheClockOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := faults.Fake().WithObjects(place("p-1", "p-1", "processor", -time.Hour), place("p-2", "p-2", "processor", 0)).Build()
		cluster := &inspect.Cluster{Client: c, MembershipNamespace: "members", Clock: func(now time.Time) time.Time { return now.Add(time.Hour) }}
		replicas, err := cluster.Replicas(t.Context())
		require.NoError(t, err)
		require.Len(t, replicas, 2)
		assert.True(t, replicas[0].IsAlive)
		assert.Zero(t, replicas[0].Silence)
		assert.False(t, replicas[1].IsAlive)
		assert.Equal(t, time.Hour, replicas[1].Silence)
	})
}
