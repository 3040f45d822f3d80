package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/shard"
	"nodekeeper.dev/test/programs"
)

// sleeperEnv is the environment variable that makes the test binary run a sleeper.
const sleeperEnv = "SHARDING_TEST_SLEEPER"

// roundAnnotation marks a Deployment on which a sleeper has a write to do.
const roundAnnotation = "example.com/round"

// The writes of a sleeper. The name of a Deployment begins with the one that it gets.
const (
	writesObject     = "object"
	writesStatus     = "status"
	deletesObject    = "deletion"
	writesChild      = "child"
	deletesChild     = "childless"
	createsNextChild = "creation"
)

// sleeper configures a process of the test binary that is a shard of Deployments with ConfigMaps.
// It can be frozen with requests in hand: they have passed the checks of the library, and wait
// inside the transport for a SIGCONT before they are sent.
type sleeper struct {
	Kubeconfig, Ring, Namespace, Name, Journal string

	LeaseDuration time.Duration
	// Hold is the number of requests that are kept in hand, or 0.
	Hold int
}

// start runs a sleeper. It is killed at the end of the test.
func (s sleeper) start(t *testing.T) *programs.Program {
	t.Helper()
	encoded, err := json.Marshal(s)
	require.NoError(t, err)
	file, err := os.Executable()
	require.NoError(t, err)
	p, err := programs.LaunchFile([]string{sleeperEnv + "=" + string(encoded)}, file, "sleeper", s.Name)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, p.Kill())
		if t.Failed() {
			t.Logf("%s:\n%s", s.Name, p.Output())
		}
	})
	return p
}

// runSleeper runs the sleeper that the environment describes until it is killed or loses its Lease.
func runSleeper(encoded string) error {
	var s sleeper
	if err := json.Unmarshal([]byte(encoded), &s); err != nil {
		return err
	}
	logf.SetLogger(logr.Discard())
	cfg, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return err
	}
	h := newHand(s.Hold)
	cfg.QPS, cfg.UserAgent = -1, "sleeper/"+s.Name
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return holding{h, next} }) // before the library adds its checks around it
	made, err := shard.New(cfg, shard.Options{
		Ring: s.Ring, Name: s.Name, Namespace: s.Namespace, LeaseDuration: s.LeaseDuration,
		Kinds: []client.Object{&appsv1.Deployment{}, &corev1.ConfigMap{}},
	})
	if err != nil {
		return err
	}
	mgr, err := made.NewManager(manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{s.Namespace: {}}},
	})
	if err != nil {
		return err
	}
	err = made.ControllerManagedBy(mgr).For(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: max(s.Hold, 5)}).Complete(&sleepy{sleeper: s, client: mgr.GetClient()})
	if err != nil {
		return err
	}
	err = mgr.Start(context.Background())
	h.sent.Wait() // what was in hand is sent even if the process is about to end
	return err
}

// hand keeps requests until the process gets a SIGCONT.
type hand struct {
	size int
	woke chan struct{} // closed by the signal
	sent sync.WaitGroup

	mu   sync.Mutex
	held int
}

func newHand(size int) *hand {
	h := &hand{size: size, woke: make(chan struct{})}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCONT)
	go func() {
		<-signals
		close(h.woke)
	}()
	return h
}

// hold waits for the SIGCONT, and writes a line when the hand is full.
func (h *hand) hold() {
	h.mu.Lock()
	h.held++
	if h.held == h.size {
		fmt.Fprintln(os.Stderr, "all requests are in hand")
	}
	h.mu.Unlock()
	<-h.woke
}

// holding is a transport that keeps marked requests in hand.
type holding struct {
	hand *hand
	next http.RoundTripper
}

// markedKey marks the context of the requests that are kept in hand.
type markedKey struct{}

// inHandSuffix ends the user agent of the requests that were kept in hand.
const inHandSuffix = " (in hand)"

// RoundTrip sends a request. A request that was kept in hand is sent even if its context has ended
// meanwhile, like one that is already on its way. Its user agent shows that it was in hand.
func (h holding) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Context().Value(markedKey{}) != nil {
		h.hand.sent.Add(1)
		defer h.hand.sent.Done()
		h.hand.hold()
		req = req.Clone(context.WithoutCancel(req.Context()))
		req.Header.Set("User-Agent", req.Header.Get("User-Agent")+inHandSuffix)
	}
	return h.next.RoundTrip(req)
}

// sleepy is the reconciler of a sleeper.
type sleepy struct {
	sleeper

	client client.Client
	// marked is whether a write of a Deployment was kept in hand, once for each.
	marked sync.Map
}

// Reconcile gives a Deployment a ConfigMap, and does the write of a marked one.
func (r *sleepy) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	d := &appsv1.Deployment{}
	if err := r.client.Get(ctx, req.NamespacedName, d); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.record("begin", d); err != nil {
		return reconcile.Result{}, err
	}
	err := r.reconcile(ctx, d)
	return reconcile.Result{}, errors.Join(err, r.record("end", d))
}

func (r *sleepy) reconcile(ctx context.Context, d *appsv1.Deployment) error {
	child := childOf(d, "of-")
	if d.Annotations[roundAnnotation] == "" {
		_, err := controllerutil.CreateOrUpdate(ctx, r.client, child, func() error {
			return controllerutil.SetControllerReference(d, child, r.client.Scheme())
		})
		return client.IgnoreAlreadyExists(err) // the cache will catch up
	}
	if _, done := r.marked.LoadOrStore(d.UID, true); r.Hold > 0 && !done {
		ctx = context.WithValue(ctx, markedKey{}, true)
	}
	return r.write(ctx, d, child)
}

// write does the write that a Deployment gets, without a condition on its version. Only the sleeper
// with a hand deletes.
func (r *sleepy) write(ctx context.Context, d *appsv1.Deployment, child *corev1.ConfigMap) error {
	what, _, _ := strings.Cut(d.Name, "-")
	switch {
	case what == writesObject:
		return r.client.Patch(ctx, stub(d), merge(`{"metadata":{"annotations":{"example.com/by":%q}}}`, r.Name))
	case what == writesStatus:
		return r.client.Status().Patch(ctx, stub(d), merge(`{"status":{"conditions":[{"type":"By","status":"True","reason":%q}]}}`, r.Name))
	case what == writesChild:
		return r.client.Patch(ctx, child, merge(`{"data":{"by":%q}}`, r.Name))
	case what == createsNextChild:
		child = childOf(d, "next-of-")
		child.Data = map[string]string{"by": r.Name}
		if err := controllerutil.SetControllerReference(d, child, r.client.Scheme()); err != nil {
			return err
		}
		return client.IgnoreAlreadyExists(r.client.Create(ctx, child))
	case what == deletesObject && r.Hold > 0:
		return r.client.Delete(ctx, stub(d))
	case what == deletesChild && r.Hold > 0:
		return r.client.Delete(ctx, child)
	}
	return nil
}

// record appends to the journal.
func (r *sleepy) record(event string, d *appsv1.Deployment) error {
	line, err := json.Marshal(entry{Event: event, Shard: r.Name, Name: d.Name, UID: string(d.UID), ResourceVersion: d.ResourceVersion, Ns: monotonic()})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(r.Journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// stub returns an object that identifies a Deployment.
func stub(d *appsv1.Deployment) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
}

func childOf(d *appsv1.Deployment, prefix string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: prefix + d.Name}}
}

func merge(format, by string) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, by))
}
