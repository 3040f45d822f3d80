package robustness

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/sabotage"
)

// The proxy is tested in its package. This tests that the API server itself treats the faults as
// such.
func TestFaultsAreFeltUntilHealed(t *testing.T) {
	w := newWorld(t, scenario{})
	victim := w.crew[watcherCount]
	c := victim.client(t)
	for name, f := range map[string]sabotage.Fault{
		"full quota":     &fillQuota{world: w, namespace: transactions, name: "full"},
		"revoked rights": &revokeRights{world: w, victims: []*process{victim}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, eventually(t.Context(), func(context.Context) error { return createConfigMap(t, c) }), "the rights are known")
			require.NoError(t, f.Inject(t.Context()))
			require.EventuallyWithT(t, func(collect *assert.CollectT) {
				err := createConfigMap(t, c)
				assert.True(collect, apierrors.IsForbidden(err), "got %v", err)
			}, patience, period)
			require.NoError(t, f.Heal(t.Context()))
			require.NoError(t, eventually(t.Context(), func(context.Context) error { return createConfigMap(t, c) }))
			require.NoError(t, f.Heal(t.Context()), "it may be healed twice")
		})
	}
	t.Run("skewed clocks", func(t *testing.T) {
		f := &skewClocks{sabotage.NewOnTheWay([]*process{victim}, faultproxy.SkewClock{By: -time.Hour})}
		require.NoError(t, f.Inject(t.Context()))
		now := metav1.NowMicro()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: transactions, Name: "n"}}
		lease.Spec.RenewTime = &now
		require.NoError(t, c.Create(t.Context(), lease))
		assert.WithinDuration(t, now.Time, lease.Spec.RenewTime.Time, time.Millisecond)
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
		assert.WithinDuration(t, now.Add(-time.Hour), lease.Spec.RenewTime.Time, time.Millisecond)
	})
}

// client returns a client with the connection and the permissions of the program.
func (p *process) client(t *testing.T) client.Client {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	require.NoError(t, err)
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	return c
}

func createConfigMap(t *testing.T, c client.Client) error {
	t.Helper()
	return c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: transactions, GenerateName: "n-"}})
}
