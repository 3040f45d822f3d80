package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/controller"
	"nodekeeper.dev/placement/internal/poolconfig"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/controlplane"
)

const (
	period, patience = 50 * time.Millisecond, 3 * time.Minute
	// long is a lease duration with which no played pod loses its Lease on a busy machine. short is
	// for tests that wait until a Lease is taken over: until its pod is stopped, it may stall for
	// twice that time.
	long, short = 30 * time.Second, 6 * time.Second
	parallel    = 8
	pool        = "worker"
)

// shared is the API server of all tests. Each has a namespace of its own.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := controlplane.Parallel(parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) {
		shared = c
		if err := install(context.Background(), c.Config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}))
}

// world is a namespace with a controller.
type world struct {
	client.Client

	t         *testing.T
	namespace string
	registry  *prometheus.Registry
	stop      func() // stops the last controller
	work      ledger
	puts      puts
}

// puts counts the updates that controllers have sent, by the path, and has the writes that the API
// server has refused because of what they write.
type puts struct {
	mu      sync.Mutex
	count   map[string]int
	refused []string
}

// refusals returns the writes that were refused.
func (p *puts) refusals() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.refused)
}

// of returns how often an object was updated, or its status.
func (p *puts) of(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[path]
}

// counting counts the updates that it sends.
type counting struct {
	http.RoundTripper
	*puts
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		c.mu.Lock()
		c.count[r.URL.Path]++
		c.mu.Unlock()
	}
	answer, err := c.RoundTripper.RoundTrip(r)
	if err == nil && r.Method != http.MethodGet && slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, answer.StatusCode) {
		c.mu.Lock()
		c.refused = append(c.refused, r.Method+" "+r.URL.Path+": "+answer.Status)
		c.mu.Unlock()
	}
	return answer, err //nolint:wrapcheck // of the wrapped transport
}

// queueKind is the kind Queue in the file of the pools.
const queueKind = "{apiVersion: example.com/v1, kind: Queue, replicasPath: spec.partitions, payloadPath: spec, weightPath: spec.weight, maxPath: spec.most}"

// newWorld starts a controller with a pool in a namespace of its own. The argument has keys of the
// pool besides its name, as one line of YAML.
func newWorld(t *testing.T, keys string, change ...func(*controller.Pool)) *world {
	t.Helper()
	w := emptyWorld(t)
	w.start(keys, change...)
	return w
}

// emptyWorld returns a namespace without a controller.
func emptyWorld(t *testing.T) *world {
	t.Helper()
	c, err := client.New(shared.Config, client.Options{})
	require.NoError(t, err)
	return &world{Client: c, t: t, namespace: controlplane.Namespace(t, c), work: ledger{working: map[unit]work{}, highest: map[unit]work{}, births: map[string]int{}}, puts: puts{count: map[string]int{}}}
}

// start starts another controller of the namespace. It ends with the test, or by stop. The metrics
// are those of the last one.
func (w *world) start(keys string, change ...func(*controller.Pool)) {
	w.t.Helper()
	if !strings.Contains(keys, "kinds:") {
		keys = strings.TrimPrefix(keys+", kinds: ["+queueKind+"]", ", ")
	}
	pools, err := poolconfig.Parse(fmt.Appendf(nil, "pools: [{name: %s, namespace: %s, %s}]", pool, w.namespace, keys))
	require.NoError(w.t, err)
	for _, f := range change {
		f(&pools[0])
	}
	cfg := rest.CopyConfig(shared.Config)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, &w.puts} })
	c, err := controller.New(cfg, pools)
	require.NoError(w.t, err)
	w.registry = prometheus.NewRegistry()
	w.registry.MustRegister(c)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	ended := false
	w.stop = func() {
		if cancel(); !ended {
			ended = true
			assert.NoError(w.t, ignoreCanceled(<-done))
		}
	}
	w.t.Cleanup(w.stop)
	require.Eventually(w.t, c.Synced, patience, period)
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// queue creates a Queue.
func (w *world) queue(name string, partitions int64) *unstructured.Unstructured {
	w.t.Helper()
	q := queues.New(w.namespace, name, partitions)
	require.NoError(w.t, w.Create(w.t.Context(), q))
	w.work.isBorn(string(q.GetUID()))
	return q
}

// patch patches an object.
func (w *world) patch(o client.Object, format string, args ...any) {
	w.t.Helper()
	require.NoError(w.t, w.Patch(w.t.Context(), o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))))
}

// patchStatus patches the status of an object.
func (w *world) patchStatus(o client.Object, patch string) {
	w.t.Helper()
	require.NoError(w.t, w.Status().Patch(w.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// assertCalm asserts that nothing is written to an object while another one is placed.
func (w *world) assertCalm(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o))
	before := o.GetResourceVersion()
	other := w.queue("calm", 1)
	w.await("calm", "Ready", "Ready")
	require.NoError(w.t, w.Delete(w.t.Context(), other))
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		cms := &corev1.ConfigMapList{}
		require.NoError(t, w.List(w.t.Context(), cms, client.InNamespace(w.namespace)))
		for i := range cms.Items {
			assert.NotContains(t, cms.Items[i].Data["contract"], other.GetUID())
		}
	}, patience, period)
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o))
	assert.Equal(w.t, before, o.GetResourceVersion())
}

// status returns the status of a Queue.
func (w *world) status(t require.TestingT, name string) (s placement.Status) {
	q := queues.New(w.namespace, name, 0)
	require.NoError(t, w.Get(w.t.Context(), client.ObjectKeyFromObject(q), q))
	fields, _, err := unstructured.NestedMap(q.Object, "status")
	require.NoError(t, err)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &s))
	return s
}

// await waits until a condition of a Queue has a reason, and returns the status.
func (w *world) await(name, kind, reason string) (s placement.Status) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		s = w.status(t, name)
		c := meta.FindStatusCondition(s.Conditions, kind)
		require.NotNil(t, c)
		assert.Equal(t, reason, c.Reason, c.Message)
	}, patience, period)
	return s
}

// owners returns the pods of a status by index.
func owners(t require.TestingT, s *placement.Status) map[int32]string {
	all := map[int32]string{}
	for i := range s.Placement {
		set, err := s.Placement[i].Set()
		require.NoError(t, err)
		for _, index := range set {
			all[index] = s.Placement[i].PodName
		}
	}
	return all
}

// scrape returns the metrics of the controller, by name and labels.
func (w *world) scrape(t require.TestingT) map[string]float64 {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "/metrics", http.NoBody))
	require.Equal(t, http.StatusOK, answer.Code)
	all := map[string]float64{}
	for line := range strings.Lines(answer.Body.String()) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if number, err := strconv.ParseFloat(value, 64); ok && err == nil {
			all[name] = number
		}
	}
	return all
}

// awaitMetrics waits until metrics have values.
func (w *world) awaitMetrics(want map[string]float64) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		all := w.scrape(t)
		for name, value := range want {
			got, ok := all["placement_"+name]
			assert.True(t, ok, name)
			assert.InDelta(t, value, got, 0, name)
		}
	}, patience, period)
}

// events returns the messages of the events about an object, by reason.
func (w *world) events(t require.TestingT, kind, name string) map[string][]string {
	list := &corev1.EventList{}
	require.NoError(t, w.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	all := map[string][]string{}
	for i := range list.Items {
		if e := &list.Items[i]; e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name {
			all[e.Reason] = append(all[e.Reason], e.Type+": "+e.Message)
		}
	}
	return all
}

// awaitEvent waits for an event whose type and message have a text.
func (w *world) awaitEvent(kind, name, reason, text string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		all := w.events(t, kind, name)
		assert.Contains(t, strings.Join(all[reason], "\n"), text, "%v", all)
	}, patience, period)
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}
