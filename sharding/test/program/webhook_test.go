package program

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
	"nodekeeper.dev/test/metrics"
	"nodekeeper.dev/test/ports"
)

// line forwards connections of the API server to a webhook.
type line struct {
	listener net.Listener
	ended    sync.WaitGroup

	mu sync.Mutex
	// to is the address of the webhook.
	to string
	// silent is open while no connection is forwarded, or nil.
	silent chan struct{}
	// delay is how late the answers of the webhook arrive.
	delay time.Duration
	open  map[net.Conn]bool
}

// newLine returns a line that ends with the test.
func newLine(t *testing.T) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &line{listener: listener, open: map[net.Conn]bool{}}
	l.ended.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.ended.Go(func() { l.forward(conn) })
		}
	})
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		l.slowDown(0) // ends all connections
		l.ended.Wait()
	})
	return l
}

// lead ends all connections, and forwards later ones to another address. While silent is set, it
// accepts them and does not forward them.
func (l *line) lead(to string, silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to, l.delay = to, 0
	if l.silent != nil {
		close(l.silent)
		l.silent = nil
	}
	if silent {
		l.silent = make(chan struct{})
	}
	l.closeLocked()
}

// slowDown ends all connections, and delays the answers on later ones.
func (l *line) slowDown(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
	l.closeLocked()
}

func (l *line) closeLocked() {
	for conn := range l.open {
		_ = conn.Close() // it may have ended
	}
}

// begin registers a connection.
func (l *line) begin(conn net.Conn) (to string, delay time.Duration, silent chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[conn] = true
	return l.to, l.delay, l.silent
}

func (l *line) end(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, conn)
	_ = conn.Close() // it may have ended
}

func (l *line) forward(conn net.Conn) {
	defer l.end(conn)
	to, delay, silent := l.begin(conn)
	if silent != nil {
		<-silent
		return
	}
	there, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = there.Close() }() // it may have ended
	l.ended.Go(func() {
		_, _ = io.Copy(there, conn) // the peers handle a broken connection
		_ = there.Close()
	})
	_, _ = io.Copy(delayed{conn, delay}, there)
}

// delayed is a writer that waits before each write.
type delayed struct {
	io.Writer

	delay time.Duration
}

// Write writes after the delay.
func (d delayed) Write(p []byte) (int, error) {
	<-time.After(d.delay)
	return d.Writer.Write(p)
}

// TestCreatesSurviveTheirWebhook covers R21: creates succeed while the webhook is down, slow, does not
// answer, or has a certificate that the API server does not trust. The sharder assigns the objects
// that were created meanwhile.
func TestCreatesSurviveTheirWebhook(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.useWebhook()
	l := newLine(t)
	c.sharder("a", "--webhook-url=https://"+l.listener.Addr().String())
	serves := strings.TrimPrefix(c.webhook[0], "--webhook-bind-address=")
	l.lead(serves, false)
	ring := c.admitting(c.ring(""), "web-0", "web-1")
	c.assignsAtOnce(ring, "healthy")
	stranger := httptest.NewTLSServer(nil)
	defer stranger.Close()
	for name, fault := range map[string]func(){
		"down":        func() { l.lead("127.0.0.1:1", false) },
		"silent":      func() { l.lead(serves, true) },
		"slow":        func() { l.slowDown(3 * time.Second) },
		"not trusted": func() { l.lead(stranger.Listener.Addr().String(), false) },
	} {
		began := time.Now()
		c.assignsAtOnce(ring, "before")
		usual := time.Since(began)
		fault()
		var missed []*corev1.Secret
		for i := range 3 {
			began = time.Now()
			missed = append(missed, c.secret(fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), i)))
			t.Logf("%s: a create takes %s instead of %s", name, time.Since(began), usual)
			assert.Empty(t, missed[i].Labels, "the webhook answers although it is "+name)
		}
		for _, s := range missed {
			require.EventuallyWithT(t, func(collect *assert.CollectT) {
				assert.Equal(collect, placed(ring, slots.Object{Kind: "Secret", Namespace: c.namespace, Name: s.Name}.Key()), c.reread(collect, s).Labels[prefix.ShardLabel(ring.Name)])
			}, patience, period, name)
		}
		l.lead(serves, false)
		c.assignsAtOnce(ring, "after-"+strings.ReplaceAll(name, " ", "-"))
	}
}

// assignsAtOnce waits until new objects have their shard in the first version.
func (c *cluster) assignsAtOnce(ring *v1alpha1.ClusterRing, name string) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		s := secret(c.namespace, name)
		require.NoError(t, c.Create(c.t.Context(), s, client.DryRunAll))
		assert.Equal(t, placed(ring, slots.Object{Kind: "Secret", Namespace: c.namespace, Name: name}.Key()), s.Labels[prefix.ShardLabel(ring.Name)])
	}, patience, period)
}

// TestRotationFailsNoCreate covers R41, and R40 for webhooks: objects are created while the certificate and its authority
// are replaced.
func TestRotationFailsNoCreate(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.useWebhook()
	address, err := ports.Address()
	require.NoError(t, err)
	c.sharder("a", "--metrics-bind-address="+address)
	ring := c.admitting(c.ring(""), "web-0", "web-1")
	certificate := func(t require.TestingT) *corev1.Secret {
		s := &corev1.Secret{}
		require.NoError(t, c.Get(c.t.Context(), types.NamespacedName{Namespace: sharderNamespace, Name: "sharder-webhook"}, s))
		return s
	}
	before := certificate(t)
	load := c.createAll(ring)
	emptied := before.DeepCopy()
	emptied.Data = nil
	assert.NoError(t, c.Update(t.Context(), emptied))
	assert.EventuallyWithT(t, func(t *assert.CollectT) {
		now := certificate(t).Data
		assert.NotEmpty(t, now["tls.crt"])
		assert.NotEqual(t, before.Data["tls.crt"], now["tls.crt"])
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		require.NoError(t, c.Get(c.t.Context(), types.NamespacedName{Name: "sharding-" + ring.Name}, config))
		for _, hook := range config.Webhooks {
			assert.Equal(t, string(now["ca.crt"]), string(hook.ClientConfig.CABundle))
		}
	}, patience, period)
	c.assignsAtOnce(ring, "after")
	load.end(c, ring)
	counted, err := metrics.Scrape(t.Context(), address)
	require.NoError(t, err)
	assert.Positive(t, counted[fmt.Sprintf(`sharder_assignments_total{by="webhook",group="",resource="secrets",ring=%q}`, ring.Name)])
	assert.Positive(t, counted["sharder_webhook_certificate_expiry_timestamp_seconds"])
}

// load creates objects until it ends.
type load struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
	// created is the number of objects, and late that of those without a shard in their first version.
	created, late int
}

// createAll creates Secrets of a ring. No create may fail.
func (c *cluster) createAll(ring *v1alpha1.ClusterRing) *load {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	l := &load{cancel: cancel}
	l.ended.Go(func() {
		for ; ctx.Err() == nil; l.created++ {
			s := secret(c.namespace, fmt.Sprintf("load-%d", l.created))
			if !assert.NoError(c.t, c.Create(c.t.Context(), s)) {
				return
			}
			if s.Labels[prefix.ShardLabel(ring.Name)] == "" { // no answer within a second, on a busy machine
				l.late++
			}
		}
	})
	return l
}

// end waits until all objects have a shard.
func (l *load) end(c *cluster, ring *v1alpha1.ClusterRing) {
	c.t.Helper()
	l.cancel()
	l.ended.Wait()
	c.t.Logf("%d of %d objects were assigned after their creation", l.late, l.created)
	assert.Less(c.t, l.late, max(l.created, 1))
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.NotContains(t, c.shardsOf(t, ring), "")
	})
}

// TestWebhookAssignsAndKeepsLabels runs tests of the policies with the webhook, on an API server that
// would have policies: R15, R16, R18 to R20, F19 and F20.
func TestWebhookAssignsAndKeepsLabels(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	if c.byWebhook {
		t.Skip("the other tests do that on this API server")
	}
	policies := c.sharder("policies")
	ring := c.admitting(c.ring(""), "web-0", "web-1", "web-2")
	require.Len(t, c.policies(t, ring), c.objects())
	require.NoError(t, policies.Stop(stopTimeout))

	c.useWebhook()
	only := c.sharder("webhook")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.installed(t, s)
		assert.Len(t, c.policies(t, ring), c.objects(), "the policies are gone")
	})
	c.firstVersions(ring)
	sticks := c.ring("-sticks")
	sticks.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	sticks.Spec.Resources = append(sticks.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "serviceaccounts"}})
	require.NoError(t, c.Delete(t.Context(), ring))
	c.hasNoPolicies(ring)
	c.admitting(sticks, "other-0")
	c.admissionAlone(only)
	c.acknowledged(sticks, "Secret", false)
	c.acknowledged(sticks, "ServiceAccount", true)
}

// TestWebhookIsRemoved checks that another mode removes what the webhook needs.
func TestWebhookIsRemoved(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.useWebhook()
	first := c.sharder("a")
	ring := c.admitting(c.ring(""), "web-0")
	require.NoError(t, first.Stop(stopTimeout))
	c.sharder("b", "--admission=none")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		admitted(t, s, metav1.ConditionTrue, "Disabled")
		assert.Empty(t, c.policies(t, ring))
	})
}
