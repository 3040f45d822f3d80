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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/sabotage"
)

const (
	namespace, pool, set = "shop", "worker", "w"

	controllerCount, podCount = 2, 4

	// leaseDuration is that of agents. It is short, so that many Leases are lost and taken over in a
	// run, and long enough for a busy machine.
	leaseDuration = 5 * time.Second
	// setPatience is shorter than the time until a Lease is taken over.
	setPatience = 8 * time.Second

	// requestTimeout bounds the suite's own requests, as servers may be stopped.
	requestTimeout = 5 * time.Second
	// patience bounds the wait for what has no promised time.
	patience = 3 * time.Minute
	// period is the polling interval.
	period = 100 * time.Millisecond
)

// world is a control plane with programs and people. It is safe for concurrent use.
type world struct {
	scenario scenario
	client   client.WithWatch // with admin permissions, and without faults
	servers  *sabotage.Servers
	dir      string // of the journal
	pools    string // the file with the pool

	controllers, pods []*process
	observer          *observer

	mu       sync.Mutex
	log      []string       // of faults
	faults   map[string]int // injected faults by type
	failed   []string       // failures other than broken promises
	exits    map[string]int // reasons why programs ended by themselves
	restores []pastRestore
	// troubled are the times in which a controller or a server had a fault, by the clock of the journal.
	troubled []interval
	names    int // the last number in the name of a pod
}

// newWorld starts a control plane, and stops it when the test ends.
func newWorld(t *testing.T, s scenario) *world {
	t.Helper()
	plane, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	require.NoError(t, queues.Install(t.Context(), plane.Config))
	cfg := rest.CopyConfig(plane.Config)
	cfg.QPS = -1
	c, err := client.NewWithWatch(cfg, client.Options{})
	require.NoError(t, err)
	w := &world{
		scenario: s, client: c, servers: &sabotage.Servers{Plane: plane}, dir: t.TempDir(),
		faults: map[string]int{}, exits: map[string]int{},
	}
	w.observer = &observer{world: w, running: map[string]*spell{}, spent: map[string]bool{}}
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	if s.isSet {
		require.NoError(t, c.Create(t.Context(), statefulSet()))
	}
	w.pools = filepath.Join(t.TempDir(), "pools.yaml")
	require.NoError(t, os.WriteFile(w.pools, []byte(w.poolConfig()), 0o600))
	w.assemble(t, cfg)
	return w
}

// statefulSet returns the StatefulSet of the pool. Nothing creates its pods but this test.
func statefulSet() *appsv1.StatefulSet {
	labels := map[string]string{"app": set}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: set},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(podCount)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "worker"}}}},
		},
	}
}

func (w *world) poolConfig() string {
	more := ""
	if w.scenario.isSet {
		more = fmt.Sprintf("  statefulSet: %s\n  patience: %s\n", set, setPatience)
	}
	return fmt.Sprintf(`pools:
- name: %s
  namespace: %s
%s  kinds: [{apiVersion: example.com/v1, kind: Queue, replicasPath: spec.partitions, payloadPath: spec, statusPath: status}]
`, pool, namespace, more)
}

// assemble creates the programs, each with its own proxy, but does not start them.
func (w *world) assemble(t *testing.T, cfg *rest.Config) {
	t.Helper()
	for i := range controllerCount {
		w.controllers = append(w.controllers, &process{world: w, name: fmt.Sprintf("controller-%d", i)})
	}
	for i := range podCount {
		w.pods = append(w.pods, &process{world: w, slot: i, isAgent: true})
		w.pods[i].renew()
	}
	for i, p := range w.all() {
		var err error
		p.proxy, err = faultproxy.Start(cfg)
		require.NoError(t, err)
		t.Cleanup(p.proxy.Close)
		p.kubeconfig = filepath.Join(t.TempDir(), fmt.Sprintf("kubeconfig-%d", i))
		require.NoError(t, clientcmd.WriteToFile(p.proxy.Kubeconfig(), p.kubeconfig))
	}
}

func (w *world) all() []*process { return append(append([]*process(nil), w.controllers...), w.pods...) }

// podName returns the name of the next pod of a slot.
func (w *world) podName(slot int) string {
	if w.scenario.isSet {
		return fmt.Sprintf("%s-%d", set, slot)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names++
	return fmt.Sprintf("%s-%d", set, w.names)
}

// note adds a line to the log of faults.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%10.3f ", float64(now())/1e9) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, line)
}

// fail records a failure other than a broken promise: a program that panicked, a server that does
// not start.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, fmt.Sprintf(format, args...))
}

// keep appends the output of a program to a file, if an output directory is set.
func (w *world) keep(p *programs.Program) {
	if *logDir == "" {
		return
	}
	file, err := os.OpenFile(filepath.Join(*logDir, p.Identity+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.fail("%v", err)
		return
	}
	_, err = file.WriteString(p.Output())
	if err := errors.Join(err, file.Close()); err != nil {
		w.fail("%v", err)
	}
}

func (w *world) count(counts map[string]int, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts[what]++
}

// trouble records that a controller or a server has a fault, until the returned function is called.
func (w *world) trouble() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.troubled)
	w.troubled = append(w.troubled, interval{now(), forever})
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.troubled[n].to = now()
	})
}

// now is the time by the clock of the journal.
func now() int64 {
	t, err := journal.Now()
	if err != nil {
		panic(err)
	}
	return t
}

// eventually polls until there is no error or the patience is exhausted, and then returns the error.
func eventually(ctx context.Context, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		one, cancel := context.WithTimeout(ctx, requestTimeout)
		err := look(one)
		cancel()
		if err == nil {
			return nil
		}
		if !sabotage.Wait(ctx, period) {
			return errors.Join(err, ctx.Err())
		}
	}
}
