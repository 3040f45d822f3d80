package agent_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/placement/agent"
)

// consumer works on one partition.
type consumer struct{}

func (consumer) Work(ctx context.Context, r agent.Replica, ready func()) error {
	ready() // once it is connected
	for {
		select {
		case <-ctx.Done():
			return nil // another pod may work on the partition from now on
		case <-time.After(time.Second):
			fmt.Fprintf(os.Stderr, "partition %d of %s, with epoch %d as the fence\n", r.Index, r.Resource.Name, r.Epoch)
		}
	}
}

// A program that works on the vreplicas of its pod. The environment comes from the downward API.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := rest.InClusterConfig()
	if err == nil {
		err = agent.Run(ctx, cfg, agent.Options{
			Namespace: os.Getenv("POD_NAMESPACE"), Pool: "worker", Pod: os.Getenv("POD_NAME"), PodUID: types.UID(os.Getenv("POD_UID")),
		}, consumer{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
