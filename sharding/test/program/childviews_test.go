package program

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/faultproxy"
)

// childReads counts the lists of all ConfigMaps, and delays watches of them.
type childReads struct {
	late  faultproxy.Fault
	lists *atomic.Int64
}

func (f childReads) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{}) {
	query := r.URL.Query()
	switch {
	case r.Method != http.MethodGet || r.URL.Path != "/api/v1/configmaps":
	case query.Get("watch") != "":
		f.late.Serve(w, r, next, healed)
		return
	case query.Get("fieldSelector") == "" && query.Get("resourceVersion") == "": // otherwise it is a read of one object, or of an informer
		f.lists.Add(1)
	}
	next.ServeHTTP(w, r)
}

// TestHandOverListsChildrenOnce covers R29 for a hand-over in many batches, in which the shard creates
// a child just before it releases each object: none is missed, although only the first batch lists them,
// and although the watch that replaces the other lists is late.
func TestHandOverListsChildrenOnce(t *testing.T) {
	t.Parallel()
	const n, atOnce = 60, 4
	for name, late := range map[string]time.Duration{"at once": 0, "late": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSite(t)
			proxy := c.behindProxy()
			c.sharder("views", "--admission=none")
			ring := c.ring("")
			ring.Spec.Handover = v1alpha1.Handover{Settle: &metav1.Duration{}, MaxConcurrentMoves: atOnce}
			ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
			c.create(ring)
			c.lease(ring, "web-0", 600, 0)
			for i := range n {
				c.child(c.secret(fmt.Sprintf("s-%d", i)), fmt.Sprintf("c-%d", i), nil)
			}
			c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
				assert.Equal(t, map[string]int{"web-0": n}, c.shardsOf(t, ring))
				assert.Equal(t, map[string]int{"web-0": n}, c.childrenOf(t, ring))
			})
			broken, lists := c.watchOrder(ring), &atomic.Int64{}
			proxy.Inject(childReads{faultproxy.Delay{Share: 1, For: late}, lists})
			proxy.EndWatches()
			c.lease(ring, "web-1", 600, 0)
			c.createAndRelease(ring, "web-0")
			c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
				c.inPlace(t, ring, s)
				assert.Len(t, c.shardsOf(t, ring), 2)
				assert.Equal(t, s.Table.Generation, s.BalancedGeneration)
			})
			moved := c.shardsOf(t, ring)["web-1"]
			require.Greater(t, moved, 3*atOnce)
			assert.Equal(t, 2*moved, c.childrenOf(t, ring)["web-1"])
			assert.Empty(t, broken(), "main objects that were at a shard before their children")
			t.Logf("%d lists for %d objects, at most %d at once", lists.Load(), moved, atOnce)
			if late == 0 {
				assert.LessOrEqual(t, int(lists.Load()), moved/atOnce/2)
			}
		})
	}
}

// createAndRelease creates a child of each object that a shard is asked to release, and releases it at
// once, until the test ends.
func (c *cluster) createAndRelease(ring *v1alpha1.ClusterRing, shard string) {
	key := prefix.ShardLabel(ring.Name)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":null}}}`))
	c.background(func(ctx context.Context) {
		all := &corev1.SecretList{}
		if c.List(ctx, all, client.InNamespace(c.namespace), client.HasLabels{prefix.DrainLabel(ring.Name)}) != nil {
			return // retried with the next list
		}
		for _, s := range all.Items {
			if s.Labels[key] != shard {
				continue
			}
			child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: c.namespace, Name: "late-" + s.Name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&s, corev1.SchemeGroupVersion.WithKind("Secret"))},
			}}
			if c.Create(ctx, child) == nil {
				_ = c.Patch(ctx, &s, patch)
			}
		}
	})
}
