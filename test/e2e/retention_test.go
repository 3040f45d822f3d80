package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/processor/retention"
	"nodekeeper.dev/internal/record"
)

func TestOnlyTheRecordOfANodeThatStaysAwayIsRemoved(t *testing.T) {
	t.Parallel()
	const after = 40 * time.Second // long enough for a node to return on a busy machine
	e := newEnv(t)
	e.watcher()
	e.processor("--retention=" + after.String())
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
	e.eventually(func(c *assert.CollectT) {
		assert.Nil(c, e.record(c, away))
		// After the removal there is a second check, under the lock: if the node exists by then, it
		// gets its record back.
		assert.Empty(c, e.locks(c))
	}, "the record of the node that stays away is removed")

	// The absence of away began after that of the other nodes.
	for _, name := range []string{live, back} {
		r := e.record(t, name)
		require.NotNil(t, r, "record of node %s", name)
		assert.Equal(t, want, r.Labels)
	}
	// A node without a record is new.
	e.create(away, labelSet{"rack": "r9"})
	e.saved(away, labelSet{"rack": "r9"})
	e.settle()
	_, marker := e.labels(t, away)
	assert.Empty(t, marker)
}

func TestRecordsAreKeptForEverUnlessARetentionTimeIsGiven(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	e := newEnv(t)
	e.watcher()
	keeping := e.processor()
	live, short, long := e.name("live"), e.name("short"), e.name("long")
	want := labelSet{"rack": "r7"}
	first := map[string]*corev1.Node{}
	for _, name := range []string{live, short, long} {
		first[name] = e.create(name, want)
		e.saved(name, want)
	}
	for _, name := range []string{short, long} {
		e.delete(name)
		e.ended(first[name])
	}
	e.settle()
	versions := map[string]string{}
	for name, away := range map[string]time.Duration{live: 31 * day, short: 29 * day, long: 31 * day} {
		versions[name] = e.noteAway(name, time.Now().Add(-away))
	}

	// A processor that removes records searches for them at startup.
	e.stop(keeping)
	keeping = e.processor()
	other := e.name("other")
	e.watcher()
	e.create(other, want)
	e.saved(other, want)
	e.settle()
	for name, version := range versions {
		assert.Equal(t, version, e.recordObject(t, name).ResourceVersion, "record of node %s", name)
	}
	e.stop(keeping)

	// No recent sweep has checked for absent nodes, so the absence of all of them starts now.
	removing := e.processor("--retention=720h")
	e.awaySince(live, false)
	e.stop(removing)
	assert.Equal(t, versions[long], e.recordObject(t, long).ResourceVersion)
	e.observedSince(time.Now().Add(-40 * day))
	e.processor("--retention=720h")
	e.eventually(func(c *assert.CollectT) { assert.Nil(c, e.record(c, long)) }, "the record of the node that is away for 31 days is removed")
	assert.Equal(t, versions[short], e.recordObject(t, short).ResourceVersion)
	e.watcher()
	e.create(short, nil)
	e.restored(short, want)
	e.settle()
}

// noteAway writes into a record since when its node has been absent, and returns its
// resourceVersion.
func (e *env) noteAway(name string, since time.Time) (resourceVersion string) {
	e.t.Helper()
	cm := e.recordObject(e.t, name)
	cm.Annotations[record.AwaySinceAnnotation] = since.UTC().Format(time.RFC3339)
	require.NoError(e.t, e.client.Update(e.t.Context(), cm))
	return cm.ResourceVersion
}

// observedSince makes it appear that processors have checked for absent nodes since then.
func (e *env) observedSince(since time.Time) {
	e.t.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(e.t, e.client.Get(e.t.Context(), types.NamespacedName{Namespace: e.metadata, Name: retention.LeaseName}, lease))
	lease.Spec.AcquireTime = new(metav1.NewMicroTime(since))
	require.NoError(e.t, e.client.Update(e.t.Context(), lease))
}

// recordObject reads the ConfigMap of a node's record.
func (e *env) recordObject(t require.TestingT, name string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{}
	require.NoError(t, e.client.Get(e.t.Context(), types.NamespacedName{Namespace: e.metadata, Name: name}, cm))
	return cm
}

// awaySince waits until the record of a node contains the start of its absence, or no longer
// contains it.
func (e *env) awaySince(name string, isNoted bool) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		_, ok := e.recordObject(c, name).Annotations[record.AwaySinceAnnotation]
		assert.Equal(c, isNoted, ok)
	}, "the record of node %s tells whether it is away", name)
}
