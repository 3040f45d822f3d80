package cluster

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/programs"
)

const (
	ringName = "website"
	// sharderNamespace is where the sharder runs, shardNamespace where the shards do, and objectNamespace
	// where the Secrets are.
	sharderNamespace, shardNamespace, objectNamespace = "sharder-system", "web-system", "team-a"
	// objects is how many Secrets there are in the end.
	objects = 600
	// creation is the time from one Secret to the next.
	creation = 20 * time.Millisecond
)

// sharder returns the plot of the sharder.
func sharder() Plot {
	return Plot{Name: "sharder", end: 125 * time.Second, scenes: []scene{
		{0, "a sharder starts, and then three shards of a new ring", begin},
		{12 * time.Second, "a second sharder starts", func(ctx context.Context, c *Cluster) error { return c.runSharder(ctx) }},
		{20 * time.Second, fmt.Sprintf("%d Secrets are created, a tenth of them with generateName", objects), create},
		{42 * time.Second, "web-4 joins", func(_ context.Context, c *Cluster) error { return c.runShards(1) }},
		{58 * time.Second, "web-2 is killed", func(_ context.Context, c *Cluster) error { return c.kill("web-2") }},
		{80 * time.Second, "web-3 leaves (SIGTERM)", func(_ context.Context, c *Cluster) error { return c.stop("web-3") }},
		{94 * time.Second, "the leading sharder is killed", func(_ context.Context, c *Cluster) error { return c.kill("sharder-1") }},
		{106 * time.Second, "web-5 joins", func(_ context.Context, c *Cluster) error { return c.runShards(1) }},
	}}
}

// begin starts a sharder, creates the ring, and starts its first shards.
func begin(ctx context.Context, c *Cluster) error {
	if err := crds.Install(ctx, c.plane.Config); err != nil {
		return err
	}
	for _, name := range []string{shardNamespace, objectNamespace} {
		if err := c.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	if err := c.runSharder(ctx); err != nil {
		return err
	}
	ring := &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: ringName}, Spec: v1alpha1.ClusterRingSpec{
		Shards: v1alpha1.Shards{Namespace: shardNamespace},
		Resources: []v1alpha1.Resource{{
			GroupResource:       v1alpha1.GroupResource{Resource: "secrets"},
			ControlledResources: []v1alpha1.GroupResource{{Resource: "configmaps"}},
		}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: objectNamespace}},
		Handover:          v1alpha1.Handover{Settle: &metav1.Duration{Duration: time.Second}},
	}}
	if err := c.api.Create(ctx, ring); err != nil {
		return fmt.Errorf("creating ring %s: %w", ringName, err)
	}
	if err := c.runShards(3); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		err := c.api.Get(ctx, types.NamespacedName{Name: ringName}, ring)
		return meta.IsStatusConditionTrue(ring.Status.Conditions, "AdmissionInstalled"), err
	})
}

// runSharder starts a sharder with webhooks, so that it has their metrics, too.
func (c *Cluster) runSharder(ctx context.Context) error {
	flags, err := crds.WebhookFlags()
	if err != nil {
		return err
	}
	return c.run(ctx, sharderNamespace, append(flags, "--admission=webhook"), "sharder")
}

// runShards starts more shards.
func (c *Cluster) runShards(count int) error {
	for range count {
		_, err := c.start(shardNamespace, "web", func(identity, metrics string) (*programs.Program, error) {
			return programs.Launch(nil, "example-checksum", identity,
				"--kubeconfig="+c.plane.Kubeconfig, "--metrics-bind-address="+metrics, "--ring="+ringName, "--lease-namespace="+shardNamespace,
				"--namespace="+objectNamespace, "--shard-name="+identity, "--lease-duration=5s", "--work=10ms")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// create creates the Secrets. The API server cannot assign those whose names it generates.
func create(ctx context.Context, c *Cluster) error {
	return each(ctx, creation, objects, func(ctx context.Context, i int) error {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: objectNamespace, Name: "s-" + strconv.Itoa(i)},
			StringData: map[string]string{"key": strconv.Itoa(i)},
		}
		if i%10 == 0 {
			secret.Name, secret.GenerateName = "", "g-"
		}
		return c.api.Create(ctx, secret, client.FieldOwner("user"))
	})
}
