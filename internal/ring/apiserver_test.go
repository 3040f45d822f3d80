package ring_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
	"nodekeeper.dev/test/controlplane"
)

const (
	label = "example.com/ring"
	// leaseDuration is short: a minute by default is twelve seconds here. It must still keep live
	// members alive on a busy machine.
	leaseDuration = 3 * time.Second
	patience      = 3 * time.Minute
	period        = 20 * time.Millisecond
)

// group is the members of one test.
type group struct {
	t         *testing.T
	namespace string
	leases    coordinationv1client.LeaseInterface
}

func newGroup(t *testing.T) *group {
	t.Helper()
	c, err := client.New(api.Config, client.Options{})
	require.NoError(t, err)
	g := &group{t: t, namespace: controlplane.Namespace(t, c)}
	g.leases = coordinationv1client.NewForConfigOrDie(api.Config).Leases(g.namespace)
	return g
}

// joined is a running member.
type joined struct {
	*ring.Member

	leave func()       // stops it and waits until it has stopped
	die   func()       // like kill -9: no more requests
	count func() int32 // its number of writes
}

// severed is a connection to the API server that can be cut.
type severed struct {
	next   http.RoundTripper
	isCut  *atomic.Bool
	writes *atomic.Int32
}

func (s severed) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.isCut.Load() {
		return nil, errors.New("the way is cut")
	}
	if req.Method != http.MethodGet {
		s.writes.Add(1)
	}
	return s.next.RoundTrip(req)
}

// join starts a member of a group, which stops at the end of the test.
func (g *group) join(name, identity string) *joined {
	g.t.Helper()
	var isCut atomic.Bool
	var writes atomic.Int32
	cfg := rest.CopyConfig(api.Config)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return severed{next, &isCut, &writes} })
	c, err := coordinationv1client.NewForConfig(cfg)
	require.NoError(g.t, err)
	m := ring.New(ring.Config{
		Config: shardlease.Config{Client: c, Namespace: g.namespace, Name: identity, Duration: leaseDuration}, GroupLabel: label, Group: name,
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	leave := func() {
		if ctx.Err() == nil {
			cancel()
			assert.NoError(g.t, <-ended)
		}
	}
	g.t.Cleanup(leave)
	return &joined{Member: m, leave: leave, die: func() { isCut.Store(true); leave() }, count: writes.Load}
}

// agree waits until all members see exactly the given group.
func (g *group) agree(want []string, members ...*joined) {
	g.t.Helper()
	require.EventuallyWithT(g.t, func(c *assert.CollectT) {
		for _, m := range members {
			assert.Equal(c, want, m.View().Members())
		}
	}, patience, period)
}

func (g *group) lease(name string) *coordinationv1.Lease {
	g.t.Helper()
	l, err := g.leases.Get(g.t.Context(), name, metav1.GetOptions{})
	require.NoError(g.t, err)
	return l
}

func TestMembersSeeOnlyTheirGroup(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	a, b, c := g.join("watcher", "a"), g.join("watcher", "b"), g.join("processor", "c")
	g.agree([]string{"a", "b"}, a, b)
	g.agree([]string{"c"}, c)
	assert.Equal(t, map[string]string{label: "watcher"}, g.lease("a").Labels)
	for i := range 100 {
		node := "node-" + strconv.Itoa(i)
		assert.Equal(t, 1, a.Place(node).Rank+b.Place(node).Rank, "one of them is the owner of %s", node)
		assert.Equal(t, ring.Place{Owner: "c"}, c.Place(node))
	}
}

func TestStoppedMemberLeavesAtOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	a, b := g.join("watcher", "a"), g.join("watcher", "b")
	g.agree([]string{"a", "b"}, a, b)
	b.leave()
	assert.Empty(t, *g.lease("b").Spec.HolderIdentity, "released before Run returns")
	g.agree([]string{"a"}, a)

	again := g.join("watcher", "b")
	g.agree([]string{"a", "b"}, a, again)
}

func TestDeadMemberIsTakenOverAndRemoved(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	a, b, c := g.join("watcher", "a"), g.join("watcher", "b"), g.join("watcher", "c")
	g.agree([]string{"a", "b", "c"}, a, b, c)
	versions, err := g.leases.Watch(t.Context(), metav1.SingleObject(g.lease("b").ObjectMeta))
	require.NoError(t, err)
	defer versions.Stop()
	died := time.Now()
	b.die()
	g.agree([]string{"a", "c"}, a, c)
	assert.Greater(t, time.Since(died), leaseDuration, "it belongs to the group until it is uncertain")
	var taken *coordinationv1.Lease
	for e := range versions.ResultChan() {
		l, isLease := e.Object.(*coordinationv1.Lease)
		if require.True(t, isLease, "%v", e.Object); *l.Spec.HolderIdentity != "b" {
			taken = l
			break
		}
	}
	require.NotNil(t, taken, "the watch ended")
	assert.Equal(t, "a", *taken.Spec.HolderIdentity, "the first of those that are ready takes it over")
	assert.EqualValues(t, 2*leaseDuration/time.Second, *taken.Spec.LeaseDurationSeconds)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := g.leases.Get(t.Context(), "b", metav1.GetOptions{})
		assert.True(c, apierrors.IsNotFound(err), "%v", err)
	}, patience, period)
	g.agree([]string{"a", "c"}, a)
}

func TestTakenOverMemberReturns(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	a, b := g.join("watcher", "a"), g.join("watcher", "b")
	g.agree([]string{"a", "b"}, a, b)
	l := g.lease("b")
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = new("a"), new(int32(2*leaseDuration/time.Second))
	_, err := g.leases.Update(t.Context(), l, metav1.UpdateOptions{})
	for apierrors.IsConflict(err) { // it has just renewed it
		l.ResourceVersion = g.lease("b").ResourceVersion
		_, err = g.leases.Update(t.Context(), l, metav1.UpdateOptions{})
	}
	require.NoError(t, err)
	g.agree([]string{"a"}, a, b)
	g.agree([]string{"a", "b"}, a, b)
}

func TestDeletedLeaseIsRecreated(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	a := g.join("watcher", "a")
	g.agree([]string{"a"}, a)
	uid := g.lease("a").UID
	require.NoError(t, g.leases.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		l, err := g.leases.Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(c, err)
		assert.NotEqual(c, uid, l.UID)
		assert.Equal(c, []string{"a"}, a.View().Members())
	}, patience, period)
}

func TestLeaseOfABackup(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	a := g.join("watcher", "a")
	g.agree([]string{"a"}, a)
	backup := g.lease("a")
	isSetBack := func(t require.TestingT) bool {
		is, err := a.IsSetBack(g.t.Context())
		require.NoError(t, err)
		return is
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.True(c, g.lease("a").Spec.RenewTime.After(backup.Spec.RenewTime.Time))
	}, patience, period)
	assert.False(t, isSetBack(t))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		backup.ResourceVersion = g.lease("a").ResourceVersion
		_, err := g.leases.Update(t.Context(), backup.DeepCopy(), metav1.UpdateOptions{})
		assert.NoError(c, err)
	}, patience, period)
	assert.True(t, isSetBack(t))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.True(c, g.lease("a").Spec.RenewTime.After(backup.Spec.RenewTime.Time))
	}, patience, period)
	assert.True(t, isSetBack(t), "also once it is renewed")

	b := g.join("watcher", "b")
	g.agree([]string{"a", "b"}, a, b)
	require.NoError(t, g.leases.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	is, err := b.IsSetBack(t.Context())
	require.NoError(t, err)
	assert.False(t, is)
}

// A quiet member renews three times in a lease duration, so every five seconds by default, and
// sends nothing else.
func TestQuietMemberOnlyRenews(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	a, b := g.join("watcher", "a"), g.join("watcher", "b")
	g.agree([]string{"a", "b"}, a, b)
	began, before := time.Now(), a.count()
	timer := time.NewTimer(3 * leaseDuration)
	defer timer.Stop()
	<-timer.C
	renewals := 3 * time.Since(began).Seconds() / leaseDuration.Seconds()
	assert.LessOrEqual(t, float64(a.count()-before), renewals+1)
	g.agree([]string{"a", "b"}, b)
}

// A Lease that cannot be released expires.
func TestMemberStopsWhileAPIServerHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := make(chan struct{})
		defer close(silent)
		c, err := coordinationv1client.NewForConfigAndClient(rest.CopyConfig(api.Config), &http.Client{Transport: silence(silent)})
		require.NoError(t, err)
		m := ring.New(ring.Config{Config: shardlease.Config{Client: c, Namespace: "default", Name: "a"}, GroupLabel: label, Group: "watcher"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		require.NoError(t, m.Run(ctx))
		assert.Less(t, time.Since(began), 4*time.Second)
	})
}

// silence never responds, whatever the request, until it is closed.
type silence chan struct{}

func (s silence) RoundTrip(*http.Request) (*http.Response, error) {
	<-s
	return nil, errors.New("closed")
}

func TestAnnotationsReachOtherMembers(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	a, b := g.join("watcher", "a"), g.join("watcher", "b")
	g.agree([]string{"a", "b"}, a, b)
	changes := b.Changes()
	a.Annotate("example.com/question", "7")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for len(changes) > 0 {
			<-changes
		}
		peers := b.Peers()
		require.Len(c, peers, 1)
		assert.Equal(c, "7", peers[0].Annotations["example.com/question"])
		assert.Equal(c, shardlease.Ready, peers[0].State)
	}, patience, period)
}
