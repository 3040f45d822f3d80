package shard

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var req = reconcile.Request{NamespacedName: key}

// stage is a reconciler whose cache and API server can be made to differ.
type stage struct {
	*reconciler

	t      *testing.T
	faults interceptor.Funcs
	// calls counts the calls of the inner reconciler, acknowledged the released objects.
	calls, acknowledged int
}

// newStage returns a stage with no objects. The shard has held its Lease since resourceVersion 100.
func newStage(t *testing.T) *stage {
	t.Helper()
	s, err := New(&rest.Config{}, Options{Ring: "website", Kinds: []client.Object{&corev1.Secret{}}, Name: "web-0", Namespace: "web-system", LeaseDuration: time.Hour})
	require.NoError(t, err)
	s.acquired.Store(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "100"}})
	s.right.renewed(sinceStart())
	s.right.begin()
	stage := &stage{t: t}
	kind := corev1.SchemeGroupVersion.WithKind("Secret")
	g, _ := s.passagesOf(kind, &corev1.Secret{})
	stage.reconciler = &reconciler{shard: s, passages: g, id: g.join(), kind: kind, main: &corev1.Secret{}}
	stage.inner = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		stage.calls++
		return reconcile.Result{}, nil
	})
	s.options.Acknowledged = func(Acknowledgement) { stage.acknowledged++ }
	stage.show(nil)
	stage.store(nil)
	return stage
}

// secret returns a Secret with the given shard and drain labels. An empty string sets no label.
func secret(version, owner, to string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "uid", ResourceVersion: version, Labels: map[string]string{}}}
	for label, value := range map[string]string{"shard.sharding.nodekeeper.dev/website": owner, "drain.sharding.nodekeeper.dev/website": to} {
		if value != "" {
			s.Labels[label] = value
		}
	}
	return s
}

func (s *stage) with(o *corev1.Secret) client.Client {
	b := fake.NewClientBuilder().WithInterceptorFuncs(s.faults)
	if o != nil {
		b = b.WithObjects(o)
	}
	return b.Build()
}

// show makes the cache hold only the given object, or none.
func (s *stage) show(o *corev1.Secret) { s.cache = s.with(o) }

// store makes the API server store only the given object, or none.
func (s *stage) store(o *corev1.Secret) { s.live = s.with(o) }

// has sets both the cache and the API server.
func (s *stage) has(o *corev1.Secret) {
	s.show(o)
	s.store(o)
}

// works reconciles the object and reports whether the inner reconciler was called.
func (s *stage) works() bool {
	s.t.Helper()
	before := s.calls
	_, err := s.Reconcile(s.t.Context(), req)
	require.NoError(s.t, err)
	return s.calls > before
}

func TestReconcilerWorksOnlyOnOwnObjects(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	assert.False(t, s.works(), "no object exists or existed")
	s.has(secret("101", "web-1", ""))
	assert.False(t, s.works(), "the cache has no filter")
	s.has(secret("102", "web-0", "web-0"))
	assert.True(t, s.works(), "it drains to this shard itself")
	s.show(nil)
	s.store(secret("103", "web-1", ""))
	assert.False(t, s.works(), "it has moved")
	s.has(secret("104", "web-0", ""))
	assert.True(t, s.works())
	s.has(nil)
	assert.True(t, s.works(), "it was deleted")
	assert.False(t, s.works(), "the deletion was already handled")
}

// An API server that is behind may return objects of an earlier process of this name.
func TestReconcilerDoesNotTrustACacheFromBefore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.show(secret("99", "web-0", ""))
	s.store(secret("105", "web-1", ""))
	assert.False(t, s.works())
	s.store(nil)
	assert.False(t, s.works())
	s.store(secret("106", "web-0", "web-1"))
	assert.False(t, s.works())
	s.store(secret("99", "web-0", ""))
	assert.True(t, s.works())
	s.store(nil)
	assert.True(t, s.works(), "it is compared only once")
}

func TestReconcilerReleasesOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.has(secret("101", "web-0", ""))
	assert.True(t, s.works())
	s.has(secret("102", "web-0", "web-1"))
	assert.False(t, s.works())
	assert.Equal(t, 1, s.acknowledged)
	stored := &corev1.Secret{}
	require.NoError(t, s.live.Get(t.Context(), key, stored))
	assert.Equal(t, map[string]string{"drain.sharding.nodekeeper.dev/website": "web-1"}, stored.Labels, "it is parked")
	for _, stale := range []*corev1.Secret{secret("102", "web-0", "web-1"), secret("101", "web-0", "")} {
		s.show(stale)
		assert.False(t, s.works(), "the cache is behind")
	}
	assert.Equal(t, 1, s.acknowledged)
	s.has(secret("110", "web-0", ""))
	assert.True(t, s.works(), "the object has returned")
}

// If the ring labels no children, the shard completes the hand-over and no further write is needed.
func TestReconcilerCompletesAHandover(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.shard.direct.Store(true)
	s.has(secret("101", "web-0", "web-1"))
	assert.False(t, s.works())
	assert.Equal(t, 1, s.acknowledged)
	stored := &corev1.Secret{}
	require.NoError(t, s.live.Get(t.Context(), key, stored))
	assert.Equal(t, map[string]string{"shard.sharding.nodekeeper.dev/website": "web-1"}, stored.Labels)

	s.show(secret("120", "web-0", "web-1"))
	s.store(secret("121", "web-0", "web-2"))
	assert.False(t, s.works())
	require.NoError(t, s.live.Get(t.Context(), key, stored))
	assert.Equal(t, "121", stored.ResourceVersion, "the sharder has chosen another shard meanwhile")
	assert.Equal(t, 1, s.acknowledged)
}

// After a lost response it is unknown whether the acknowledgement was stored.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	for name, isStored := range map[string]bool{"stored": true, "not stored": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, isLost := newStage(t), true
			s.faults.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if !isLost {
					return c.Patch(ctx, o, p, opts...)
				}
				if isStored {
					require.NoError(t, c.Patch(ctx, o, p, opts...))
				}
				return errors.New("response lost")
			}
			s.has(secret("101", "web-0", "web-1"))
			_, err := s.Reconcile(t.Context(), req)
			require.Error(t, err)
			s.show(secret("101", "web-0", ""))
			assert.False(t, s.works(), "it may have been released")
			s.show(secret("101", "web-0", "web-1"))
			isLost = false
			assert.False(t, s.works())
			if isStored {
				assert.Zero(t, s.acknowledged)
			} else {
				assert.Equal(t, 1, s.acknowledged, "it is released again")
			}
			s.has(secret("110", "web-0", ""))
			assert.True(t, s.works(), "the move was canceled, or the object has returned")
		})
	}
}

// A policy restores the label silently if the ring does not list the shard's service account. The
// object was not released, and the sharder may let this shard keep it.
func TestRefusedAcknowledgement(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.faults.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
		return c.Get(ctx, client.ObjectKeyFromObject(o), o)
	}
	s.has(secret("101", "web-0", "web-1"))
	for range 2 {
		_, err := s.Reconcile(t.Context(), req)
		require.ErrorIs(t, err, errKept, "it is retried with backoff")
	}
	assert.Zero(t, s.acknowledged)
	s.has(secret("102", "web-0", ""))
	assert.True(t, s.works())
}

func TestReconcilerWithoutRightDoesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.has(secret("101", "web-0", ""))
	s.shard.right.end()
	assert.False(t, s.works())
	s.has(secret("101", "web-0", "web-1"))
	assert.False(t, s.works())
	assert.Zero(t, s.acknowledged)
}

// Each controller of a kind may have something to clean up.
func TestEachControllerHearsThatAnObjectIsGone(t *testing.T) {
	t.Parallel()
	s, calls := newStage(t), 0
	other := *s.reconciler
	other.id = other.passages.join()
	other.inner = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		calls++
		return reconcile.Result{}, nil
	})
	both := func() (bool, bool) {
		other.cache, other.live = s.cache, s.live
		before := calls
		one := s.works()
		_, err := other.Reconcile(t.Context(), req)
		require.NoError(t, err)
		return one, calls > before
	}
	for _, step := range []struct {
		name string
		has  *corev1.Secret
		want bool
	}{
		{"the object exists", secret("101", "web-0", ""), true},
		{"it was deleted", nil, true},
		{"both have handled the deletion", nil, false},
		{"it exists again", secret("104", "web-0", ""), true},
		{"it is released", secret("105", "web-0", "web-1"), false},
		{"another shard deleted it", nil, false},
	} {
		s.has(step.has)
		one, two := both()
		assert.Equal(t, step.want, one, step.name)
		assert.Equal(t, step.want, two, step.name)
	}
}
