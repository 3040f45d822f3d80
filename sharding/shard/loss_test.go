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

// TestWorkOnWhatIsTakenEnds covers the decision about reconciles of an object that has left the
// cache.
func TestWorkOnWhatIsTakenEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stored string // the owner, or ""
		want   error
	}{
		"another shard has it": {"web-1", ErrTaken},
		"no shard has it":      {"", ErrTaken},
		"this shard has it":    {"web-0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.store(secret("103", test.stored, ""))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			require.True(t, s.passages.enter(key, &work{end: cancel}))
			s.endIfTaken(t.Context(), key)
			assert.Equal(t, test.want, context.Cause(ctx))
		})
	}
}

// The object may be created again. A failed read proves nothing.
func TestWorkOnADeletedObjectIsChecked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	reads := 0
	s.faults.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		switch reads++; reads {
		case 1, 2:
			return c.Get(ctx, key, o, opts...) // not found
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
		require.True(t, s.passages.enter(key, &work{end: cancel}))
		began := time.Now()
		go s.endIfTaken(t.Context(), key)
		<-ctx.Done()
		assert.Equal(t, ErrTaken, context.Cause(ctx))
		assert.Equal(t, 4, reads)
		assert.Equal(t, retryPeriod+3*takenPeriod, time.Since(began))
	})
}

// The reconcile begins after the object has left the cache, so no event ends it.
func TestWorkOnADeletionEndsIfTheObjectIsTaken(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	reads := 0
	s.faults.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if reads++; reads == 1 {
			return c.Get(ctx, key, o, opts...) // not found
		}
		secret("104", "web-1", "").DeepCopy().ObjectMeta.DeepCopyInto(metadataIn(o))
		return nil
	}
	s.store(nil)
	s.passages.addWorker(key, "uid", s.id)
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

// Most reconciles of a deleted object end at once, and then nothing is read.
func TestFinishedWorkIsNotChecked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.faults.Get = func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		t.Error("unexpected read")
		return nil
	}
	s.store(nil)
	w := &work{end: func(error) {}}
	require.True(t, s.passages.enter(key, w))
	s.passages.leave(key, w)
	s.endIfTaken(t.Context(), key)
}

// metadataIn returns the metadata of a PartialObjectMetadata.
func metadataIn(o client.Object) *metav1.ObjectMeta {
	return &o.(*metav1.PartialObjectMetadata).ObjectMeta
}
