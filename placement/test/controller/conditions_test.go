package controller_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

// heavyKind and narrowKind are kinds in the file of the pools.
const (
	heavyKind  = "{apiVersion: test.example.com/v1, kind: Heavy, replicasPath: spec.n, maxPath: spec.most, weightPath: spec.weight, payloadPath: spec.payload}"
	narrowKind = "{apiVersion: test.example.com/v1, kind: Narrow, replicasPath: spec.n}"
)

// heavy creates a Heavy.
func (w *world) heavy(name string, spec map[string]any) *unstructured.Unstructured {
	w.t.Helper()
	o := w.newObject(heavy, name, spec)
	require.NoError(w.t, w.Create(w.t.Context(), o))
	return o
}

// awaitReason waits until a condition of an object has a reason, and returns its status.
func (w *world) awaitReason(o *unstructured.Unstructured, kind, reason string) (s placement.Status) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		require.NoError(t, w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o))
		fields, _, err := unstructured.NestedMap(o.Object, "status")
		require.NoError(t, err)
		s = placement.Status{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &s))
		for i := range s.Conditions {
			if s.Conditions[i].Type == kind {
				assert.Equal(t, reason, s.Conditions[i].Reason, s.Conditions[i].Message)
				return
			}
		}
		assert.Fail(t, "there is no condition "+kind)
	}, patience, period)
	return s
}

// setSpec changes a field of the spec.
func (w *world) setSpec(o *unstructured.Unstructured, field, value string) {
	w.t.Helper()
	w.patch(o, `{"spec":{%q:%s}}`, field, value)
}

func TestNumbersThatAreLimitedOrInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "maxReplicas: 10000, kinds: ["+heavyKind+"]")
	w.pod("w-0", long)
	o := w.heavy("one", map[string]any{"n": int64(3)})
	w.awaitReason(o, "Ready", "Ready")
	w.setSpec(o, "most", "2")
	s := w.awaitReason(o, "Scheduled", "LimitedByMaxAllowedVReplicas")
	w.awaitReason(o, "Ready", "Ready")
	assert.Len(t, owners(t, &s), 2)
	for _, invalid := range []string{"2147483647", "10001", "-1", `"x"`, "1.5", "99999999999999999999"} {
		w.setSpec(o, "n", invalid)
		s = w.awaitReason(o, "Ready", "InvalidReplicas")
		assert.Len(t, owners(t, &s), 2, "the last decision is kept: %s", invalid)
		w.setSpec(o, "n", "2")
		w.awaitReason(o, "Ready", "Ready")
	}
	w.setSpec(o, "n", "0")
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		s := w.awaitReason(o, "Ready", "Ready")
		assert.Empty(t, s.Placement)
	}, patience, period)
}

func TestWeightsFillThePods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "capacity: 10, kinds: ["+heavyKind+"]")
	w.pod("w-0", long)
	w.pod("w-1", long)
	o := w.heavy("four", map[string]any{"n": int64(5), "weight": int64(4)})
	s := w.awaitReason(o, "Scheduled", "NotEnoughCapacity")
	assert.Len(t, owners(t, &s), 4, "two of weight 4 on each pod")
	w.awaitMetrics(map[string]float64{`pods_wanted{pool="worker"}`: 2, `vreplicas{pool="worker",state="pending"}`: 1})
	w.setSpec(o, "weight", "1")
	w.awaitReason(o, "Ready", "Ready")
}

// TestExtremeNumbersStopNothing: no number in a resource, a Lease or a status makes a pass slow.
func TestExtremeNumbersStopNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "capacity: 50, kinds: ["+queueKind+", "+heavyKind+"]")
	a := w.pod("w-0", long)
	w.queue("orders", 3)
	w.await("orders", "Ready", "Ready")
	for i, spec := range []map[string]any{{"n": int64(1 << 20)}, {"n": int64(3), "weight": int64(math.MaxInt32)}, {"n": int64(1 << 20), "weight": int64(math.MaxInt32)}} {
		o := w.heavy(fmt.Sprintf("h-%d", i), spec)
		w.awaitReason(o, "Scheduled", "NotEnoughCapacity")
	}
	o := w.heavy("edited", map[string]any{"n": int64(0)})
	w.awaitReason(o, "Scheduled", "Placed")
	w.patchStatus(o, `{"status":{"placements":[{"podName":"w-0","incarnation":"a/1","vreplicas":2147483647,"indexes":"0-2147483646","since":9223372036854775807}]}}`)
	a.set(func(p *pod) {
		p.change = func(_ *contract.Contract, answer *contract.Ack) { answer.Generation = math.MaxInt64 }
	})
	w.patch(a.lease(t), `{"metadata":{"annotations":{%q:"99999999999999999999",%q:"x"}}}`, contract.CapacityAnnotation, contract.ZoneAnnotation)
	b := w.pod("w-1", long)
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.NotEmpty(t, contractOf(t, b).Entries) }, patience, period)
	a.set(func(p *pod) { p.change = nil })
	w.await("orders", "Ready", "Ready")
	w.awaitMetrics(map[string]float64{`vreplicas{pool="worker",state="placed"}`: 100, `pods{pool="worker",state="open"}`: 2})
}

// TestAcknowledgementsThatProveNothing never make a resource Ready.
func TestAcknowledgementsThatProveNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*contract.Contract, *contract.Ack){
		"of an earlier generation": func(_ *contract.Contract, answer *contract.Ack) { answer.Generation-- },
		"of another digest":        func(_ *contract.Contract, answer *contract.Ack) { answer.Digest = "0123456789abcdef" },
		"of another pod": func(_ *contract.Contract, answer *contract.Ack) {
			_, run, _ := strings.Cut(answer.Incarnation, "/")
			answer.Incarnation = "another/" + run
		},
		"of another run": func(_ *contract.Contract, answer *contract.Ack) {
			uid, _, _ := strings.Cut(answer.Incarnation, "/")
			answer.Incarnation = uid + "/run-30s"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			a := w.pod("w-0", long)
			a.set(func(p *pod) { p.change = change })
			w.queue("orders", 2)
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				assert.NotEmpty(t, a.lease(t).Annotations[contract.AcknowledgedAnnotation])
				assert.Greater(t, w.scrape(t)[`placement_not_acknowledged_seconds_max{pool="worker"}`], 1.0)
			}, patience, period)
			w.queue("mails", 1) // causes passes
			s := w.await("mails", "Ready", "NotAcknowledged")
			assert.Zero(t, s.ReadyVReplicas)
			s = w.await("orders", "Ready", "NotAcknowledged")
			assert.Zero(t, s.ReadyVReplicas)
			a.set(func(p *pod) { p.change = nil })
			w.await("orders", "Ready", "Ready")
		})
	}
}

// TestSchemaThatPrunesIsWrittenOnce: the kind of the proposal has only the names of pods and counts.
func TestSchemaThatPrunesIsWrittenOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kinds: ["+queueKind+", "+narrowKind+"]")
	a := w.pod("w-0", long)
	o := w.newObject(narrow, "one", map[string]any{"n": int64(2)})
	require.NoError(t, w.Create(t.Context(), o))
	w.awaitEvent("Narrow", "one", "StatusPruned", "Warning: the API server does not store status.decision: ")
	for i := range 3 { // passes go on, for other resources of the kind, too
		name := fmt.Sprintf("other-%d", i)
		require.NoError(t, w.Create(t.Context(), w.newObject(narrow, name, map[string]any{"n": int64(1)})))
		w.queue(name, 1)
		w.await(name, "Ready", "Ready")
	}
	all := "/apis/test.example.com/v1/namespaces/" + w.namespace + "/narrows/"
	assert.Equal(t, 1, w.puts.of(all+"one/status"))
	for i := range 3 {
		name := fmt.Sprintf("other-%d", i)
		assert.Zero(t, w.puts.of(all+name+"/status"))
		assert.Positive(t, w.puts.of("/apis/example.com/v1/namespaces/"+w.namespace+"/queues/"+name+"/status"))
		other := w.newObject(narrow, name, nil)
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(other), other))
		assert.NotContains(t, other.Object, "status")
	}
	given := contractOf(t, a)
	assert.Nil(t, given.Entry(o.GetUID()), "it grants nothing")
	assert.Len(t, given.Entries, 3)
}

// TestPayloadsThatDoNotFit: no write of a contract is rejected.
func TestPayloadsThatDoNotFit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kinds: ["+heavyKind+"]")
	a := w.pod("w-0", long)
	payload := func(kib int) string { return strings.Repeat("x", kib<<10) }
	large := w.heavy("large", map[string]any{"n": int64(1), "payload": payload(950)})
	w.awaitReason(large, "Scheduled", "ContractTooLarge")
	w.awaitEvent("Heavy", "large", "ContractTooLarge", "Warning: its entry does not fit into a contract")
	fits := w.heavy("fits", map[string]any{"n": int64(2), "payload": payload(500)})
	w.awaitReason(fits, "Ready", "Ready")
	assert.Greater(t, w.scrape(t)[`placement_contract_bytes_max{pool="worker"}`], float64(500<<10))
	w.patch(fits, `{"spec":{"payload":%q}}`, payload(950))
	s := w.awaitReason(fits, "Scheduled", "ContractTooLarge")
	assert.Len(t, owners(t, &s), 2, "it stays where it is")
	assert.Len(t, contractOf(t, a).Entry(fits.GetUID()).Payload, 500<<10+2)

	// Its neighbours work on, although some have higher UIDs, and all entries are new for the next
	// incarnation.
	var small []*unstructured.Unstructured
	for i := range 6 {
		small = append(small, w.heavy(fmt.Sprintf("small-%d", i), map[string]any{"n": int64(1)}))
		w.awaitReason(small[i], "Ready", "Ready")
	}
	assert.NotNil(t, contractOf(t, a).Entry(fits.GetUID()))
	a.leave()
	a = w.pod("w-0", long)
	for _, o := range small {
		w.awaitReason(o, "Acknowledged", "Acknowledged")
		w.awaitReason(o, "Ready", "Ready")
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Len(t, contractOf(t, a).Entries, len(small))
		s := w.awaitReason(fits, "Scheduled", "ContractTooLarge")
		assert.Empty(t, s.Placement)
	}, patience, period)
	w.patch(fits, `{"spec":{"payload":"small"}}`)
	w.awaitReason(fits, "Ready", "Ready")
	assert.JSONEq(t, `"small"`, string(contractOf(t, a).Entry(fits.GetUID()).Payload))
}

// TestWhatIsStored: the JSON of contract, acknowledgement and status.
func TestWhatIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	a := w.pod("w-0", long)
	q := w.queue("orders", 2)
	s := w.await("orders", "Ready", "Ready")
	given := contractOf(t, a)
	cm := a.configMap(t)
	text := fmt.Sprintf(`{"incarnation":%q,"generation":%d,"entries":[{"uid":%q,"apiVersion":"example.com/v1","kind":"Queue","namespace":%q,"name":"orders",`+
		`"generation":1,"decision":%d,"changed":%d,"of":2,"replicas":{"0":%d,"1":%d},"payload":{"partitions":2,"topic":"orders"}}]}`,
		a.incarnation, given.Generation, q.GetUID(), w.namespace, s.Decision, given.Generation, s.Decision, s.Decision)
	assert.Equal(t, text, cm.Data["contract"])
	assert.Equal(t, map[string]string{"placement.nodekeeper.dev/pool": "worker"}, cm.Labels)
	assert.Equal(t, fmt.Sprintf(`{"incarnation":%q,"generation":%d,"digest":%q}`, a.incarnation, given.Generation, contract.Digest([]byte(cm.Data["contract"]))),
		a.lease(t).Annotations["placement.nodekeeper.dev/acknowledged"])
	assert.Equal(t, []placement.Placement{{PodName: "w-0", VReplicas: 2, Incarnation: a.incarnation, Indexes: "0-1", Since: s.Decision}}, s.Placement)
	assert.EqualValues(t, 1, s.ObservedGeneration)
	assert.EqualValues(t, 2, s.ReadyVReplicas)
	var all []string
	for i := range s.Conditions {
		c := &s.Conditions[i]
		all = append(all, fmt.Sprintf("%s %s %s %d", c.Type, c.Status, c.Reason, c.ObservedGeneration))
	}
	assert.Equal(t, []string{"Scheduled True Placed 1", "Acknowledged True Acknowledged 1", "Ready True Ready 1"}, all)
}

// TestObjectsOfOthersAreKept: a Lease with the name of a pod that a decision names, without the
// label of the pool, and one that nothing names.
func TestObjectsOfOthersAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	other := &coordinationv1.Lease{ObjectMeta: w.meta("other"), Spec: coordinationv1.LeaseSpec{HolderIdentity: new("me"), LeaseDurationSeconds: new(int32(1)), RenewTime: new(metav1.NowMicro())}}
	require.NoError(t, w.Create(t.Context(), other))
	a, b := w.pod("w-0", short), w.pod("w-1", long)
	w.queue("orders", 2)
	w.await("orders", "Ready", "Ready")
	// Without the label, the Lease cannot be taken over, however long it takes to stop the pod.
	w.patch(a.lease(t), `{"metadata":{"labels":{"placement.nodekeeper.dev/pool":null}}}`)
	a.stop()
	before := a.lease(t).ResourceVersion
	w.awaitEvent("Lease", "w-0", "ForeignObject", "Warning: it has the name of a pod of the pool worker")
	assert.Equal(t, before, a.lease(t).ResourceVersion)
	w.patch(a.lease(t), `{"metadata":{"labels":{"placement.nodekeeper.dev/pool":"worker"}}}`)
	require.EventuallyWithT(t, func(t *assert.CollectT) { // once the Lease was silent for 2D again
		s := w.status(t, "orders")
		assert.Equal(t, map[int32]string{0: b.name, 1: b.name}, owners(t, &s))
	}, patience, period)
	now := &coordinationv1.Lease{ObjectMeta: w.meta("other")}
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(now), now))
	assert.Equal(t, other.ResourceVersion, now.ResourceVersion)
}
