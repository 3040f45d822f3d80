package agent_test

import (
	"context"
	"fmt"

	"nodekeeper.dev/placement/agent"
)

// consumer works on one partition of a queue.
type consumer struct{ connected chan<- int32 }

func (c consumer) Work(ctx context.Context, r agent.Replica, ready func()) error {
	fmt.Printf("connected to partition %d of %d of %s, with epoch %d as the fence\n", r.Index, r.Of, r.Resource.Name, r.Epoch)
	ready() // the resource is Ready once all of its partitions are worked on
	c.connected <- r.Index
	<-ctx.Done() // the partition moves, the Lease is lost, or the program ends
	fmt.Printf("left partition %d\n", r.Index)
	return nil // another pod may work on the partition from now on
}

// A Go program becomes a worker of the pool "worker": it calls Run with a Worker. In a pod, the
// configuration comes from rest.InClusterConfig, the names come from the downward API, and the
// context ends by signal.NotifyContext with SIGTERM. Here the cluster is a small one in memory, whose
// controller gives partition 3 of the Queue "orders" to the pod.
func ExampleRun() {
	cluster := newExampleCluster()
	defer cluster.Close()
	ctx, stop := context.WithCancel(context.Background())
	connected := make(chan int32)
	go func() {
		<-connected
		stop()
	}()
	err := agent.Run(ctx, cluster.config(), agent.Options{Namespace: "shop", Pool: "worker", Pod: "worker-0", PodUID: "41f0"}, consumer{connected})
	fmt.Printf("ended with %v; the Lease is held by %q\n", err, cluster.holder())
	// Output:
	// connected to partition 3 of 12 of orders, with epoch 17 as the fence
	// left partition 3
	// ended with <nil>; the Lease is held by ""
}
