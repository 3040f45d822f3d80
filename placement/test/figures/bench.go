package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

const (
	namespace, pool, set = "bench", "worker", "worker"
	// parallel is how many requests the controller sends at a time, and so does this program.
	parallel = 32
	// period is the polling interval, and limit bounds each wait.
	period, limit = 5 * time.Millisecond, 5 * time.Minute
	// stillTime is how long nothing changes in a pool that has come to rest.
	stillTime = 2 * time.Second
	// stopTimeout bounds the end of a program.
	stopTimeout = 30 * time.Second
)

// bench is an API server with a pool.
type bench struct {
	settings

	plane      *controlplane.ControlPlane
	client     client.WithWatch
	dir        string
	controller *programs.Program
	pods       []*pod
	clock      *clock
	tally      *tally
	bare       *bare
	end        context.CancelFunc
	followers  errgroup.Group
}

func newBench(ctx context.Context, s settings) (b *bench, err error) {
	b = &bench{settings: s, clock: newClock(), tally: newTally()}
	if b.plane, err = controlplane.Start(controlplane.Options{}); err != nil {
		return nil, err
	}
	return b, errors.Join(b.prepare(ctx))
}

// prepare makes everything that is there before the controller starts, but the agents.
func (b *bench) prepare(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "figures"); err != nil {
		return err
	}
	if err := queues.Install(ctx, b.plane.Config); err != nil {
		return err
	}
	cfg := rest.CopyConfig(b.plane.Config)
	cfg.QPS = -1
	if b.client, err = client.NewWithWatch(cfg, client.Options{}); err != nil {
		return err
	}
	for _, name := range []string{namespace, bareNamespace} {
		if err := b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if err := b.client.Create(ctx, b.statefulSet()); err != nil {
		return err
	}
	for _, more := range []string{"", withSet} {
		if err := os.WriteFile(b.pools(more), fmt.Appendf(nil, poolConfig, pool, namespace, more), 0o600); err != nil {
			return err
		}
	}
	following, end := context.WithCancel(ctx)
	b.end = end
	b.followers.Go(func() error { b.tally.followQueues(following, b.client); return nil })
	b.followers.Go(func() error { b.tally.followLeases(following, b.client); return nil })
	for i := range b.agents {
		p, err := b.start(ctx, i)
		if err != nil {
			return err
		}
		b.pods = append(b.pods, p)
	}
	return b.until(ctx, "all agents have joined", func() bool { return b.tally.members() == b.agents })
}

const (
	poolConfig = `pools:
- name: %s
  namespace: %s
%s  kinds: [{apiVersion: example.com/v1, kind: Queue, replicasPath: spec.partitions, payloadPath: spec, statusPath: status}]
`
	withSet = "  statefulSet: " + set + "\n"
)

// pools is the path of a file of pools.
func (b *bench) pools(more string) string {
	if more == "" {
		return filepath.Join(b.dir, "pools.yaml")
	}
	return filepath.Join(b.dir, "pools-of-a-set.yaml")
}

// statefulSet returns the StatefulSet of the pool.
func (b *bench) statefulSet() *appsv1.StatefulSet {
	labels := map[string]string{"app": set}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: set},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(b.agents)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "worker"}}}},
		},
	}
}

// close ends everything.
func (b *bench) close() error {
	var errs []error
	if b.controller != nil {
		errs = append(errs, b.controller.Stop(stopTimeout))
	}
	for _, p := range b.pods {
		p.cut()
		p.cancel()
	}
	if b.end != nil {
		b.end()
	}
	return errors.Join(append(errs, b.followers.Wait(), b.plane.Stop(), os.RemoveAll(b.dir))...)
}

// startController starts the controller, which becomes the leader at once.
func (b *bench) startController(more string) (err error) {
	b.controller, err = programs.Launch([]string{"POD_NAME=controller"}, "placement", "controller",
		"controller", "--kubeconfig="+b.plane.Kubeconfig, "--pool-config="+b.pools(more), "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	return err
}

// stopController ends the controller, which releases the Lease of the leader.
func (b *bench) stopController() error {
	err := b.controller.Stop(stopTimeout)
	b.controller = nil
	return err
}

func (b *bench) controllerOutput() string {
	if b.controller == nil {
		return ""
	}
	output := b.controller.Output()
	return output[max(0, len(output)-4000):]
}

// print prints a figure beside its target.
func (*bench) print(figure, target, format string, args ...any) {
	fmt.Printf("| %s | %s | %s |\n", figure, target, fmt.Sprintf(format, args...)) //nolint:forbidigo // printing is the purpose of this program
}

// until waits for a condition.
func (b *bench) until(ctx context.Context, what string, is func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, period, limit, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		return fmt.Errorf("waiting until %s: %w: %s, %s", what, err, b.tally, b.clock)
	}
	return nil
}

// rest waits until the Queues are Ready, and nothing has changed for a moment.
func (b *bench) rest(ctx context.Context) error {
	return b.until(ctx, "the pool is at rest", func() bool {
		return b.tally.isReady() && time.Since(b.clock.last()) > stillTime && time.Since(b.tally.last()) > stillTime
	})
}

// each calls do for each number below n, some of them at a time.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// createQueues creates Queues, and returns when they have been seen.
func (b *bench) createQueues(ctx context.Context, n, partitions int) error {
	err := each(ctx, n, func(ctx context.Context, i int) error {
		return b.client.Create(ctx, queues.New(namespace, fmt.Sprintf("q-%d", i), int64(partitions)))
	})
	if err != nil {
		return err
	}
	return b.until(ctx, "all Queues are seen", func() bool { return b.tally.queues() == n })
}

// deleteQueues deletes all Queues.
func (b *bench) deleteQueues(ctx context.Context, n int) error {
	return each(ctx, n, func(ctx context.Context, i int) error {
		return b.client.Delete(ctx, queues.New(namespace, fmt.Sprintf("q-%d", i), 0))
	})
}

// percentile returns a percentile of sorted durations.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

// list formats numbers.
func list(all []float64) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, fmt.Sprintf("%.2f", one))
	}
	return strings.Join(texts, ", ")
}
