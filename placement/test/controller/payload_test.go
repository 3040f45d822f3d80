package controller_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement/contract"
)

// heavyPods is the number of pods and of payloads of TestFifteenMiBOfPayloads.
const heavyPods = 18

// reserved is what the controller keeps free in a contract besides its entries.
const reserved = 1 << 10

// largest returns the longest payload that fits into an empty contract of a pod. Of characters that
// JSON escapes, it has half as many, and the contract in its ConfigMap is twice as long on the wire.
func (w *world) largest(o *unstructured.Unstructured, p *pod, character string) string {
	reference := contract.Reference{UID: types.UID(strings.Repeat("u", 36)), APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: w.namespace, Name: o.GetName()}
	rest := contract.Placed{Reference: reference, Of: 1, Payload: json.RawMessage(`""`)}
	room := contract.MaxBytes - len(p.name) - len(p.incarnation) - reserved - rest.Bytes(1)
	encoded, err := json.Marshal(character)
	require.NoError(w.t, err)
	return strings.Repeat(character, room/(len(encoded)-len(`""`)))
}

// TestFifteenMiBOfPayloads: the payloads of a pool are the largest that contracts can have, and are
// more than 15 MiB in all. Each pod has one of them, one more must wait for another pod, and one that
// is a byte longer is never placed. The API server refuses no write.
func TestFifteenMiBOfPayloads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kinds: ["+heavyKind+"]")
	const lives = time.Hour // without a renewal: to read such a contract in every period takes long
	var last *pod
	for i := range heavyPods {
		last = w.pod(fmt.Sprintf("w-%02d", i), lives)
		last.stop()
	}
	var all []*unstructured.Unstructured
	total := 0
	for i := range heavyPods {
		o := w.newObject(heavy, fmt.Sprintf("largest-%02d", i), nil)
		payload := w.largest(o, last, []string{"x", `"`}[i%2])
		encoded, err := json.Marshal(payload)
		require.NoError(t, err)
		total += len(encoded)
		all = append(all, w.heavy(o.GetName(), map[string]any{"n": int64(1), "payload": payload}))
	}
	assert.Greater(t, total, 15<<20)
	holders := map[string]bool{}
	for _, o := range all {
		s := w.awaitReason(o, "Scheduled", "Placed")
		require.Len(t, s.Placement, 1)
		holders[s.Placement[0].PodName] = true
		w.assertPayload(s.Placement[0].PodName, o)
	}
	assert.Len(t, holders, heavyPods)

	waiting := w.heavy("waiting", map[string]any{"n": int64(1), "payload": w.largest(w.newObject(heavy, "waiting", nil), last, "x")})
	w.awaitReason(waiting, "Scheduled", "NotEnoughCapacity")
	longer := w.heavy("longer", map[string]any{"n": int64(1), "payload": w.largest(w.newObject(heavy, "longer", nil), last, "x") + "x"})
	w.awaitReason(longer, "Scheduled", "ContractTooLarge")
	w.pod("w-99", lives).stop()
	w.awaitReason(waiting, "Scheduled", "Placed")
	w.awaitReason(longer, "Scheduled", "ContractTooLarge")
	assert.Empty(t, w.puts.refusals())
}

// assertPayload asserts that the contract of a pod has the payload of an object.
func (w *world) assertPayload(name string, o *unstructured.Unstructured) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		e := contractOf(t, &pod{w: w, name: name}).Entry(o.GetUID())
		require.NotNil(t, e)
		want, _, err := unstructured.NestedString(o.Object, "spec", "payload")
		require.NoError(t, err)
		var got string
		require.NoError(t, json.Unmarshal(e.Payload, &got))
		if want != got { // not Equal, which would print both
			assert.Fail(t, "the contract has another payload")
		}
	}, patience, time.Second)
}
