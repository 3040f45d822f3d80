package robustness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/sabotage"
	"nodekeeper.dev/test/webhooks"
)

const (
	transactions = "node-metadata-transactions"
	metadata     = "node-metadata"

	watcherCount, processorCount = 3, 3

	// requestTimeout bounds the suite's own requests, as servers may be stopped.
	requestTimeout = 5 * time.Second
	// patience bounds the wait for an expected state after all faults are healed. After many failures
	// a reflector retries after up to a minute, and a node's queue after half a minute.
	patience = 3 * time.Minute
	// period is the polling interval.
	period = 100 * time.Millisecond
	// etcdQuota is the maximum size of etcd in bytes; it is large because nothing is compacted.
	etcdQuota = "8589934592"
)

// world is a control plane with programs and users. It is safe for concurrent use.
type world struct {
	scenario scenario
	client   client.Client // with admin permissions
	storage  *storage
	crew     []*process

	plane   *controlplane.ControlPlane
	servers *sabotage.Servers

	mu     sync.Mutex
	blind  []interval
	faults map[string]int // injected faults by type
	failed []string       // failures other than broken promises
	exits  map[string]int // reasons why programs ended by themselves
}

// newWorld starts a control plane, and stops it when the test ends.
func newWorld(t *testing.T, s scenario) *world {
	t.Helper()
	plane, err := controlplane.Start(controlplane.Options{
		APIServerArgs: map[string][]string{"etcd-compaction-interval": {"0"}, "event-ttl": {"5m"}},
		EtcdArgs:      map[string][]string{"quota-backend-bytes": {etcdQuota}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	cfg := rest.CopyConfig(plane.Config)
	cfg.Timeout = requestTimeout
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{plane.EtcdURL()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = etcd.Close() }) // its server may have stopped
	w := &world{
		scenario: s, client: c, plane: plane, faults: map[string]int{}, exits: map[string]int{},
		storage: &storage{etcd: etcd, transactions: transactions, metadata: metadata},
	}
	blindness := &sights{world: w}
	w.servers = &sabotage.Servers{Plane: plane, Before: blindness.goBlind, After: blindness.await}
	for _, name := range []string{transactions, metadata} {
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	w.assemble(t)
	return w
}

// assemble creates the programs, each with its own user and proxy, but does not start them.
func (w *world) assemble(t *testing.T) {
	t.Helper()
	for i := range watcherCount {
		w.crew = append(w.crew, &process{world: w, program: "watcher", name: fmt.Sprintf("watcher-%d", i), isAnchor: w.scenario.hasAnchor && i == 0})
	}
	for i := range processorCount {
		w.crew = append(w.crew, &process{world: w, program: "processor", name: fmt.Sprintf("processor-%d", i), args: w.scenario.processorArgs()})
	}
	if w.scenario.hasWebhook {
		site := webhooks.Site{Namespace: "nodekeeper", Name: "nodekeeper", Twice: true}
		require.NoError(t, site.Install(t.Context(), w.client))
		w.crew = append(w.crew, &process{world: w, program: "webhook", name: "webhook-0", args: site.Flags()})
	}
	for _, p := range w.crew {
		path, err := w.plane.KubeconfigFor(p.name)
		require.NoError(t, err)
		cfg, err := clientcmd.BuildConfigFromFlags("", path)
		require.NoError(t, err)
		p.proxy, err = faultproxy.Start(cfg)
		require.NoError(t, err)
		t.Cleanup(p.proxy.Close)
		p.kubeconfig = filepath.Join(t.TempDir(), p.name)
		require.NoError(t, clientcmd.WriteToFile(p.proxy.Kubeconfig(), p.kubeconfig))
		for _, right := range p.rights() {
			require.NoError(t, w.client.Create(t.Context(), right))
		}
	}
}

// victims are the processes that are not exempt from faults.
func (w *world) victims() []*process {
	var all []*process
	for _, p := range w.crew {
		if !p.isAnchor {
			all = append(all, p)
		}
	}
	return all
}

// fail records a failure other than a broken promise: a program that panicked, a server that does
// not start.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, fmt.Sprintf(format, args...))
}

// keep appends the output of a program to a file, if an output directory is set.
func (w *world) keep(identity, output string) {
	if *logDir == "" {
		return
	}
	file, err := os.OpenFile(filepath.Join(*logDir, identity+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.fail("%v", err)
		return
	}
	_, err = file.WriteString(output)
	if err := errors.Join(err, file.Close()); err != nil {
		w.fail("%v", err)
	}
}

func (w *world) count(counts map[string]int, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts[what]++
}

// goBlind notes that possibly no watcher sees events from a revision on, until the returned
// function is called.
func (w *world) goBlind(from uint64) (end func(to uint64)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.blind)
	w.blind = append(w.blind, interval{from: from, to: ^uint64(0)})
	return func(to uint64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.blind[n].to = to
	}
}

// eventually polls until there is no error or the patience is exhausted, and then returns the
// error.
func eventually(ctx context.Context, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		if !sabotage.Wait(ctx, period) {
			return errors.Join(err, ctx.Err())
		}
	}
}
