package shard

import (
	"context"
	"errors"
	"testing"

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

// stage is a reconciler between a cache and an API server, which a test makes differ.
type stage struct {
	*reconciler

	t      *testing.T
	faults interceptor.Funcs
	// calls is how often the inner reconciler was called.
	calls, acknowledged int
}

// newStage returns a stage on which nothing is stored. The shard has had its Lease since resourceVersion 100.
func newStage(t *testing.T) *stage {
	t.Helper()
	s, err := New(&rest.Config{}, Options{Ring: "website", Kinds: []client.Object{&corev1.Secret{}}, Name: "web-0", Namespace: "web-system"})
	require.NoError(t, err)
	s.acquired.Store(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "100"}})
	s.right.renewed(sinceStart())
	s.right.begin()
	stage := &stage{t: t}
	kind := corev1.SchemeGroupVersion.WithKind("Secret")
	g, _ := s.gateOf(kind, &corev1.Secret{})
	stage.reconciler = &reconciler{shard: s, gate: g, as: g.join(), kind: kind, main: &corev1.Secret{}}
	stage.inner = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		stage.calls++
		return reconcile.Result{}, nil
	})
	s.options.Acknowledged = func(Acknowledgement) { stage.acknowledged++ }
	stage.show(nil)
	stage.store(nil)
	return stage
}

// secret returns one of a shard that another one gets, "" for nobody.
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

// show makes the cache show an object, or nothing.
func (s *stage) show(o *corev1.Secret) { s.cache = s.with(o) }

// store makes the API server store an object, or nothing.
func (s *stage) store(o *corev1.Secret) { s.live = s.with(o) }

// has makes both have the same.
func (s *stage) has(o *corev1.Secret) {
	s.show(o)
	s.store(o)
}

// works reconciles the object, and reports whether the inner reconciler was called.
func (s *stage) works() bool {
	s.t.Helper()
	before := s.calls
	_, err := s.Reconcile(s.t.Context(), req)
	require.NoError(s.t, err)
	return s.calls > before
}

func TestReconcilerWorksOnOwnObjectsAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	assert.False(t, s.works(), "there is none, and there was none")
	s.has(secret("101", "web-1", ""))
	assert.False(t, s.works(), "a cache without a filter")
	s.has(secret("102", "web-0", "web-0"))
	assert.True(t, s.works(), "nobody else gets it")
	s.show(nil)
	s.store(secret("103", "web-1", ""))
	assert.False(t, s.works(), "it has moved")
	s.has(secret("104", "web-0", ""))
	assert.True(t, s.works())
	s.has(nil)
	assert.True(t, s.works(), "it was deleted")
	assert.False(t, s.works(), "which is known by now")
}

// TestReconcilerDoesNotTrustACacheFromBefore: an API server that is behind may show what a former process of this name had.
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
	assert.True(t, s.works(), "it is not compared again")
}

func TestReconcilerGivesAwayOnce(t *testing.T) {
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
	assert.True(t, s.works(), "it has come back")
}

// TestReconcilerCompletesAHandover when the sharder has said that no objects have children: nobody needs to write the object again.
func TestReconcilerCompletesAHandover(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.shard.isDirect.Store(true)
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
	assert.Equal(t, "121", stored.ResourceVersion, "the sharder has chosen another shard since")
	assert.Equal(t, 1, s.acknowledged)
}

// TestLostAcknowledgement: nobody knows whether it was stored.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	for name, isStored := range map[string]bool{"it was": true, "it was not": false} {
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
				return errors.New("the answer was lost")
			}
			s.has(secret("101", "web-0", "web-1"))
			_, err := s.Reconcile(t.Context(), req)
			require.Error(t, err)
			s.show(secret("101", "web-0", ""))
			assert.False(t, s.works(), "it may have been given away")
			s.show(secret("101", "web-0", "web-1"))
			isLost = false
			assert.False(t, s.works())
			if isStored {
				assert.Zero(t, s.acknowledged)
			} else {
				assert.Equal(t, 1, s.acknowledged, "it is given away again")
			}
			s.has(secret("110", "web-0", ""))
			assert.True(t, s.works(), "the sharder has changed its mind, or it has come back")
		})
	}
}

// TestRefusedAcknowledgement: a policy puts the label back without a word if the ring does not know the account of the shard. The object was not
// given away, and the sharder may let this shard keep it.
func TestRefusedAcknowledgement(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.faults.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
		return c.Get(ctx, client.ObjectKeyFromObject(o), o)
	}
	s.has(secret("101", "web-0", "web-1"))
	for range 2 {
		_, err := s.Reconcile(t.Context(), req)
		require.ErrorIs(t, err, errKept, "it is tried again, with a backoff")
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

// TestEachControllerHearsThatAnObjectIsGone: several controllers of a kind can each have something to clean up.
func TestEachControllerHearsThatAnObjectIsGone(t *testing.T) {
	t.Parallel()
	s, calls := newStage(t), 0
	other := *s.reconciler
	other.as = other.gate.join()
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
		what string
		has  *corev1.Secret
		want bool
	}{
		{"it is there", secret("101", "web-0", ""), true},
		{"it was deleted", nil, true},
		{"both know that", nil, false},
		{"it is there again", secret("104", "web-0", ""), true},
		{"it is given away", secret("105", "web-0", "web-1"), false},
		{"it was deleted elsewhere", nil, false},
	} {
		s.has(step.has)
		one, two := both()
		assert.Equal(t, step.want, one, step.what)
		assert.Equal(t, step.want, two, step.what)
	}
}
