package deploy_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
)

// The namespaces of stored data.
const (
	transactions = "node-metadata-transactions"
	metadata     = "node-metadata"
)

const (
	// patience bounds the wait for an expected state. It is long, so that tests pass on a busy
	// machine.
	patience = 3 * time.Minute
	// period is the polling interval.
	period = 50 * time.Millisecond
)

// notUsed are the rights that the story does not use, with the reason for granting each.
var notUsed = map[right]string{
	{"watcher", "delete", "leases.coordination.k8s.io", systemNamespace}:   orphans,
	{"processor", "delete", "leases.coordination.k8s.io", systemNamespace}: orphans,
	{"watcher", "get", "leases.coordination.k8s.io", systemNamespace}:      conflicts,
	{"processor", "get", "leases.coordination.k8s.io", systemNamespace}:    conflicts,
	{"webhook", "delete", "leases.coordination.k8s.io", systemNamespace}:   orphans,
	{"webhook", "get", "leases.coordination.k8s.io", systemNamespace}:      conflicts,
	{"processor", "delete", "configmaps", metadata}:                        "with --retention, what is left in the place of a record that was removed is deleted after a day",
	{"watcher", "get", "nodes", ""}:                                        "a watcher reads a Node only after a watch was interrupted: the event of before may be of a lost future",
	{"watcher", "write", writeResource, transactions}:                      asked,
	{"processor", "write", writeResource, transactions}:                    asked,
	{"processor", "write", writeResource, metadata}:                        asked,
	{"processor", "patch", "events.events.k8s.io", transactions}: "client-go patches an event that it repeats; a malformed " +
		"transaction is another version of its object each time it is reported, so today that is always a new event",
}

const asked = "the admission policies ask for it, and no request: see TestTheVerbWriteIsNeeded"

// notUsedWithout are the rights that the story uses only with a component.
var notUsedWithout = map[string]map[right]string{
	withProtection: {{"processor", "patch", "events.events.k8s.io", metav1.NamespaceDefault}: "client-go patches an event that it " +
		"repeats: LabelsRestoreFailed is one, too, but this story repeats DeletionWaits only"},
}

const conflicts = "a member reads its Lease only when somebody else has written it"

const orphans = "the Lease of a member that died is deleted after a minute, when the story is over"

// TestRightsAreExactlyEnough runs the programs with tokens of their service accounts, and triggers
// every action that needs a right: with the base, with each component, and with all of them.
func TestRightsAreExactlyEnough(t *testing.T) {
	t.Parallel()
	for _, components := range [][]string{
		nil,
		{withRetention},
		{withProtection},
		{withAdmission},
		{withAdmission, withCertManager},
		{withRetention, withProtection, withAdmission, withGate, controlPlane},
	} {
		v := variant{base, components}
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			checkRights(t, v)
		})
	}
}

func checkRights(t *testing.T, v variant) {
	t.Helper()
	s := newStory(t, v)
	s.play()
	reasons := s.notUsed()
	given, excepted := granted(t, v.render(t)), rights{}
	for one := range reasons {
		excepted[one] = true
	}
	require.Empty(t, excepted.Minus(given), "exceptions for rights that are not granted")

	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		s.audit.Update(c)
		assert.Empty(c, given.Minus(s.audit.Done, excepted), "rights that are given and not used")
	}, patience/2, period)

	s.audit.Update(t)
	assert.Empty(t, s.audit.Forbidden, "requests")
	assert.Empty(t, s.audit.Done.Minus(given), "rights that are used, and not by these manifests given")
	for one, reason := range reasons {
		assert.NotContains(t, s.audit.Done, one, "this is used: the reason %q does not hold", reason)
	}
	for _, p := range s.programs {
		assert.NotContains(t, p.Output(), "forbidden", p.Identity)
	}
}

// story is a cluster with the programs of some manifests.
type story struct {
	t        *testing.T
	variant  variant
	client   *cluster
	args     map[string][]string // from the manifests, by program
	audit    *manifests.Audit    // since the story began
	env      []string            // environment of the programs
	programs []*programs.Program
}

func newStory(t *testing.T, v variant) *story {
	t.Helper()
	s := &story{t: t, variant: v, client: newCluster(t, rest.NoWarnings{}), args: map[string][]string{}}
	objects := v.render(t)
	installObjects(t, s.client, objects)
	s.audit = manifests.NewAudit(t, s.client.plane, systemNamespace)
	for _, d := range all[appsv1.Deployment](t, objects, "Deployment") {
		s.args[d.Name] = d.Spec.Template.Spec.Containers[0].Args
	}
	// Clean up after the programs have stopped: remaining objects would be work for the programs of
	// the next test.
	t.Cleanup(s.empty)
	t.Cleanup(func() {
		for _, p := range s.programs {
			assert.NoError(t, p.Kill())
			if t.Failed() {
				t.Logf("%s said:\n%s", p.Identity, p.Output())
			}
		}
	})
	return s
}

// with reports whether the manifests have a component.
func (s *story) with(component string) bool { return slices.Contains(s.variant.components, component) }

// notUsed returns the rights that the programs have but do not use here, with the reasons.
func (s *story) notUsed() map[right]string {
	reasons := maps.Clone(notUsed)
	for component, ofFlag := range onlyWith {
		if !s.with(component) {
			maps.DeleteFunc(reasons, func(one right, _ string) bool { return ofFlag[one] })
			maps.Copy(reasons, notUsedWithout[component])
		}
	}
	return reasons
}

// empty removes all nodes, protected or not, and all transactions, records and Leases.
func (s *story) empty() {
	ctx := context.WithoutCancel(s.t.Context())
	var nodes corev1.NodeList
	assert.NoError(s.t, s.client.List(ctx, &nodes))
	for i := range nodes.Items {
		unprotected := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		assert.NoError(s.t, client.IgnoreNotFound(s.client.Patch(ctx, &nodes.Items[i], unprotected)))
	}
	assert.NoError(s.t, s.client.DeleteAllOf(ctx, &corev1.Node{}))
	for _, namespace := range []string{transactions, metadata, systemNamespace} {
		for _, obj := range []client.Object{&corev1.ConfigMap{}, &coordinationv1.Lease{}} {
			assert.NoError(s.t, s.client.DeleteAllOf(ctx, obj, client.InNamespace(namespace)))
		}
	}
}

// play creates, edits, deletes and recreates a node, which then stays away, and triggers all errors
// that the programs report.
func (s *story) play() {
	labels := map[string]string{"rack": "r7"}
	name := "node-" + rand.String(5) // unique, so that the test can be repeated
	s.create(name, labels)
	s.takeNameOf("taken-" + rand.String(5))
	s.takeNameByAnother("shared-" + rand.String(5))
	// The lock of a dead processor: the next one waits five seconds, and takes it over.
	s.lock(name, "dead")
	s.start("watcher")
	// As with an API server that does not stream lists, the programs list first and then watch.
	s.env = []string{"KUBE_FEATURE_WatchListClient=false"}
	s.start("watcher")
	processor := []string{"--save-delay=1s"}
	if s.with(withRetention) {
		processor = append(processor, "--retention=30s") // the last flag wins over the manifests
	}
	s.start("processor", processor...)

	if s.with(withAdmission) {
		s.webhook()
	}
	s.goWrong() // first, since events are written with a delay
	s.saved(name, labels)
	s.edit(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, `{"metadata":{"labels":{"team":"blue"}}}`)
	s.delete(name)
	s.create(name, nil)
	s.eventually(func(c *assert.CollectT) {
		node := &corev1.Node{}
		require.NoError(c, s.client.Get(s.t.Context(), types.NamespacedName{Name: name}, node))
		assert.Equal(c, "blue", node.Labels["team"])
		assert.Equal(c, "r7", node.Labels["rack"])
	}, "the labels are restored")
	s.delete(name)
	if !s.with(withRetention) {
		return
	}
	s.eventually(func(c *assert.CollectT) {
		cm := &corev1.ConfigMap{}
		require.NoError(c, s.client.Get(s.t.Context(), types.NamespacedName{Namespace: metadata, Name: name}, cm))
		assert.Contains(c, cm.Annotations, record.ForgottenAnnotation)
	}, "the record of the node that stays away is removed")
}

// goWrong triggers the Warning events of the programs.
func (s *story) goWrong() {
	// TransactionMalformed, with a name that no transaction has, and with one that must be free
	for _, name := range []string{"no-transaction-" + rand.String(5), txn.NodeHash(rand.String(5)) + ".1"} {
		malformed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: transactions, Name: name, Labels: map[string]string{txn.TypeLabel: "added"},
		}}
		require.NoError(s.t, s.client.Create(s.t.Context(), malformed))
	}
	// RecordUnreadable and DeletionWaits
	stuck, tooLarge := "stuck-"+rand.String(5), "too-large-"+rand.String(5)
	s.create(stuck, map[string]string{"rack": "r7"})
	s.saved(stuck, map[string]string{"rack": "r7"})
	s.edit(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metadata, Name: stuck}}, `{"data":{"labels_restored":"nonsense"}}`)
	if s.with(withProtection) {
		s.eventually(func(c *assert.CollectT) {
			node := &corev1.Node{}
			require.NoError(c, s.client.Get(s.t.Context(), types.NamespacedName{Name: stuck}, node))
			assert.NotEmpty(c, node.Finalizers)
		}, "the node is protected")
	}
	require.NoError(s.t, s.client.Delete(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: stuck}}))
	// LabelsTooLarge, twice: more than 1 MiB, the limit for the values of a ConfigMap.
	huge := map[string]string{}
	for i := range 1<<20/63 + 100 {
		huge[strconv.FormatInt(int64(i), 36)] = strings.Repeat("x", 63)
	}
	s.create(tooLarge, huge)
	s.edit(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tooLarge}}, `{"metadata":{"labels":{"more":"x"}}}`)
}

// start starts a program like its pod, with the token of its service account, and waits until it is
// ready.
func (s *story) start(name string, args ...string) {
	s.t.Helper()
	identity := name + "-" + strconv.Itoa(len(s.programs))
	p, err := programs.StartWith(s.env, name, identity, s.kubeconfigOf(name), slices.Concat(s.args[name], args)...)
	require.NoError(s.t, err)
	s.programs = append(s.programs, p)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	require.NoError(s.t, p.WaitReady(ctx))
}

func (s *story) kubeconfigOf(account string) string {
	s.t.Helper()
	return kubeconfigOf(s.t, s.client, account)
}

func (s *story) create(name string, labels map[string]string) {
	s.t.Helper()
	require.NoError(s.t, s.client.Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
}

func (s *story) edit(obj client.Object, patch string) {
	s.t.Helper()
	require.NoError(s.t, s.client.Patch(s.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// delete waits until the node is gone.
func (s *story) delete(name string) {
	s.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(s.t, s.client.Delete(s.t.Context(), node))
	s.eventually(func(c *assert.CollectT) {
		assert.True(c, apierrors.IsNotFound(s.client.Get(s.t.Context(), types.NamespacedName{Name: name}, node)))
	}, "node "+name+" is gone")
}

func (s *story) saved(name string, labels map[string]string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		cm := &corev1.ConfigMap{}
		require.NoError(c, s.client.Get(s.t.Context(), types.NamespacedName{Namespace: metadata, Name: name}, cm))
		for key, value := range labels {
			assert.Equal(c, value, cm.Data[key])
		}
	}, "the labels of node "+name+" are saved")
}

// takeNameOf creates a node, and a foreign object with the name of the transaction that a watcher
// will create for it. The watcher reads the object, and waits until it is gone.
func (s *story) takeNameOf(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(s.t, s.client.Create(s.t.Context(), node))
	taken := txn.Transaction{Node: name, Revision: revision.Of(node.ResourceVersion)}.Name()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: transactions, Name: taken}}
	require.NoError(s.t, s.client.Create(s.t.Context(), cm))
}

// takeNameByAnother creates a node, and another transaction with the name of the one that a watcher
// will create for it. The watcher marks the existing transaction as urgent.
func (s *story) takeNameByAnother(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(s.t, s.client.Create(s.t.Context(), node))
	another := txn.Transaction{
		Type: txn.Updated, Node: name, UID: node.UID, Revision: revision.Of(node.ResourceVersion), ObservedAt: time.Now(),
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), another.ConfigMap(transactions)))
}

// lock acquires the lock of a node for a processor that does not renew it.
func (s *story) lock(name, holder string) {
	s.t.Helper()
	now := metav1.NewMicroTime(time.Now())
	require.NoError(s.t, s.client.Create(s.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: transactions, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(5)), AcquireTime: &now, RenewTime: &now,
		},
	}))
}

func (s *story) eventually(condition func(c *assert.CollectT), message string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, condition, patience, period, message)
}
