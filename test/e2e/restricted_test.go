package e2e_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/txn"
)

const (
	worker = "node-role.kubernetes.io/worker"
	tenant = "node-restriction.kubernetes.io/tenant"
)

// trusted are labels that a person gave to a trusted machine.
var trusted = labelSet{"rack": "r7", worker: "", tenant: "a"}

// register creates a Node as a kubelet does: with the status of the machine in the same request.
func (e *env) register(name, providerID, systemUUID string) *corev1.Node {
	e.t.Helper()
	e.nodes[name] = true
	n := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true, ProviderID: providerID}}
	n.Name, n.Status.NodeInfo.SystemUUID = name, systemUUID
	require.NoError(e.t, e.client.Create(e.t.Context(), n, client.FieldOwner("kubelet")))
	return n
}

// identify makes a Node identify its machine in its status, like a kubelet that finds an existing
// Node.
func (e *env) identify(name, systemUUID string) {
	e.t.Helper()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"systemUUID": systemUUID}}})
	require.NoError(e.t, err)
	n := &corev1.Node{}
	n.Name = name
	require.NoError(e.t, e.client.Status().Patch(e.t.Context(), n, client.RawPatch(types.MergePatchType, body), client.FieldOwner("kubelet")))
}

// trust registers a machine, gives it the trusted labels, and deletes its Node.
func (e *env) trust(name, providerID, systemUUID string) {
	e.t.Helper()
	first := e.register(name, providerID, systemUUID)
	e.editAs("kubectl-label", name, trusted)
	r := e.saved(name, trusted)
	assert.Equal(e.t, identity.Identity{ProviderID: providerID, SystemUUID: systemUUID}, r.Identity.Identity)
	assert.Equal(e.t, first.UID, r.Identity.UID)
	e.delete(name)
	e.ended(first)
}

// TestRestrictedLabelsReturnToTheMachineThatHadThem checks that another machine with the same name
// does not get them.
//
//nolint:tparallel // its parts share the programs, one after the other
func TestRestrictedLabelsReturnToTheMachineThatHadThem(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	p := e.processor()
	for part, do := range map[string]func(name string){
		"same": func(name string) {
			e.trust(name, "kind://docker/a", "a")
			e.register(name, "", "a")
			e.restored(name, trusted)
		},
		"other": func(name string) {
			e.trust(name, "", "a")
			second := e.register(name, "", "b")
			e.restored(name, labelSet{"rack": "r7"})
			note := e.warned(second.UID, "RestrictedLabelsWithheld")
			assert.Contains(e.t, note, tenant+", "+worker)
			assert.Contains(e.t, note, "another machine")
			assert.Contains(e.t, note, "kubectl label node "+name)
			e.delete(name)
			e.recorded(second.UID, txn.Deleted)
			e.register(name, "", "a")
			e.restored(name, trusted)
		},
		"other, and a person trusts it": func(name string) {
			e.trust(name, "", "a")
			e.register(name, "", "b")
			e.restored(name, labelSet{"rack": "r7"})
			e.set(name, worker, "")
			r := e.saved(name, labelSet{"rack": "r7", worker: ""})
			require.Len(e.t, r.Withheld, 1)
			assert.Equal(e.t, labelSet{tenant: "a"}, r.Withheld[0].Labels)
			assert.Equal(e.t, "b", r.Identity.SystemUUID)
		},
		"late": func(name string) {
			e.trust(name, "", "a")
			second := e.register(name, "", "")
			e.restored(name, labelSet{"rack": "r7"})
			e.applied(second)
			e.set(name, "rack", "r8")
			e.saved(name, labelSet{"rack": "r8"})
			assert.Contains(e.t, e.record(e.t, name).All(), worker)
			e.identify(name, "a")
			want := labelSet{"rack": "r8", worker: "", tenant: "a"}
			e.restored(name, want)
			e.saved(name, want)
		},
		"late, and another": func(name string) {
			e.trust(name, "", "a")
			second := e.register(name, "", "")
			e.restored(name, labelSet{"rack": "r7"})
			e.identify(name, "b")
			e.warned(second.UID, "RestrictedLabelsWithheld")
			e.hasRestored(e.t, name, labelSet{"rack": "r7"})
		},
		"never, and gone": func(name string) {
			e.trust(name, "", "a")
			second := e.register(name, "", "")
			e.restored(name, labelSet{"rack": "r7"})
			e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, name).WaitsFor(second.UID)) }, "the record has the waiting label")
			e.delete(name)
			e.recorded(second.UID, txn.Deleted)
			e.eventually(func(c *assert.CollectT) { assert.False(c, e.record(c, name).WaitsFor(second.UID)) }, "nothing waits any more")
			e.register(name, "", "a")
			e.restored(name, trusted)
		},
		"none": func(name string) {
			e.trust(name, "", "")
			e.register(name, "cloud:///b", "b")
			e.restored(name, trusted)
		},
	} {
		t.Run(part, func(t *testing.T) {
			e.t = t
			name := e.name(txn.NodeHash(part)[:8])
			do(name)
			e.noted(e.node(t, name))
			e.drained(name)
		})
	}
	e.t = t
	assert.Empty(t, complaints(p, "level=error"))
}

// severalChecks is the time in which a processor checks a young Node several times. A check that
// restores nothing leaves no trace to wait for.
const severalChecks = 2 * time.Second

// TestRestrictedLabelsWaitForTheSelector checks that withheld labels are restored only once the
// selector matches again. A protected Node that is deleted meanwhile keeps its withheld labels in
// its record.
func TestRestrictedLabelsWaitForTheSelector(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	e.watcher("--node-selector=!skip")
	e.processor("--node-selector=!skip", "--protect=finalizer")
	name := e.name("node")
	e.trust(name, "", "a")
	second := e.register(name, "", "")
	e.restored(name, labelSet{"rack": "r7"})
	e.applied(second)
	e.set(name, "skip", "")
	e.identify(name, "a")
	time.Sleep(severalChecks)
	e.hasRestored(t, name, labelSet{"rack": "r7", "skip": ""})
	e.delete(name)
	e.gone(name)
	assert.Contains(t, e.record(t, name).All(), worker)

	e.register(name, "", "")
	e.restored(name, labelSet{"rack": "r7"})
	e.set(name, "skip", "")
	e.identify(name, "a")
	time.Sleep(severalChecks)
	e.hasRestored(t, name, labelSet{"rack": "r7", "skip": ""})
	e.remove(name, "skip")
	e.restored(name, trusted)
	e.unprotect()
	e.settle()
}

// TestRestrictedLabelsAreKeptOrDropped checks that the machine is recorded even if the mode does
// not depend on it.
func TestRestrictedLabelsAreKeptOrDropped(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	p := e.processor("--restricted-labels=keep")
	name := e.name("node")
	e.trust(name, "", "a")
	second := e.register(name, "", "b")
	e.restored(name, trusted)
	e.eventually(func(c *assert.CollectT) { assert.Equal(c, "b", e.record(c, name).Identity.SystemUUID) }, "it is noted which machine it is")
	e.delete(name)
	e.recorded(second.UID, txn.Deleted)
	e.stop(p)

	e.processor("--restricted-labels=drop")
	third := e.register(name, "", "b")
	e.restored(name, labelSet{"rack": "r7"})
	assert.Contains(t, e.warned(third.UID, "RestrictedLabelsDropped"), worker)
	e.eventually(func(c *assert.CollectT) { assert.Equal(c, labelSet{"rack": "r7"}, e.record(c, name).All()) }, "they are not kept")
}

// TestRecordsOfAFormerReleaseLearnWhichMachineItIs checks that a starting watcher causes each of
// them to be written once.
func TestRecordsOfAFormerReleaseLearnWhichMachineItIs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.watcher()
	e.processor()
	name := e.name("node")
	first := e.register(name, "", "a")
	edited := e.editAs("kubectl-label", name, trusted)
	e.saved(name, trusted)
	e.applied(edited)
	e.stop(w)
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = e.metadata, name
	require.NoError(t, e.client.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, []byte(
		`{"metadata":{"annotations":{"nodekeeper.dev/identity-uid":null,"nodekeeper.dev/identity-rv":null,"nodekeeper.dev/system-uuid":null}}}`))))
	assert.NotEqual(t, first.UID, e.record(t, name).Identity.UID)

	w = e.watcher()
	e.eventually(func(c *assert.CollectT) { assert.Equal(c, first.UID, e.record(c, name).Identity.UID) }, "it is noted which machine it is")
	e.drained(name)
	e.stop(w)
	before := e.configMaps(t, e.metadata)
	e.watcher() // when it is ready, it has compared the nodes with their records
	e.settle()
	assert.Equal(t, before, e.configMaps(t, e.metadata), "once")
	e.watcher()
	e.delete(name)
	e.recorded(first.UID, txn.Deleted)
	e.register(name, "", "a")
	e.restored(name, trusted)
}

// TestAPIServerKeepsTheStatusOfANewNode checks that the API server keeps the status of a Node in
// the create request, so that a registering kubelet identifies its machine at once.
func TestAPIServerKeepsTheStatusOfANewNode(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	name := e.name("node")
	e.register(name, "", "a")
	assert.Equal(t, "a", e.node(t, name).Status.NodeInfo.SystemUUID)
}
