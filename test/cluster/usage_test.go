package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// measurePeriod is a bit less than the time after which a kubelet measures again.
const measurePeriod = 5 * time.Second

// usage watches what the pods of a namespace take, and how their containers end.
type usage struct {
	namespace string

	mu sync.Mutex
	// peaks are by container: as the watcher's is named watcher, also by service.
	peaks map[string]peak
	// ended is why a container of a pod ended and was started again, by the pod.
	ended map[string]string
}

// peak is the most that one container was seen to take.
type peak struct {
	memory   int64 // working set, bytes
	nanoCPUs int64 // mean of some seconds
}

func (p peak) String() string {
	return fmt.Sprintf("%.1f MiB of memory, %d m of CPU", float64(p.memory)/(1<<20), p.nanoCPUs/1e6)
}

// measure looks at all pods of a namespace until the test ends.
func measure(t *testing.T, cluster *realCluster, namespace string) *usage {
	t.Helper()
	u := &usage{namespace: namespace, peaks: map[string]peak{}, ended: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, measurePeriod, true, func(ctx context.Context) (bool, error) { // ends when ctx does
			for _, node := range cluster.nodes {
				u.look(ctx, cluster.clientset, node)
			}
			u.lookAtEnds(ctx, cluster.client)
			return false, nil
		})
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return u
}

// look asks the kubelet of a node. One that does not answer is stopped, or its node deleted, by the walk.
func (u *usage) look(ctx context.Context, clientset kubernetes.Interface, node string) {
	content, err := clientset.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("stats/summary").DoRaw(ctx)
	if err != nil {
		return
	}
	var summary struct {
		Pods []struct {
			PodRef     struct{ Namespace string }
			Containers []struct {
				Name   string
				CPU    struct{ UsageNanoCores int64 }
				Memory struct{ WorkingSetBytes int64 }
			}
		}
	}
	if json.Unmarshal(content, &summary) != nil {
		return // cut off: the kubelet was stopped
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pod := range summary.Pods {
		if pod.PodRef.Namespace != u.namespace {
			continue
		}
		for _, c := range pod.Containers {
			most := u.peaks[c.Name]
			u.peaks[c.Name] = peak{max(most.memory, c.Memory.WorkingSetBytes), max(most.nanoCPUs, c.CPU.UsageNanoCores)}
		}
	}
}

func (u *usage) lookAtEnds(ctx context.Context, c client.Client) {
	pods := &corev1.PodList{}
	if c.List(ctx, pods, client.InNamespace(u.namespace)) != nil {
		return // the walk is over, or the next look finds them
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if end := status.LastTerminationState.Terminated; end != nil {
				u.ended[pod.Name] = end.Reason + ": " + end.Message
			}
		}
	}
}

func (u *usage) peak(service string) peak {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.peaks[service]
}

// ends returns why containers were started again, by their pods.
func (u *usage) ends() map[string]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.ended)
}
