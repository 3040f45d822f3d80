package library

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/shard"
)

// replica is a shard in this process.
type replica struct {
	c     *cluster
	shard *shard.Shard
	mgr   manager.Manager
	stop  context.CancelFunc
	// err is the result of Start, valid once ended is closed.
	ended chan struct{}
	err   error
}

// setup configures a replica. The zero value has the defaults.
type setup struct {
	config  *rest.Config
	options shard.Options
	manager manager.Options
	// controllers adds the controllers of the replica.
	controllers func(r *replica) error
}

// replica starts a shard of the ring. It ends with the test.
func (c *cluster) replica(name string, s setup) *replica {
	c.t.Helper()
	if s.config == nil {
		s.config = c.config
	}
	s.options.Ring, s.options.Name, s.options.Namespace = c.ring.Name, name, c.namespace
	if s.options.Kinds == nil {
		s.options.Kinds = []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}
	}
	if s.options.LeaseDuration == 0 {
		s.options.LeaseDuration = longLease
	}
	if s.options.LeaveTimeout == 0 {
		s.options.LeaveTimeout = time.Millisecond // most tests do not need the timeout
	}
	s.manager.Metrics = metricsserver.Options{BindAddress: "0"}
	s.manager.Controller = config.Controller{SkipNameValidation: new(true)}
	made, err := shard.New(s.config, s.options)
	require.NoError(c.t, err)
	mgr, err := made.NewManager(s.manager)
	require.NoError(c.t, err)
	r := &replica{c: c, shard: made, mgr: mgr, ended: make(chan struct{})}
	require.NoError(c.t, s.controllers(r))
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	r.stop = stop
	go func() {
		defer close(r.ended)
		r.err = mgr.Start(ctx)
	}()
	c.t.Cleanup(func() {
		stop()
		<-r.ended
	})
	return r
}

// wait returns the result of Start.
func (r *replica) wait() error {
	r.c.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		require.Fail(r.c.t, "the shard does not end")
	}
	return r.err
}

// work is a reconciler of Secrets that records its calls.
type work struct {
	mu    sync.Mutex
	calls map[string]int
	// began is when it was first called.
	began time.Time
	// do is called by each reconcile unless it is nil.
	do func(ctx context.Context, req reconcile.Request) error
}

func (w *work) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w.mu.Lock()
	if w.calls == nil {
		w.calls, w.began = map[string]int{}, time.Now()
	}
	w.calls[req.Name]++
	w.mu.Unlock()
	if w.do != nil {
		return reconcile.Result{}, w.do(ctx, req)
	}
	return reconcile.Result{}, nil
}

// count returns the number of calls for an object.
func (w *work) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[name]
}

// total returns the number of calls.
func (w *work) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, k := range w.calls {
		n += k
	}
	return n
}

// with makes a replica reconcile Secrets.
func with(w *work) setup {
	return setup{controllers: func(r *replica) error { return r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}).Complete(w) }}
}

// shardByHand creates the Lease of a shard that is alive for ten minutes but does not respond.
func (c *cluster) shardByHand(name string) {
	c.t.Helper()
	now := metav1.NowMicro()
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: map[string]string{prefix.RingLabel(): c.ring.Name}, Annotations: map[string]string{prefix.ProtocolAnnotation(): "2"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(600)), RenewTime: &now},
	}
	require.NoError(c.t, c.Create(c.t.Context(), l))
}

// lease returns the Lease of web-0.
func (c *cluster) lease(t require.TestingT) *coordinationv1.Lease { return c.leaseOf(t, "web-0") }

func (c *cluster) leaseOf(t require.TestingT, name string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	require.NoError(t, c.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, l))
	return l
}

// patch applies a merge patch to an object.
func (c *cluster) patch(o client.Object, patch string) {
	c.t.Helper()
	require.NoError(c.t, c.Patch(c.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// has waits until web-0 has all of n Secrets.
func (c *cluster) has(n int) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) { assert.Equal(t, map[string]int{"web-0": n}, c.owners(t)) }, "web-0 has all")
}

// names returns the names of the objects that it was called for.
func (w *work) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.calls))
}
