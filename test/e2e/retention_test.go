package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/record"
)

func TestOnlyTheRecordOfANodeThatStaysAwayIsRemoved(t *testing.T) {
	t.Parallel()
	const retention = 5 * time.Second
	e := newEnv(t)
	e.watcher()
	e.processor("--retention=" + retention.String())
	live, back, away := e.name("live"), e.name("back"), e.name("away")
	want := labelSet{"rack": "r7"}
	for _, name := range []string{live, back, away} {
		e.create(name, want)
		e.saved(name, want)
	}
	e.delete(back)
	e.awaySince(back, true)
	e.create(back, nil)
	e.restored(back, want)
	e.awaySince(back, false)

	e.delete(away)
	e.eventually(func(c *assert.CollectT) { assert.Nil(c, e.record(c, away)) }, "the record of the node that stays away is removed")

	// Away began to count after the others did.
	for _, name := range []string{live, back} {
		r := e.record(t, name)
		require.NotNil(t, r, "record of node %s", name)
		assert.Equal(t, want, r.Labels)
	}
	// A node whose record is gone is new.
	e.create(away, labelSet{"rack": "r9"})
	e.saved(away, labelSet{"rack": "r9"})
	e.settle()
	_, marker := e.labels(t, away)
	assert.Empty(t, marker)
}

// awaySince waits until the record of a node says since when it is away, or does not say it any more.
func (e *env) awaySince(name string, isNoted bool) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		cm := &corev1.ConfigMap{}
		require.NoError(c, e.client.Get(e.t.Context(), types.NamespacedName{Namespace: e.metadata, Name: name}, cm))
		_, ok := cm.Annotations[record.AwaySinceAnnotation]
		assert.Equal(c, isNoted, ok)
	}, "the record of node %s tells whether it is away", name)
}
