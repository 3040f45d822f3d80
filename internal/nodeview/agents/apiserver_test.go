package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
)

type set = map[string]string

// The writers in these tests, by the user agents of the real programs.
const (
	kubelet = "kubelet/v1.36.0 (linux/amd64) kubernetes/abcdef0"
	nfd     = "nfd-master/v0.18.0 (linux/amd64) kubernetes/abcdef0"
	person  = "kubectl/v1.36.0 (linux/amd64) kubernetes/abcdef0"
)

// node is a Node in the API server.
type node struct {
	t    *testing.T
	name string
}

func as(t *testing.T, userAgent string) client.Client {
	t.Helper()
	config := rest.CopyConfig(api.Config)
	config.UserAgent = userAgent
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	return c
}

// register creates a Node as a kubelet does.
func register(t *testing.T, own set) *node {
	t.Helper()
	n := &node{t, "node-" + rand.String(8)}
	require.NoError(t, as(t, kubelet).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: own}}))
	t.Cleanup(func() {
		assert.NoError(t, as(t, person).Delete(context.WithoutCancel(t.Context()), n.object()))
	})
	return n
}

func (n *node) object() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
}

// patch writes labels by a merge patch; a nil value removes a label.
func (n *node) patch(userAgent string, own map[string]any, options ...client.PatchOption) {
	n.t.Helper()
	require.NoError(n.t, as(n.t, userAgent).Patch(n.t.Context(), n.object(), n.merge(own), options...))
}

func (n *node) merge(own map[string]any) client.Patch {
	n.t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": own}})
	require.NoError(n.t, err)
	return client.RawPatch(types.MergePatchType, body)
}

// read returns the Node as caches and other readers return it.
func (n *node) read() *nodeview.Node {
	n.t.Helper()
	read := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	require.NoError(n.t, as(n.t, person).Get(n.t.Context(), types.NamespacedName{Name: n.name}, read))
	managers, err := agents.Parse("kubelet, nfd-*")
	require.NoError(n.t, err)
	return nodeview.View{Agents: managers}.OfMetadata(read)
}

func (n *node) machine() labels.Keys {
	n.t.Helper()
	return n.read().Machine
}

// awaitNextSecond waits until a write gets a later time than earlier writes, because managedFields
// has whole seconds.
func awaitNextSecond(t *testing.T) {
	t.Helper()
	begin := time.Now().Truncate(time.Second)
	require.NoError(t, wait.PollUntilContextCancel(t.Context(), 10*time.Millisecond, true, func(context.Context) (bool, error) {
		return time.Now().Truncate(time.Second).After(begin), nil
	}))
}

func TestLabelsOwnedOnlyByAgentsAreTheMachines(t *testing.T) {
	t.Parallel()
	n := register(t, set{"pool": "a", "zone": "z1", "taken": "1", "shared": "1"})
	assert.Equal(t, labels.Keys("pool,shared,taken,zone"), n.machine())

	n.patch(person, map[string]any{"rack": "r1", "taken": "2", "pool": "a"})
	assert.Equal(t, labels.Keys("pool,shared,zone"), n.machine(), "a user removed one, rewrote one unchanged, and added one")

	n.patch(nfd, map[string]any{"feature": "true"})
	assert.Equal(t, labels.Keys("feature,pool,shared,zone"), n.machine())

	apply := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: set{"shared": "1"}}}
	body, err := json.Marshal(apply)
	require.NoError(t, err)
	require.NoError(t, as(t, person).Patch(t.Context(), n.object(), client.RawPatch(types.ApplyPatchType, body), client.FieldOwner("argocd")))
	assert.Equal(t, labels.Keys("feature,pool,zone"), n.machine(), "a label that a user applies, too, is the user's")

	n.patch(kubelet, map[string]any{"taken": "3"})
	assert.Equal(t, labels.Keys("feature,pool,taken,zone"), n.machine(), "an agent took it back")
}

// TestRemovalsLeaveNoTrace verifies what decisions rely on: managedFields has no trace of a
// removal, only the time at which its writer set something else.
func TestRemovalsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	n := register(t, set{"pool": "a", "zone": "z1", "tier": "x"})
	n.patch(nfd, map[string]any{"feature": "1", "other": "1"})
	last := n.read()
	withdrawn := func(change func()) labels.Keys {
		awaitNextSecond(t)
		change()
		before := last
		last = n.read()
		return nodeview.Withdrawn(before, last)
	}
	assert.Empty(t, withdrawn(func() { n.patch(person, map[string]any{"rack": "r1"}) }))
	assert.Empty(t, withdrawn(func() { n.patch(person, map[string]any{"pool": nil, "rack": "r2"}) }), "a user removed it")
	assert.Equal(t, labels.Keys("other"), withdrawn(func() { n.patch(nfd, map[string]any{"other": nil, "another": "1"}) }), "an agent that sets something, too")
	assert.Empty(t, withdrawn(func() { n.patch(nfd, map[string]any{"another": nil}) }), "an agent that only removes a label looks like a user")
	status := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":null}},"status":{"phase":"Running"}}`))
	assert.Empty(t, withdrawn(func() {
		require.NoError(t, as(t, kubelet).Status().Patch(t.Context(), n.object(), status))
	}), "a kubelet's status update does not concern labels")
	assert.Equal(t, labels.Keys("zone"), withdrawn(func() {
		n.annotate(kubelet, "kubelet")
		n.patch(person, map[string]any{"zone": nil})
	}), "what lies between states that are not consecutive may be of either")
}

// The time does not change.
func TestAgentRelabelsTwiceInOneSecond(t *testing.T) {
	before, after := actedAt(10, set{"feature-a": "1"}, "feature-a"), actedAt(10, set{"feature-b": "1"}, "feature-b")
	assert.Equal(t, labels.Keys("feature-a"), nodeview.Withdrawn(before, after))
	before, after = actedAt(10, set{"a": "1", "b": "1"}, "a,b"), actedAt(10, set{"b": "2"}, "b")
	assert.Equal(t, labels.Keys("a"), nodeview.Withdrawn(before, after))
	before, after = actedAt(10, set{"a": "1", "b": "1"}, "a,b"), actedAt(9, set{"b": "1"}, "b")
	assert.Empty(t, nodeview.Withdrawn(before, after), "the API server has forgotten a manager")
}

// actedAt returns a Node whose agents last acted at an hour.
func actedAt(hour int, own set, machine labels.Keys) *nodeview.Node {
	return &nodeview.Node{Labels: own, Ownership: agents.Ownership{Machine: machine, ActedAt: time.Date(2026, 11, 22, hour, 0, 0, 0, time.UTC)}}
}

// The API server tracks no manager until the next apply. Labels without a manager are unclear.
func TestResetOfManagedFields(t *testing.T) {
	t.Parallel()
	n := register(t, set{"pool": "a", "zone": "z1"})
	require.NoError(t, as(t, person).Patch(t.Context(), n.object(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))))
	n.patch(person, map[string]any{"rack": "r1"})
	assert.Empty(t, n.machine())
	assert.Equal(t, labels.Keys("pool,rack,zone"), n.read().Unclear)
}

// A kubelet can claim in the managedFields of its Node that it has set them.
func TestRestrictedLabelsAreNeverTheMachines(t *testing.T) {
	t.Parallel()
	n := register(t, set{"node-restriction.kubernetes.io/tenant": "a", "x.node-restriction.kubernetes.io/tenant": "b", "zone": "z1"})
	assert.Equal(t, labels.Keys("zone"), n.machine())
}

// Anyone who may patch a Node can write managedFields.
func TestAbsentKeysAreSkipped(t *testing.T) {
	t.Parallel()
	n := register(t, set{"zone": "z1"})
	forged := fmt.Sprintf(`{"metadata":{"managedFields":[{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":%q,"fieldsType":"FieldsV1",`+
		`"fieldsV1":{"f:metadata":{"f:labels":{"f:no key, of a label!":{},"f:absent":{},"f:zone":{}}}}}]}}`, time.Now().UTC().Format(time.RFC3339))
	require.NoError(t, as(t, kubelet).Patch(t.Context(), n.object(), client.RawPatch(types.MergePatchType, []byte(forged))))
	require.Contains(t, n.read().Managed[0].FieldsV1.GetRawString(), "no key, of a label!", "the API server takes it")
	assert.Equal(t, labels.Keys("zone"), n.machine())
}

// The API server merges the oldest of more than ten field managers into one, which has no known
// setter.
func TestAncientChanges(t *testing.T) {
	t.Parallel()
	n := register(t, set{"zone": "z1"})
	require.Equal(t, labels.Keys("zone"), n.machine())
	n.patch("nodekeeper-processor/v1 (linux/amd64)", map[string]any{labels.Marker: "7"})
	require.True(t, n.read().IsRestored())
	awaitNextSecond(t)
	for i := range 11 {
		n.annotate(person, fmt.Sprintf("tool-%d", i))
	}
	assert.Empty(t, n.machine())
	assert.Equal(t, labels.Keys("zone"), n.read().Unclear)
	assert.True(t, n.read().IsRestored(), "a restore has set the marker")
	awaitNextSecond(t) // of managers that wrote in one second, the first by name counts as the oldest
	n.patch(person, map[string]any{"zone": "z2"})
	assert.Empty(t, n.read().Unclear, "it is clear who changed it")
}

// annotate writes an annotation by a field manager.
func (n *node) annotate(userAgent, manager string) {
	n.t.Helper()
	body := fmt.Sprintf(`{"metadata":{"annotations":{"by-%s":"1"}}}`, manager)
	require.NoError(n.t, as(n.t, userAgent).Patch(n.t.Context(), n.object(), client.RawPatch(types.MergePatchType, []byte(body)), client.FieldOwner(manager)))
}

func TestLabelsWrittenWithKubeletStatusAreTheMachines(t *testing.T) {
	t.Parallel()
	n := register(t, set{"zone": "z1"})
	patch := n.merge(map[string]any{"arch": "arm64"})
	require.NoError(t, as(t, kubelet).Status().Patch(t.Context(), n.object(), patch))
	assert.Equal(t, labels.Keys("arch,zone"), n.machine())
}

func TestLabelsAfterResetManagedFieldsAreUsers(t *testing.T) {
	t.Parallel()
	n := register(t, set{"zone": "z1"})
	require.NotEmpty(t, n.machine())
	reset := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))
	require.NoError(t, as(t, person).Patch(t.Context(), n.object(), reset))
	require.Empty(t, n.read().Managed)
	assert.Empty(t, n.machine())
	n.patch(kubelet, map[string]any{"zone": "z2"})
	assert.Empty(t, n.machine(), "the API server tracks it no more")
}

func TestExplicitFieldManagerIsUsed(t *testing.T) {
	t.Parallel()
	n := register(t, set{"zone": "z1"})
	n.patch(person, map[string]any{"a": "1"}, client.FieldOwner("nfd-master"))
	n.patch(kubelet, map[string]any{"b": "1"}, client.FieldOwner("somebody"))
	n.patch(strings.Replace(kubelet, "kubelet", "kubelet-csr-approver", 1), map[string]any{"c": "1"})
	assert.Equal(t, labels.Keys("a,zone"), n.machine())
}

// TestOwnersOfAnnotationsAndTaints: for taints, Kubernetes records only the last writer of the
// list.
func TestOwnersOfAnnotationsAndTaints(t *testing.T) {
	t.Parallel()
	const feature, other = "annotation:feature", "annotation:other"
	const dedicated = "taint:dedicated:NoSchedule"
	n := &node{t, "node-" + rand.String(8)}
	created := n.object()
	created.Annotations = set{"feature": "1", "other": "1"}
	created.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	require.NoError(t, as(t, kubelet).Create(t.Context(), created))
	t.Cleanup(func() { assert.NoError(t, as(t, person).Delete(context.WithoutCancel(t.Context()), n.object())) })
	write := func(userAgent, patch string) {
		t.Helper()
		require.NoError(t, as(t, userAgent).Patch(t.Context(), n.object(), client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	read := func() *nodeview.Node {
		whole := &corev1.Node{}
		require.NoError(t, as(t, person).Get(t.Context(), types.NamespacedName{Name: n.name}, whole))
		managers, err := agents.Parse("kubelet, nfd-*")
		require.NoError(t, err)
		preserved, err := nodeview.ParsePreserved("*", "*,*:NoExecute")
		require.NoError(t, err)
		return nodeview.View{Agents: managers, Preserved: preserved}.OfWhole(whole, time.Now())
	}
	// An admission plugin may have added a taint to the kubelet's.
	ours := func(keys labels.Keys) labels.Keys {
		return keys.Where(func(key string) bool { return key != labels.TaintKey(corev1.TaintNodeNotReady, "NoSchedule") })
	}
	assert.Equal(t, labels.Keys(feature+","+other+","+dedicated), ours(read().Machine))
	write(person, `{"metadata":{"annotations":{"other":"2","owner":"a"}}}`)
	assert.Equal(t, labels.Keys(feature+","+dedicated), ours(read().Machine), "a user wrote the others")
	write(person, `{"spec":{"taints":[{"key":"dedicated","effect":"NoSchedule"},{"key":"mine","effect":"NoSchedule"}]}}`)
	before := read()
	assert.Empty(t, before.Machine.Taints())
	assert.Equal(t, labels.Keys(dedicated+",taint:mine:NoSchedule"), before.Unclear, "the setter of an item of a list is unknown")
	write(person, `{"spec":{"taints":[{"key":"mine","effect":"NoSchedule"}]}}`)
	assert.Equal(t, labels.Keys(dedicated), nodeview.Removed(before, read()))
	write(nfd, `{"spec":{"taints":[{"key":"nfd","effect":"NoSchedule"}]}}`)
	assert.Equal(t, labels.Keys("taint:nfd:NoSchedule"), read().Machine.Taints(), "an agent has written all of it")
}
