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
	"nodekeeper.dev/test/webhooks"
)

const (
	transactions = "node-metadata-transactions"
	metadata     = "node-metadata"

	watcherCount, processorCount = 3, 3

	// requestTimeout is for one request of the suite itself, which meets stopped servers too.
	requestTimeout = 5 * time.Second
	// patience is how long the suite waits for what must come when everything is healed. A reflector that failed
	// often tries again after up to a minute, a node's queue after half a minute.
	patience = 3 * time.Minute
	// period is the time between two looks.
	period = 100 * time.Millisecond
	// etcdQuota is the size in bytes that etcd may have: nothing is compacted.
	etcdQuota = "8589934592"
)

// world is a control plane with the programs and users in it. It is safe for concurrent use.
type world struct {
	scenario scenario
	client   client.Client // has admin rights
	storage  *storage
	crew     []*process

	serversMu sync.Mutex // held by who stops and starts servers
	plane     *controlplane.ControlPlane

	mu     sync.Mutex
	blind  []interval
	faults map[string]int // how many of each type were injected
	failed []string       // what broke besides promises
	exits  map[string]int // why programs ended by themselves
}

// newWorld starts a control plane, and ends it with the test.
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
	t.Cleanup(func() { _ = etcd.Close() }) // its server may be gone
	w := &world{
		scenario: s, client: c, plane: plane, faults: map[string]int{}, exits: map[string]int{},
		storage: &storage{etcd: etcd, transactions: transactions, metadata: metadata},
	}
	for _, name := range []string{transactions, metadata} {
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	w.assemble(t)
	return w
}

// assemble makes the programs, each with a user and a proxy of its own, but does not start them.
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

// victims are the processes that something may be done to.
func (w *world) victims() []*process {
	var all []*process
	for _, p := range w.crew {
		if !p.isAnchor {
			all = append(all, p)
		}
	}
	return all
}

// fail notes what broke besides the promises: a program that panicked, a server that does not start.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, fmt.Sprintf(format, args...))
}

// keep adds what a program said to a file in the directory that was asked for.
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

// goBlind notes that no watcher may see what happens from a revision on, until see is called.
func (w *world) goBlind(from uint64) (see func(to uint64)) {
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

// eventually looks until there is no error or the patience is at its end, and then returns the error.
func eventually(ctx context.Context, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		if !wait(ctx, period) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// wait returns true after the time, false when ctx is done before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
