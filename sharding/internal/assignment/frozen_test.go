package assignment

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// released returns Leases without a holder. The process is frozen after it has read one.
type released struct {
	coordinationv1client.LeaseInterface

	frozen time.Duration
}

func (r *released) Leases(string) coordinationv1client.LeaseInterface { return r }

func (r *released) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	time.Sleep(r.frozen)
	return &coordinationv1.Lease{}, nil
}

// patches counts the patches that are sent. None is sent with a context that has ended.
type patches struct {
	metadata.ResourceInterface

	sent int
}

func (p *patches) Namespace(string) metadata.ResourceInterface { return p }

func (p *patches) Patch(ctx context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p.sent++
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "2"}}, nil
}

// TestFrozenSharderTakesNothing covers a part of R27: if a process has read that a shard is gone
// and was frozen since, it must not rely on that. The shard may have returned and be working on its
// objects.
func TestFrozenSharderTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := viewOf(nil, []string{"web-1"})
		v.ring.Status.LabelledResources = []v1alpha1.GroupResource{secrets}
		v.ring.Spec.Handover.MaxConcurrentMoves = 1
		leases, objects := &released{frozen: time.Minute}, &patches{}
		c := &Controller{Leases: leases, metrics: newMetrics(), SyncPeriod: time.Minute}
		of := &assigner{Controller: c, name: "website", keys: keysOf(v1alpha1.DefaultPrefix, "website"), view: v, resyncs: newResyncs(), dirty: make(chan struct{}, 1)}
		tr := newTrackerWith(of, secrets, objects)
		defer tr.queue.ShutDown()
		tr.addFound(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "s", UID: "uid", ResourceVersion: "1", Labels: map[string]string{of.keys.shard: "web-0"},
		}})
		key := types.NamespacedName{Namespace: "n", Name: "s"}
		_, err := tr.process(t.Context(), key)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, objects.sent)
		leases.frozen = 0
		_, err = tr.process(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, 1, objects.sent, "a new read shows that the shard is gone")
	})
}

// An object that is deleted in its hand-over and created again would otherwise use up a move for ever.
func TestMoveEndsWithTheObject(t *testing.T) {
	t.Parallel()
	v := viewOf(nil, []string{"web-1"})
	v.ring.Status.LabelledResources = []v1alpha1.GroupResource{secrets}
	c := &Controller{metrics: newMetrics(), SyncPeriod: time.Minute}
	of := &assigner{Controller: c, name: "website", keys: keysOf(v1alpha1.DefaultPrefix, "website"), view: v, resyncs: newResyncs(), dirty: make(chan struct{}, 1)}
	tr := newTrackerWith(of, secrets, &patches{})
	defer tr.queue.ShutDown()
	key := types.NamespacedName{Namespace: "n", Name: "s"}
	require.True(t, of.moves.reserve(tr, key, 1), "the former object is drained")
	tr.addFound(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", UID: "new", ResourceVersion: "1", Labels: map[string]string{}}})
	_, err := tr.process(t.Context(), key)
	require.NoError(t, err)
	assert.Zero(t, of.moves.count())
}

// newTrackerWith returns a tracker of a main resource that uses a fake client.
func newTrackerWith(of *assigner, r v1alpha1.GroupResource, objects metadata.Getter) *tracker {
	of.Metadata = getter{objects}
	mapping := &meta.RESTMapping{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: r.Resource}, GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Scope: meta.RESTScopeNamespace,
	}
	return newTracker(of, r, &v1alpha1.Resource{GroupResource: r}, mapping)
}

// getter is a client of a single resource.
type getter struct{ objects metadata.Getter }

func (g getter) Resource(schema.GroupVersionResource) metadata.Getter { return g.objects }
