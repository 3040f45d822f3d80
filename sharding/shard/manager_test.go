package shard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/sharding/shardlease"
)

// quiet is a manager that does nothing until its context ends.
type quiet struct {
	manager.Manager

	cause error // of the end of its context
}

func (q *quiet) Start(ctx context.Context) error {
	<-ctx.Done()
	q.cause = context.Cause(ctx)
	return nil
}

// TestEverythingEndsWithTheCauseThatTheLeaseWasLost: what runs in the manager learns why it ends,
// whichever of its contexts ends first.
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
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				since := func() time.Duration { return time.Since(began) }
				s := &Shard{
					right:  newRightBy(10*time.Second, since, since),
					keeper: shardlease.NewKeeper(shardlease.Config{Client: fake.NewClientset().CoordinationV1(), Namespace: "ns", Name: "web-0"}),
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				q, ended := &quiet{}, make(chan error)
				go func() { ended <- (&sharded{Manager: q, shard: s}).Start(ctx) }()
				synctest.Wait()
				tc.end(s, cancel)
				err := <-ended
				assert.ErrorIs(t, q.cause, tc.want)
				assert.Equal(t, errors.Is(tc.want, ErrLeaseLost), err != nil)
				synctest.Wait()
			})
		})
	}
}
