package plugin_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

// waiting returns the output of show about why a node waits, as data and as text.
func (e *env) waiting(t require.TestingT, node string) (inspect.Waiting, string) {
	var shown struct{ Waiting *inspect.Waiting }
	require.NoError(t, json.Unmarshal([]byte(e.must("show", node, "-o", "json")), &shown))
	require.NotNil(t, shown.Waiting, "something is pending")
	_, text, isThere := strings.Cut(e.must("show", node), "\nWaiting:")
	require.True(t, isThere)
	text, _, _ = strings.Cut(text, "\nEvents:") // which are missing without the right to list them
	return *shown.Waiting, strings.TrimSpace(text)
}

// pend stores the event of a Node that a watcher saw that long ago.
func (e *env) pend(typ txn.Type, name string, ago time.Duration) {
	e.t.Helper()
	seen := txn.Of(typ, viewed(e.live(name)))
	seen.ObservedAt = time.Now().Add(-ago)
	require.NoError(e.t, e.queue().Put(e.t.Context(), seen))
}

// lock locks a node for a holder that renewed the lock that long ago, with a Lease of this
// duration.
func (e *env) lock(name, holder string, renewed, lasts time.Duration) {
	e.t.Helper()
	at := metav1.NewMicroTime(time.Now().Add(-renewed))
	require.NoError(e.t, e.client.Create(e.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.transactions, Name: name, Labels: set{nodelock.Label: nodelock.LabelValue}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(lasts.Seconds())), AcquireTime: &at, RenewTime: &at},
	}))
}

func TestShowReportsThatNoProcessorIsReady(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create("node-1", of("node-1", "r1"))
	e.pend(txn.Updated, "node-1", 0)
	e.lock("node-1", "processor-9", time.Hour+10*time.Second, nodelock.LeaseDuration)
	why, text := e.waiting(t, "node-1")
	assert.Equal(t, []inspect.WaitReason{inspect.NoProcessor, inspect.Locked}, why.Reasons)
	assert.True(t, why.Lock.IsExpired)
	assert.Equal(t, "no processor is ready\n"+
		"                locked by processor-9 for 60m; the lock has expired, and the next processor takes it over", text)

	e.start("processor") // it takes over the lock
	e.settled()
	assert.NotContains(t, e.must("show", "node-1"), "Waiting")
	assert.NotContains(t, e.must("show", "node-1", "-o", "yaml"), "waiting")
}

func TestShowNamesTheHolderOfTheLock(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.lock("node-1", "somebody", 0, time.Hour)
	e.pend(txn.Updated, "node-1", 0)
	why, text := e.waiting(t, "node-1")
	assert.Equal(t, []inspect.WaitReason{inspect.Locked}, why.Reasons)
	assert.Equal(t, "somebody", why.Lock.Holder)
	assert.NotNil(t, why.Lock.Since)
	assert.False(t, why.Lock.IsExpired)
	assert.Regexp(t, `^locked by somebody for \d+s; the owner on the ring is processor-1$`, text)
}

func TestShowReportsThatASaveWaitsForItsBatchPeriod(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor", "--save-delay=1h")
	e.create("node-1", of("node-1", "r1"))
	e.pend(txn.Deleted, "node-1", 0)
	why, text := e.waiting(t, "node-1")
	assert.Equal(t, []inspect.WaitReason{inspect.SaveDelay}, why.Reasons)
	assert.False(t, why.SaveDelayAssumed)
	assert.Equal(t, 9*time.Hour, why.Period.Duration)
	assert.Equal(t, "a save waits up to 9h for the node to return (nine times --save-delay)", text)

	e.create("node-2", of("node-2", "r1"))
	e.pend(txn.Updated, "node-2", 10*time.Minute)
	why, text = e.waiting(t, "node-2")
	assert.Equal(t, []inspect.WaitReason{inspect.SaveDelay}, why.Reasons)
	assert.Equal(t, "a save waits up to 60m for further changes (--save-delay)", text)
}

// The processor's release does not publish its settings.
func TestShowAssumesTheDefaultBatchPeriod(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.replica("processor-1", "processor", "")
	e.create("node-1", of("node-1", "r1"))
	e.pend(txn.Deleted, "node-1", 0)
	why, text := e.waiting(t, "node-1")
	assert.Equal(t, []inspect.WaitReason{inspect.SaveDelay}, why.Reasons)
	assert.True(t, why.SaveDelayAssumed)
	assert.Equal(t, 45*time.Second, why.Period.Duration)
	assert.Equal(t, "a save waits up to 45s for the node to return (nine times --save-delay, by default)", text)

	e.create("node-2", of("node-2", "r1"))
	e.pend(txn.Updated, "node-2", 9*time.Minute+10*time.Second)
	why, text = e.waiting(t, "node-2")
	assert.Equal(t, []inspect.WaitReason{inspect.Overdue}, why.Reasons)
	assert.Regexp(t, `^processor-1 owns the node on the ring, and has not applied it yet, 9m\d+s after the end of --save-delay \(if that is 5s, the default\)$`, text)
}

// The plugin names the processor that applies the transaction.
func TestShowNamesTheOwner(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for range 3 {
		e.start("processor", "--save-delay=45s") // long enough to show each
	}
	e.eventually(func(c *assert.CollectT) {
		for _, p := range e.programs {
			assert.Contains(c, p.Output(), `"members":["processor-1","processor-2","processor-3"]`)
		}
	}, "all processors know each other")
	owners, named := map[string]string{}, map[string]bool{}
	for i := range 8 {
		node := fmt.Sprintf("node-%d", i)
		e.create(node, of(node, "r1"))
		e.pend(txn.Updated, node, 0)
		why, _ := e.waiting(t, node)
		owners[node], named[why.Owner] = why.Owner, true
	}
	assert.Greater(t, len(named), 1, "or they show nothing")
	e.settled()
	for node, owner := range owners {
		for _, p := range e.programs {
			saved := strings.Contains(savedLines(p.Output()), `"`+node+`"`)
			assert.Equal(t, p.Identity == owner, saved, "%s is %s's, as %s sees it", node, owner, p.Identity)
		}
	}
}

// savedLines returns the lines of a log about saved labels.
func savedLines(log string) string {
	var saved strings.Builder
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"Saved labels"`) {
			saved.WriteString(line)
		}
	}
	return saved.String()
}

func TestShowReportsThatARestoreIsRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("watcher")
	e.start("processor")
	e.create("guarded-1", of("guarded-1", "r1"))
	e.saved("guarded-1", of("guarded-1", "r1"))
	e.remove("guarded-1")
	e.refuse("guarded-1", "ask the owner of the guarded nodes")
	e.create("guarded-1", machine("guarded-1"))
	e.eventually(func(c *assert.CollectT) {
		why, text := e.waiting(c, "guarded-1")
		require.NotEmpty(c, why.Reasons)
		assert.Equal(c, inspect.WarningEvent, why.Reasons[0])
		require.NotNil(c, why.Warning)
		assert.Equal(c, "LabelsRestoreFailed", why.Warning.Reason)
		assert.GreaterOrEqual(c, why.Warning.Count, int32(2))
		assert.Regexp(c, `^LabelsRestoreFailed, at least \d+ times, last \d+s ago: .*ask the owner of the guarded nodes`, text)
		assert.Regexp(c, `\nEvents: +\d+\n(.*\n)*  \d+s +Warning LabelsRestoreFailed: .*ask the owner of the guarded nodes`, e.must("show", "guarded-1"))
	}, "it says why")
}

// refuse makes the API server reject every restore of a Node.
func (e *env) refuse(node, message string) {
	e.t.Helper()
	name := e.metadata + "-policy"
	rule := admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				ResourceNames:      []string{node},
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update}, Rule: rule},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: `!has(object.metadata.labels) || !("labels_restored" in object.metadata.labels)`, Message: message}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, obj := range []client.Object{policy, binding} {
		require.NoError(e.t, e.client.Create(e.t.Context(), obj))
	}
	e.create(node, nil) // to check whether the policy is in force
	e.eventually(func(c *assert.CollectT) {
		probe := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		assert.Error(c, e.client.Patch(e.t.Context(), probe, rawMerge(`{"metadata":{"labels":{"labels_restored":"1"}}}`), client.DryRunAll))
	}, "the policy is in force")
	e.delete(node)
}

func TestShowReportsThatTheRecordIsUnreadable(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.must("save", "node-1")
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: "node-1"}}
	require.NoError(t, e.client.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, []byte(`{"data":{"labels_restored":"x"}}`))))
	e.stop(p)
	e.label("node-1", "r2")
	e.pend(txn.Updated, "node-1", 0)
	why, text := e.waiting(t, "node-1")
	assert.Equal(t, []inspect.WaitReason{inspect.NoProcessor, inspect.UnreadableRecord}, why.Reasons)
	assert.Contains(t, text, "the record cannot be read: correct it, or forget the node: kubectl nodekeeper forget node-1")
	e.start("processor")
	e.eventually(func(c *assert.CollectT) {
		why, text := e.waiting(c, "node-1")
		assert.Contains(c, why.Reasons, inspect.WarningEvent)
		assert.NotContains(c, why.Reasons, inspect.UnreadableRecord, "the event reports that")
		assert.Regexp(c, `^RecordUnreadable, .*ago: Node node-1 waits for its labels until this record is corrected or deleted`, text)
	}, "it says why")
}

func TestShowNeedsNoRightToListEvents(t *testing.T) {
	t.Parallel()
	e := newEnvIn(t, ownPlane(t), "node-metadata-transactions", "node-metadata", ring.DefaultNamespace)
	e.install(filepath.Join("..", "..", "deploy", "users"))
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.lock("node-1", "somebody", 0, time.Hour)
	e.pend(txn.Updated, "node-1", 0)
	users := map[string]string{"viewer": "nodekeeper:viewers", "editor": "nodekeeper:editors"}
	for user, group := range users {
		e.become(user, group)
		why, _ := e.waiting(t, "node-1")
		assert.Empty(t, why.Unknown, "the role of a %s is enough", user)
		assert.Equal(t, []inspect.WaitReason{inspect.Locked}, why.Reasons)
	}
	for user := range users {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nodekeeper-" + user}}
		require.NoError(t, e.client.Delete(t.Context(), binding))
	}
	e.eventually(func(c *assert.CollectT) {
		why, text := e.waiting(c, "node-1")
		assert.Equal(c, []inspect.WaitReason{inspect.Locked}, why.Reasons, "the rest is there")
		assert.Len(c, why.Unknown, 1)
		assert.Contains(c, text, "\n                unknown are events: the right")
	}, "it says what it may not read")
}
