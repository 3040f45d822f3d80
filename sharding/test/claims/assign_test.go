package claims

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/slots"
	"nodekeeper.dev/test/controlplane"
)

const (
	// period and patience are for waiting until the API server has observed a change of policies
	// and params.
	period, patience = 20 * time.Millisecond, 3 * time.Minute
)

// TestPolicyAssignsInTheFirstVersion covers R15 and a part of R16: a policy whose param contains
// the table labels an object in the request that creates it, and no request fails because the
// table, the shards or the param are missing.
func TestPolicyAssignsInTheFirstVersion(t *testing.T) {
	t.Parallel()
	c := policyClient(t)
	namespace := controlplane.Namespace(t, c)
	ring := newRing(t, c, namespace)
	assignBy(t, c, ring, namespace)

	table := slots.Table{}.With([]string{"web-0", "web-1", "web-2"})
	setTable(t, c, ring, table)
	assert.Equal(t, "web-1", eventuallyAssigned(t, c, namespace, "web-1"), "the policy is in force, and has the table")
	for i := range 30 {
		name := fmt.Sprintf("s-%d", i)
		want, ok := table.Shard(slots.Object{Kind: "Secret", Namespace: namespace, Name: name}.Key())
		require.True(t, ok)
		assert.Equal(t, want, create(t, c, namespace, name).Labels["shard"], "of %s", name)
	}
	long := strings.Repeat("n", 253)
	want, _ := table.Shard(slots.Object{Kind: "Secret", Namespace: namespace, Name: long}.Key())
	assert.Equal(t, want, create(t, c, namespace, long).Labels["shard"])
	generated := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "g-"}}
	require.NoError(t, c.Create(t.Context(), generated))
	assert.Empty(t, generated.Labels["shard"], "it has no name yet, R18")

	setTable(t, c, ring, slots.Table{})
	eventuallyAssigned(t, c, namespace, "")
	create(t, c, namespace, "no-shards")
	require.NoError(t, c.Delete(t.Context(), ring))
	for i := range 50 { // while the API server learns about the deletion
		create(t, c, namespace, fmt.Sprintf("no-ring-%d", i))
	}
}

// TestPolicyDropsCopiedMetadata covers the other half of R15: whatever sharding metadata a create
// request contains, the first version of the object has only the assignment by the table, or none.
func TestPolicyDropsCopiedMetadata(t *testing.T) {
	t.Parallel()
	c := policyClient(t)
	namespace := controlplane.Namespace(t, c)
	ring := newRing(t, c, namespace)
	s, d, children := shardPrefix+namespace, drainPrefix+namespace, childrenPrefix+namespace
	install(t, c, namespace, namespace, admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind:        paramKind(ring),
		MatchConstraints: on("", []string{"secrets"}, admissionregistrationv1.Create),
		MatchConditions:  []admissionregistrationv1.MatchCondition{inNamespace(namespace)},
		Variables: []admissionregistrationv1.Variable{
			{Name: "labels", Expression: "object.metadata.?labels.orValue({})"},
			{Name: "shard", Expression: "has(object.metadata.name) && " + hasTable + " ? " + shardOf("'/Secret/' + request.namespace + '/' + object.metadata.name") + " : ''"},
		},
		Mutations: patching("(variables.shard == '' || has(object.metadata.labels) ? [] : [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}])" +
			" + (variables.shard == '' ? [] : [JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('" + s + "'), value: variables.shard}])" +
			" + ['" + s + "', '" + d + "'].filter(k, k in variables.labels && !(k == '" + s + "' && variables.shard != '')).map(k, JSONPatch{op: 'remove', path: '/metadata/labels/' + jsonpatch.escapeKey(k)})" +
			" + ['" + children + "'].filter(k, k in object.metadata.?annotations.orValue({})).map(k, JSONPatch{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey(k)})"),
	})
	copied := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, GenerateName: "copy-",
			Labels:      map[string]string{s: "web-7", d: "web-8", shardPrefix + "another": "web-7"},
			Annotations: map[string]string{children: "{}", "kept": "yes"},
		}}
	}
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		secret := copied("")
		require.NoError(collect, c.Create(ctx, secret, client.DryRunAll))
		assert.NotContains(collect, secret.Labels, d)
	}, patience, period, "the policy is in force")

	check := func(name, shard string) {
		t.Helper()
		secret := copied(name)
		require.NoError(t, c.Create(t.Context(), secret))
		want := map[string]string{shardPrefix + "another": "web-7"}
		if shard != "" {
			want[s] = shard
		}
		assert.Equal(t, want, secret.Labels)
		assert.Equal(t, map[string]string{"kept": "yes"}, secret.Annotations)
	}
	check("no-table", "")
	setTable(t, c, ring, slots.Table{}.With([]string{"web-0"}))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bare"}}
		require.NoError(collect, c.Create(ctx, secret, client.DryRunAll))
		assert.Equal(collect, map[string]string{s: "web-0"}, secret.Labels)
	}, patience, period, "the policy has the table")
	check("table", "web-0")
	check("", "") // its name is generated later
}

// create returns the first version of a Secret.
func create(t *testing.T, c client.Client, namespace, name string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	require.NoError(t, c.Create(t.Context(), secret))
	return secret
}

// eventuallyAssigned waits until the policy would assign some new Secret to a shard, and returns
// that shard.
func eventuallyAssigned(t *testing.T, c client.Client, namespace, want string) (shard string) {
	t.Helper()
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		for i := range 20 {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("probe-%d", i)}}
			require.NoError(collect, c.Create(ctx, secret, client.DryRunAll))
			if shard = secret.Labels["shard"]; shard == want {
				return
			}
		}
		assert.Fail(collect, "no probe has it", want)
	}, patience, period)
	return shard
}

// ringKind is a kind with a table. All tests share it: the API server can need half a minute to
// find a kind of params that is defined after it has looked one up for another policy.
var (
	ringKind    = schema.GroupVersionKind{Group: "test.nodekeeper.dev", Version: "v1", Kind: "Ring"}
	defineRings sync.Once
)

// newRing creates a ring without a table. It has the name of the namespace.
func newRing(t *testing.T, c client.Client, namespace string) *unstructured.Unstructured {
	t.Helper()
	defineRings.Do(func() {
		crd := newCRD(ringKind, "Cluster", map[string]any{"table": map[string]any{
			"type": "object", "properties": map[string]any{
				"shards": map[string]any{"type": "array", "maxItems": int64(200), "items": map[string]any{"type": "string", "maxLength": int64(63)}},
				"slots":  map[string]any{"type": "array", "maxItems": int64(slots.Count), "items": map[string]any{"type": "integer"}},
			},
		}})
		require.NoError(t, c.Create(t.Context(), crd))
		waitFor(t, c, ringKind)
	})
	ring := newObject(ringKind, "", namespace)
	createForTest(t, c, ring)
	return ring
}

func setTable(t *testing.T, c client.Client, ring *unstructured.Unstructured, table slots.Table) {
	t.Helper()
	shards, slot := make([]any, len(table.Shards)), make([]any, len(table.Slots))
	for i, name := range table.Shards {
		shards[i] = name
	}
	for i, shard := range table.Slots {
		slot[i] = int64(shard)
	}
	ring.Object["table"] = map[string]any{"shards": shards, "slots": slot}
	require.NoError(t, c.Update(t.Context(), ring))
}

// hasTable and shardOf are expressions that use the ring as their param: whether it has a table,
// and the shard of a key.
const hasTable = "has(params.table) && has(params.table.shards) && size(params.table.shards) > 0 && has(params.table.slots) && size(params.table.slots) == 1024"

func shardOf(key string) string {
	return "params.table.shards[params.table.slots[" + slots.CEL(key) + "]]"
}

// paramKind is the kind of a ring in the form that policies use.
func paramKind(ring *unstructured.Unstructured) *admissionregistrationv1.ParamKind {
	return &admissionregistrationv1.ParamKind{APIVersion: ring.GetAPIVersion(), Kind: ring.GetKind()}
}

// assignBy makes the API server assign the Secrets of a namespace by the ring of that name.
func assignBy(t *testing.T, c client.Client, ring *unstructured.Unstructured, namespace string) {
	t.Helper()
	install(t, c, namespace, ring.GetName(), admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind:        paramKind(ring),
		MatchConstraints: on("", []string{"secrets"}, admissionregistrationv1.Create),
		MatchConditions: []admissionregistrationv1.MatchCondition{
			inNamespace(namespace),
			{Name: "has-a-table", Expression: "has(object.metadata.name) && " + hasTable},
		},
		Mutations: applying("Object{metadata: Object.metadata{labels: {'shard': " + shardOf("'/Secret/' + object.metadata.namespace + '/' + object.metadata.name") + "}}}"),
	})
}
