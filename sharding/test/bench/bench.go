package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

const (
	prefix   = v1alpha1.DefaultPrefix
	ringName = "bench"
	// selected is a namespace that the ring selects, and other a namespace that it does not select.
	// Another policy, which only adds a constant label, selects the namespace labelled.
	selected, other, labelled = "bench", "bench-other", "bench-labelled"
	// leaseSeconds exceeds the duration of any run: the Leases are created by hand and not renewed.
	leaseSeconds = 36000
)

// bench is an API server with a ring of Secrets.
type bench struct {
	settings

	client  client.Client
	objects metadata.ResourceInterface
	// shards is a client for the shards. It has a user of its own, because policies do not complete
	// writes by the sharder's user.
	shards  metadata.ResourceInterface
	plane   *controlplane.ControlPlane
	sharder *programs.Program
	tally   tally
}

func newBench(ctx context.Context, plane *controlplane.ControlPlane, s settings) (*bench, error) {
	cfg := *plane.Config
	cfg.QPS = -1
	c, err := client.New(&cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	m, err := metadata.NewForConfig(&cfg)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := plane.KubeconfigFor("shards", "system:masters")
	if err != nil {
		return nil, err
	}
	shardConfig, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	shardConfig.QPS = -1
	shards, err := metadata.NewForConfig(shardConfig)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{selected, other, labelled} {
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, err
		}
	}
	return &bench{
		settings: s, client: c, plane: plane,
		objects: m.Resource(secrets).Namespace(selected), shards: shards.Resource(secrets).Namespace(selected),
	}, nil
}

// startSharder starts the sharder and waits until it is ready.
func (b *bench) startSharder(ctx context.Context) (err error) {
	b.sharder, err = programs.Start("sharder", "bench", b.plane.Kubeconfig, fmt.Sprintf("--leader-elect=%t", b.leaderElect))
	if err != nil {
		return err
	}
	return b.sharder.WaitReady(ctx)
}

// printResult prints a result.
func (*bench) printResult(what, format string, args ...any) {
	fmt.Printf("| %s | %s |\n", what, fmt.Sprintf(format, args...)) //nolint:forbidigo // printing is the purpose of this program
}

// secret returns a Secret of the size of a small certificate.
func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"data": make([]byte, 2048)}}
}

// configMap returns a ConfigMap that is controlled by a Secret.
func configMap(s *corev1.Secret, n int) *corev1.ConfigMap {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: s.Name, UID: s.UID, Controller: new(true)}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprintf("%s-%d", s.Name, n), OwnerReferences: []metav1.OwnerReference{owner}}}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// createBare measures creates without a ring. The first round is a warm-up.
func (b *bench) createBare(ctx context.Context) error {
	if err := b.time(ctx, timed{"warm-up", other}); err != nil {
		return err
	}
	return b.time(ctx, timed{"no-ring", other})
}

// prepare creates the ring with one shard and waits until new objects are assigned.
func (b *bench) prepare(ctx context.Context) error {
	err := b.client.Create(ctx, &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: ringName}, Spec: v1alpha1.ClusterRingSpec{
		Shards:            v1alpha1.Shards{Namespace: selected},
		Resources:         []v1alpha1.Resource{{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, ControlledResources: b.controlled()}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: selected}},
		Handover:          v1alpha1.Handover{Settle: &metav1.Duration{}, MaxConcurrentMoves: int32(b.concurrency)},
	}})
	if err != nil {
		return err
	}
	if err := b.join(ctx, "web-0", leaseSeconds); err != nil {
		return err
	}
	return b.until(ctx, func(s *v1alpha1.ClusterRingStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, "AdmissionInstalled") && s.AvailableShards == 1
	})
}

// controlled returns the resources that Secrets control.
func (b *bench) controlled() []v1alpha1.GroupResource {
	if b.children == 0 {
		return nil
	}
	return []v1alpha1.GroupResource{{Resource: "configmaps"}}
}

// createAssigned measures creates that a policy matches, and creates that another policy matches
// which does the least that a policy can do. No sharder runs meanwhile: it watches the objects that
// have no shard, which costs the API server something for the creates to compare with.
func (b *bench) createAssigned(ctx context.Context) error {
	if b.creates == 0 {
		return nil
	}
	if err := b.label(ctx); err != nil {
		return err
	}
	if err := b.sharder.Stop(stopTimeout); err != nil {
		return err
	}
	done := b.profile(ctx)
	err := b.time(ctx, timed{"namespace-not-selected", other}, timed{"constant-label", labelled}, timed{"assigned-by-policy", selected})
	return errors.Join(err, <-done, b.startSharder(ctx))
}

// createOutside measures what creates in a namespace that the ring does not select cost the sharder.
func (b *bench) createOutside(ctx context.Context) error {
	if b.creates == 0 {
		return nil
	}
	before, err := programs.UsageOf(b.sharder.PID())
	if err != nil {
		return err
	}
	err = b.each(ctx, b.creates, func(ctx context.Context, i int) error {
		return b.client.Create(ctx, secret(other, fmt.Sprintf("outside-%d", i)))
	})
	if err != nil {
		return err
	}
	after, err := programs.UsageOf(b.sharder.PID())
	if err != nil {
		return err
	}
	b.printResult("create of a Secret outside the ring: CPU of the sharder, ms", "%.3f", ms(after.CPU-before.CPU)/float64(b.creates))
	return b.client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(other))
}

// fill creates the objects and counts the ones that are assigned in their first version.
func (b *bench) fill(ctx context.Context) error {
	assigned := make([]bool, b.settings.objects)
	err := b.each(ctx, b.settings.objects, func(ctx context.Context, i int) error {
		s := secret(selected, fmt.Sprintf("s-%d", i))
		err := b.client.Create(ctx, s)
		assigned[i] = s.Labels[prefix.ShardLabel(ringName)] != ""
		for child := range b.children {
			err = errors.Join(err, b.client.Create(ctx, configMap(s, child)))
		}
		return err
	})
	if err != nil {
		return err
	}
	n := 0
	for _, is := range assigned {
		if is {
			n++
		}
	}
	b.printResult("Secrets created, of these with their shard in their first version", "%d, %d", len(assigned), n)
	if err := b.until(ctx, isBalanced); err != nil {
		return err
	}
	if err := b.tally.follow(ctx, b.objects); err != nil {
		return err
	}
	return b.used("after the creates")
}

// rest counts the requests while the ring is at rest.
func (b *bench) rest(ctx context.Context) error {
	if b.idle == 0 {
		return nil
	}
	before, err := b.requests(ctx)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.idle):
	}
	after, err := b.requests(ctx)
	if err != nil {
		return err
	}
	for _, kind := range kinds(after) {
		if n := after[kind] - before[kind]; n > 0 {
			b.printResult("a ring at rest for "+b.idle.String()+": "+kind, "%.0f", n)
		}
	}
	return nil
}

// join creates the Lease of a shard.
func (b *bench) join(ctx context.Context, name string, seconds int32) error {
	now := metav1.NowMicro()
	return b.client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: selected, Name: name, Labels: map[string]string{prefix.RingLabel(): ringName}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})
}

// each calls do concurrently for n objects.
func (b *bench) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.concurrency)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// until waits until the status of the ring satisfies a condition.
func (b *bench) until(ctx context.Context, is func(*v1alpha1.ClusterRingStatus) bool) error {
	return b.untilOf(ctx, ringName, is)
}

// untilOf is until for a ring with this name.
func (b *bench) untilOf(ctx context.Context, name string, is func(*v1alpha1.ClusterRingStatus) bool) error {
	ring := &v1alpha1.ClusterRing{}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case <-b.sharder.Done():
			return false, errors.New("the sharder has ended")
		default:
		}
		err := b.client.Get(ctx, client.ObjectKey{Name: name}, ring)
		return err == nil && is(&ring.Status), err
	})
	if err != nil {
		return fmt.Errorf("waiting for the ring, whose conditions are %+v: %w", ring.Status.Conditions, err)
	}
	return nil
}

func isBalanced(s *v1alpha1.ClusterRingStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, "Balanced") && s.BalancedGeneration == s.Table.Generation
}
