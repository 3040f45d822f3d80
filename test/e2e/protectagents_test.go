package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
)

// TestProtectedNodeKnowsWhatAgentsHaveWithdrawn covers a deletion that overtakes the transaction
// recording the withdrawal: no person overruled the label, so the next machine keeps it.
func TestProtectedNodeKnowsWhatAgentsHaveWithdrawn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	e.watcher()
	e.processor("--protect=finalizer", "--save-delay=10m")
	name := e.name("node")
	registered := labelSet{"pool": "default", "zone": "a"}
	e.createAs("kubelet", name, registered)
	e.saved(name, registered)
	e.protected(name)
	withdrawal := mergeLabels(t, map[string]*string{"pool": nil, "state": new("draining")})
	require.NoError(t, e.client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, withdrawal, client.FieldOwner("kubelet")))
	e.eventually(func(c *assert.CollectT) {
		if queue := e.queue(c, name); assert.Len(c, queue, 1) {
			assert.Equal(c, "pool", queue[0].Annotations["nodekeeper.dev/withdrawn-labels"])
		}
	}, "a watcher has recorded that agents have withdrawn a label")
	e.delete(name)
	e.gone(name)
	r := e.saved(name, labelSet{"zone": "a", "state": "draining"})
	assert.Equal(t, labels.Keys(""), r.Overruled, "no person has removed anything")

	e.createAs("kubelet", name, registered)
	e.restored(name, registered)
	e.unprotect()
	e.settle()
}
