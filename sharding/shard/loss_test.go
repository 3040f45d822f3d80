package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestWorkOnWhatIsTakenEnds is the decision about work on an object that the cache has lost.
func TestWorkOnWhatIsTakenEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stored string // whose it is, "" if nobody's
		want   error
	}{
		"another shard has it": {"web-1", ErrTaken},
		"nobody has it":        {"", ErrTaken},
		"it is ours":           {"web-0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.store(secret("103", test.stored, ""))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			require.True(t, s.gate.enter(key, &work{end: cancel}))
			s.endIfTaken(t.Context(), key)
			assert.Equal(t, test.want, context.Cause(ctx))
		})
	}
}

// TestWorkOnADeletedObjectIsLookedAtAgain: somebody may create the object again. An API server that does not answer proves nothing.
func TestWorkOnADeletedObjectIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	looks := 0
	s.faults.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		switch looks++; looks {
		case 1, 2:
			return c.Get(ctx, key, o, opts...) // it is deleted
		case 3:
			return apierrors.NewInternalError(context.DeadlineExceeded)
		}
		secret("104", "web-1", "").DeepCopy().ObjectMeta.DeepCopyInto(metadataIn(o))
		return nil
	}
	s.store(nil)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		require.True(t, s.gate.enter(key, &work{end: cancel}))
		began := time.Now()
		go s.endIfTaken(t.Context(), key)
		<-ctx.Done()
		assert.Equal(t, ErrTaken, context.Cause(ctx))
		assert.Equal(t, 4, looks)
		assert.Equal(t, retryPeriod+3*takenPeriod, time.Since(began))
	})
}

// TestWorkOnADeletionEndsIfTheObjectIsTaken: it begins after the cache has lost the object, so no event ends it.
func TestWorkOnADeletionEndsIfTheObjectIsTaken(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	looks := 0
	s.faults.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if looks++; looks == 1 {
			return c.Get(ctx, key, o, opts...) // it is deleted
		}
		secret("104", "web-1", "").DeepCopy().ObjectMeta.DeepCopyInto(metadataIn(o))
		return nil
	}
	s.store(nil)
	s.gate.know(key, "uid", s.as)
	var cause error
	s.inner = reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		<-ctx.Done()
		cause = context.Cause(ctx)
		return reconcile.Result{}, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.Reconcile(ctx, req)
	require.NoError(t, err)
	assert.Equal(t, ErrTaken, cause)
}

// TestNobodyLooksAfterWorkIsDone: work on a deleted object mostly ends at once.
func TestNobodyLooksAfterWorkIsDone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.faults.Get = func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		t.Error("the API server is asked")
		return nil
	}
	s.store(nil)
	w := &work{end: func(error) {}}
	require.True(t, s.gate.enter(key, w))
	s.gate.leave(key, w)
	s.endIfTaken(t.Context(), key)
}

// metadataIn returns the metadata that is read into an object.
func metadataIn(o client.Object) *metav1.ObjectMeta {
	return &o.(*metav1.PartialObjectMetadata).ObjectMeta
}
