package shard_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/shard"
)

// reconciler is any reconciler that was written for one replica.
var reconciler = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
})

// A controller that makes a Deployment for each ConfigMap runs in several replicas. The ring
// "website" names both kinds.
func Example() {
	cfg := config.GetConfigOrDie()
	s, err := shard.New(cfg, shard.Options{
		Ring:  "website",
		Kinds: []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}},
	})
	exitOn(err)
	mgr, err := s.NewManager(manager.Options{})
	exitOn(err)
	err = s.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&appsv1.Deployment{}).Complete(reconciler)
	exitOn(err)
	// It returns ErrLeaseLost when this process must not act any longer; the pod starts again.
	exitOn(mgr.Start(signals.SetupSignalHandler()))
}

// Effects outside the cluster have no resourceVersion that would refuse a late one, so check the
// context of the fence immediately before each.
func ExampleShard_Fence() {
	s, err := shard.New(config.GetConfigOrDie(), shard.Options{Ring: "website", Kinds: []client.Object{&corev1.ConfigMap{}}})
	exitOn(err)
	publish := func(ctx context.Context, pages ...string) error {
		ctx, cancel := s.Fence(ctx)
		defer cancel()
		for _, page := range pages {
			if ctx.Err() != nil {
				return context.Cause(ctx) // ErrLeaseLost
			}
			fmt.Println("Uploading", page)
		}
		return nil
	}
	if err := publish(context.Background(), "index.html"); errors.Is(err, shard.ErrLeaseLost) {
		fmt.Println("Another shard may publish these pages now")
	}
}

// One binary can run with a ring, and without one where there is no sharder.
func ExampleOptions_standalone() {
	ring := os.Getenv("RING")
	s, err := shard.New(config.GetConfigOrDie(), shard.Options{
		Ring:       ring,
		Standalone: ring == "",
		Kinds:      []client.Object{&corev1.ConfigMap{}},
	})
	exitOn(err)
	_, err = s.NewManager(manager.Options{LeaderElection: ring == "", LeaderElectionID: "website"})
	exitOn(err)
}

// The error names all that is missing or invalid.
func ExampleNew() {
	_, err := shard.New(&rest.Config{}, shard.Options{Name: "sharder", Namespace: "default"})
	fmt.Println(err)
	// Output:
	// preparing a shard: set Ring to the name of the ClusterRing
	// set Kinds to the kinds of the ring's resources
	// the name of the shard, "sharder", is reserved: the sharder uses it to take over Leases
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
