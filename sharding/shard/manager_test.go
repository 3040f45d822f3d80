package shard

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/shardlease"
)

// Runnables in the manager can determine from the cause why their context ended, whichever context ends
// first.
func TestEverythingEndsWithTheCauseThatTheLeaseWasLost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(s *Shard, cancel context.CancelFunc)
		want error
	}{
		"lost":   {func(s *Shard, _ context.CancelFunc) { s.right.end() }, ErrLeaseLost},
		"leaves": {func(_ *Shard, cancel context.CancelFunc) { cancel() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Shard{
				config: &rest.Config{}, options: Options{Ring: "ring", Name: "web-0", LabelPrefix: v1alpha1.DefaultPrefix}, right: newRight(time.Hour),
				keeper: shardlease.NewKeeper(shardlease.Config{Client: fake.NewClientset().CoordinationV1(), Namespace: "ns", Name: "web-0"}),
			}
			mgr, err := s.NewManager(manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var cause error
			require.NoError(t, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				tc.end(s, cancel)
				<-ctx.Done()
				cause = context.Cause(ctx)
				return nil
			})))
			err = mgr.Start(ctx)
			assert.ErrorIs(t, cause, tc.want)
			assert.Equal(t, errors.Is(tc.want, ErrLeaseLost), err != nil)
		})
	}
}
