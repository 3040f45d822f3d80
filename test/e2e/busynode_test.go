package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
)

// TestRestoreOntoABusyNode restores a Node whose status changes many times while the processor reads
// and writes it, like that of a node that joins where the API server is under load.
func TestRestoreOntoABusyNode(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"labels":          nil,
		"taints and more": {"--preserve-annotations=example.com/*", "--preserve-taints=dedicated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.needsProxy()
			e.watcher(flags...)
			notWatches := func(r *http.Request) bool { return r.URL.Query().Get("watch") == "" }
			e.ready(e.start("processor", e.through(hold{notWatches, 300 * time.Millisecond}), flags...))
			node := e.name("node")
			annotations := map[string]string{"example.com/owner": "a"}
			taint := corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
			e.registerWith("kubectl", node, annotations, taint)
			e.set(node, "team", "blue")
			want := labelSet{"team": "blue"}
			if len(flags) > 0 {
				want[labels.AnnotationKey("example.com/owner")], want[labels.TaintKey("dedicated", "NoSchedule")] = "a", "gpu"
			}
			e.saved(node, want)
			e.delete(node)

			e.registerWith("kubelet", node, map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"})
			changes := e.keepBusy(node)
			e.restored(node, labelSet{"team": "blue"})
			t.Logf("restored beside %d changes of the status", changes.Load())
			if len(flags) > 0 {
				assert.Equal(t, []corev1.Taint{taint}, e.taintsOf(t, node))
				assert.Subset(t, e.node(t, node).Annotations, annotations)
			}
		})
	}
}

// keepBusy changes the status of a Node until the test ends, and counts the changes.
func (e *env) keepBusy(name string) *atomic.Int64 {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.t.Context()))
	var changes atomic.Int64
	var loop sync.WaitGroup
	loop.Go(func() {
		for every := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-every.C {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			status := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Change%d"}]}}`, changes.Add(1))
			err := e.client.Status().Patch(context.WithoutCancel(ctx), node, client.RawPatch(types.StrategicMergePatchType, []byte(status)))
			assert.NoError(e.t, client.IgnoreNotFound(err))
		}
	})
	e.t.Cleanup(func() { cancel(); loop.Wait() })
	return &changes
}
