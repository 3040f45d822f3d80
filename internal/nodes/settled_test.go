package nodes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"nodekeeper.dev/internal/nodes"
)

// A processor whose clock is wrong counts the age of a Node by the API server's.
func TestAgeOfANodeIsByTheClockOfTheAPIServer(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "a", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))}}
	for name, tc := range map[string]struct {
		clock func(time.Time) time.Time
		want  bool
	}{
		"an hour behind the local one": {func(local time.Time) time.Time { return local.Add(-time.Hour) }, false},
		"like the local one":           {func(local time.Time) time.Time { return local }, true},
		"unknown":                      {nodes.OrLocal(func(time.Time) time.Time { return time.Time{} }), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &nodes.Nodes{Client: fake.NewClientBuilder().WithObjects(node.DeepCopy()).Build(), Clock: tc.clock}
			read, err := n.Get(t.Context(), "node-1")
			require.NoError(t, err)
			assert.Equal(t, tc.want, read.Settled)
			assert.Equal(t, tc.want, read.Age >= time.Hour, "%s", read.Age)
		})
	}
}

// The API server sets the time of creation, so this takes another one.
func TestOldNodesHaveReportedTheirIdentity(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]bool{time.Minute: false, time.Hour: true} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "a", CreationTimestamp: metav1.NewTime(time.Now().Add(-age))}}
		n := &nodes.Nodes{Client: fake.NewClientBuilder().WithObjects(node).Build()}
		read, err := n.Get(t.Context(), "node-1")
		require.NoError(t, err)
		assert.Equal(t, want, read.Settled, age)
		after, err := n.Relabel(t.Context(), read, to(map[string]string{"rack": "r1"}), time.Now())
		require.NoError(t, err)
		assert.Equal(t, want, after.Settled, age)
		assert.Equal(t, "r1", after.Labels["rack"])
	}
}
