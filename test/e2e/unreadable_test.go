package e2e_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestUnreadableRecordHoldsUpItsNodeOnlyUntilItIsMended(t *testing.T) {
	t.Parallel()
	// After so many attempts the next one is 25 seconds later.
	const attempts, prompt = 10, 20 * time.Second
	e := newEnv(t)
	e.watcher()
	p := e.processor()
	node, other := e.name("node"), e.name("other")
	want := labelSet{"rack": "r7"}
	for _, name := range []string{node, other} {
		first := e.create(name, want)
		e.saved(name, want)
		e.delete(name)
		e.ended(first)
	}
	version := e.record(t, node).Revision

	broken := e.editRecord(node, map[string]string{"labels_restored": "nonsense"})
	e.create(node, labelSet{"rack": "r9"})
	e.create(other, nil)

	e.restored(other, want)
	assert.Contains(t, e.warned(broken.UID, "RecordUnreadable"), `"nonsense"`)
	e.eventually(func(c *assert.CollectT) {
		assert.GreaterOrEqual(c, len(complaints(p, `"nonsense"`)), attempts)
	}, "the processor says what is wrong, again and again")
	assert.Contains(t, complaints(p, `"nonsense"`)[0], node, "the log names the node")
	own, marker := e.labels(t, node)
	assert.Equal(t, labelSet{"rack": "r9"}, own)
	assert.Empty(t, marker)
	assert.NotEmpty(t, e.queue(t, node), "the restore is owed")

	e.editRecord(node, map[string]string{"labels_restored": version.String()})
	require.EventuallyWithT(t, func(c *assert.CollectT) { e.hasRestored(c, node, want) }, prompt, period)
	e.settle()
}

// editRecord changes the data of a record as kubectl edit does.
func (e *env) editRecord(node string, data map[string]string) *corev1.ConfigMap {
	e.t.Helper()
	body, err := json.Marshal(map[string]any{"data": data})
	require.NoError(e.t, err)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: node}}
	require.NoError(e.t, e.client.Patch(e.t.Context(), cm, client.RawPatch(types.MergePatchType, body)))
	return cm
}
