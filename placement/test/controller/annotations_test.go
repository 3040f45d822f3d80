package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

var codec = placement.Annotations{Prefix: prefix}

// twoKinds are keys of a pool with a kind of each form.
const twoKinds = "kinds: [" + queueKind + ", {apiVersion: test.example.com/v1, kind: Trigger, annotationPrefix: " + prefix + ", payloadPath: spec}, " +
	"{apiVersion: test.example.com/v1, kind: Plain, annotationPrefix: " + prefix + "}]"

// annotated creates an object whose desired number is an annotation, unless that is empty.
func (w *world) annotated(kind schema.GroupVersionKind, name, replicas string) *unstructured.Unstructured {
	w.t.Helper()
	o := w.newObject(kind, name, map[string]any{"broker": "default"})
	if replicas != "" {
		o.SetAnnotations(map[string]string{prefix + "/replicas": replicas})
	}
	require.NoError(w.t, w.Create(w.t.Context(), o))
	return o
}

// annotatedStatus returns the annotations of a status, their content, and the reason of
// PlacementReady.
func (w *world) annotatedStatus(t require.TestingT, o *unstructured.Unstructured) (all map[string]string, s placement.Status, reason string) {
	require.NoError(t, w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o))
	all, _, err := unstructured.NestedStringMap(o.Object, "status", "annotations")
	require.NoError(t, err)
	s, err = codec.Decode(all)
	require.NoError(t, err)
	list, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	require.NoError(t, err)
	for _, one := range list {
		if one, ok := one.(map[string]any); ok && one["type"] == "PlacementReady" {
			reason, _ = one["reason"].(string)
		}
	}
	return all, s, reason
}

// awaitAnnotated waits until all indexes of an object are on pods.
func (w *world) awaitAnnotated(o *unstructured.Unstructured, wanted int, reason string) (s placement.Status) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		var now string
		_, s, now = w.annotatedStatus(t, o)
		assert.Len(t, owners(t, &s), wanted)
		assert.Empty(t, s.Releasing)
		assert.Equal(t, reason, now)
	}, patience, period)
	return s
}

func TestKindWithAnnotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, twoKinds)
	a, _ := w.pod("w-0", long), w.pod("w-1", long)
	w.queue("orders", 2)
	o := w.annotated(trigger, "clicks", "4")
	w.awaitAnnotated(o, 4, "Ready")
	w.await("orders", "Ready", "Ready")
	cm := contractOf(t, a)
	e := cm.Entry(o.GetUID())
	require.NotNil(t, e)
	assert.JSONEq(t, `{"broker":"default"}`, string(e.Payload))

	// The other program of the kind sets the upper limit, and annotations, conditions and an observed
	// generation of its own.
	w.patchStatus(o, `{"status":{"observedGeneration":17,"annotations":{"mine":"1","`+prefix+`/scheduler.placeable.MaxAllowedVReplicas":"3"},"conditions":[`+
		`{"type":"BrokerReady","status":"True","severity":"Info"},{"type":"Ready","status":"False"}]}}`)
	w.awaitAnnotated(o, 3, "Ready")
	all, s, _ := w.annotatedStatus(t, o)
	assert.Equal(t, "1", all["mine"])
	assert.Equal(t, int32(3), *s.MaxAllowedVReplicas)
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"type": "BrokerReady", "status": "True", "severity": "Info"}, conditions[0])
	assert.Equal(t, map[string]any{"type": "Ready", "status": "False"}, conditions[1])
	assert.Len(t, conditions, 5)
	observed, _, err := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	require.NoError(t, err)
	assert.EqualValues(t, 17, observed)
	w.assertCalm(o)

	w.patch(o, `{"metadata":{"annotations":{"%s/replicas":"two"}}}`, prefix)
	w.awaitAnnotated(o, 3, "InvalidReplicas")
	w.patch(o, `{"metadata":{"annotations":{"%s/replicas":"1"}}}`, prefix)
	w.awaitAnnotated(o, 1, "Ready")
	w.patch(o, `{"metadata":{"annotations":{"%s/replicas":null}}}`, prefix)
	w.awaitAnnotated(o, 1, "Ready")
}

// TestKindWithAnnotationsOnly: it has no conditions and no observed generation.
func TestKindWithAnnotationsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, twoKinds)
	w.pod("w-0", long)
	o := w.annotated(plain, "mails", "")
	w.awaitAnnotated(o, 1, "")
	w.patch(o, `{"metadata":{"annotations":{"%s/replicas":"3"}}}`, prefix)
	w.awaitAnnotated(o, 3, "")
	w.awaitMetrics(map[string]float64{`vreplicas{pool="worker",state="working"}`: 3})
	w.assertCalm(o)
	w.patch(o, `{"metadata":{"annotations":{"%s/replicas":"0"}}}`, prefix)
	w.awaitAnnotated(o, 0, "")
	w.assertCalm(o)
	require.NoError(t, w.Delete(t.Context(), o))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Zero(t, w.scrape(t)[`placement_vreplicas{pool="worker",state="wanted"}`])
	}, patience, period)
}

// TestVerdictsThatAnotherWriterUndoes are written again, but not as fast as the two can.
func TestVerdictsThatAnotherWriterUndoes(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"queue": "Ready", "trigger": "PlacementReady"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoKinds)
			w.pod("w-0", long)
			o := w.queue("orders", 1)
			if name == "trigger" {
				o = w.annotated(trigger, "clicks", "1")
			}
			reason := func() string {
				require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(o), o))
				list, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
				require.NoError(t, err)
				for _, one := range list {
					if one, ok := one.(map[string]any); ok && one["type"] == kind {
						reason, _ := one["reason"].(string)
						return reason
					}
				}
				return ""
			}
			require.Eventually(t, func() bool { return reason() == "Ready" }, patience, period)
			writes, began := 0, time.Now()
			for writes < 2 { // it takes ten seconds until the second one
				if reason() == "Ready" {
					writes++
					w.patchStatus(o, `{"status":{"conditions":[{"type":"`+kind+`","status":"Unknown","reason":"Mine","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
				}
				require.Less(t, time.Since(began), patience)
				time.Sleep(period)
			}
			assert.Greater(t, time.Since(began), 5*time.Second)
			require.Eventually(t, func() bool { return reason() == "Ready" }, patience, period)
			w.assertCalm(o)
		})
	}
}

// TestMalformedAnnotationKeepsTheWork: it is named in the log, and nothing is guessed.
func TestMalformedAnnotationKeepsTheWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, twoKinds)
	a := w.pod("w-0", long)
	o := w.annotated(trigger, "clicks", "2")
	s := w.awaitAnnotated(o, 2, "Ready")
	before := contractOf(t, a)
	key := prefix + "/scheduler.placeable.Placements.0.VReplicas"
	w.patchStatus(o, `{"status":{"annotations":{"`+key+`":"x"}}}`)
	w.patch(o, `{"metadata":{"annotations":{"%s/replicas":"5"}}}`, prefix)
	q := w.queue("orders", 1)
	w.await("orders", "Ready", "Ready")
	after := contractOf(t, a)
	assert.Equal(t, before.Entry(o.GetUID()).Replicas, after.Entry(o.GetUID()).Replicas)
	assert.NotNil(t, after.Entry(q.GetUID()))
	w.patchStatus(o, `{"status":{"annotations":{"`+key+`":"2"}}}`)
	now := w.awaitAnnotated(o, 5, "Ready")
	assert.Greater(t, now.Decision, s.Decision)
}

// contractOf returns the contract of a pod.
func contractOf(t require.TestingT, p *pod) *contract.Contract {
	cm := p.configMap(t)
	given, err := contract.DecodeContract([]byte(cm.Data[contract.DataKey]))
	require.NoError(t, err)
	return &given
}
