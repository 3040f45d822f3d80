package admission_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	webhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/webhook/admission"
)

// saved is a cache that returns the same record for every node, or an error.
type saved struct {
	record *record.Record
	err    error
	broken bool
}

func (s saved) Cached(context.Context, string) (records.Stored, error) {
	if s.broken {
		panic("broken")
	}
	return records.Stored{Record: s.record}, s.err
}

// others are processors with the given differing flags.
type others struct {
	differing []string
	err       error
}

func (o others) Differing(context.Context) ([]string, error) { return o.differing, o.err }

// recordOf returns a record with these labels.
func recordOf(own set) *record.Record {
	return &record.Record{Labels: own, Revision: revision.MustParse("70"), Source: "former"}
}

// handler returns a handler with the default flags.
func handler(tb testing.TB, s saved) *admission.Handler {
	tb.Helper()
	view, err := nodeview.Parse(agents.Default, labels.DefaultIgnored, "")
	require.NoError(tb, err)
	live, err := labels.ParsePatterns(labels.DefaultLive)
	require.NoError(tb, err)
	metrics, err := admission.NewMetrics(prometheus.NewRegistry(), current)
	require.NoError(tb, err)
	return &admission.Handler{
		Records: s, Processors: others{}, View: view, Policy: labels.Policy{Mode: labels.Replace, Live: live, Ignored: view.Ignored, Preserves: view.Preserved.Has},
		Behind: current, Metrics: metrics,
	}
}

func current() time.Duration { return 0 }

// serve registers handlers with the API server, which calls them in order for all Nodes whose name
// begins with the result.
func serve(t *testing.T, handlers ...*admission.Handler) (prefix string) {
	t.Helper()
	mux := http.NewServeMux()
	asked := &counting{Handler: mux}
	server := httptest.NewTLSServer(asked)
	t.Cleanup(server.Close)
	prefix = "n" + rand.String(8)
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: prefix}}
	for i, h := range handlers {
		path := fmt.Sprintf("/%d", i)
		mux.Handle(path, &webhook.Webhook{Handler: h})
		configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: fmt.Sprintf("nodes-%d.nodekeeper.dev", i),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: new(server.URL + path), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
			}},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "of-this-test", Expression: fmt.Sprintf("object.metadata.name.startsWith('%s')", prefix)}},
			FailurePolicy:           new(admissionregistrationv1.Fail), // so that failures are visible
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(30)), // for slow machines
			AdmissionReviewVersions: []string{"v1"},
		})
	}
	admin := adminClient(t)
	require.NoError(t, admin.Create(t.Context(), configuration))
	t.Cleanup(func() { assert.NoError(t, admin.Delete(context.WithoutCancel(t.Context()), configuration)) })
	// The API server receives a configuration by a watch.
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		probe := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: prefix + "-probe"}}
		before := asked.count.Load()
		require.NoError(t, admin.Create(context.Background(), probe, client.DryRunAll))
		assert.Greater(t, asked.count.Load(), before)
	}, 3*time.Minute, 20*time.Millisecond)
	return prefix
}

// counting counts the requests to a server.
type counting struct {
	http.Handler

	count atomic.Int64
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.count.Add(1)
	c.Handler.ServeHTTP(w, r)
}

func adminClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(api.Config, client.Options{})
	require.NoError(t, err)
	return c
}

// created creates a Node and returns its first version.
func created(t *testing.T, c client.Client, node *corev1.Node) *corev1.Node {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), node))
	admin := adminClient(t)
	t.Cleanup(func() { assert.NoError(t, admin.Delete(context.WithoutCancel(t.Context()), node.DeepCopy())) })
	return node
}

func node(name string, own set) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own}}
}

func hasGate(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, nodeview.IsStartupTaint)
}

// TestFirstVersionHasTheLabels also checks the revision in the marker, and that no agent owns the
// labels.
func TestFirstVersionHasTheLabels(t *testing.T) {
	t.Parallel()
	h := handler(t, saved{record: recordOf(set{"rack": "r1", "example.com/team": "blue", "node-role.kubernetes.io/worker": ""})})
	h.Policy.Restricted = labels.Keep
	name := serve(t, h)
	got := created(t, adminClient(t), node(name, set{"of-a-person": "1"}))
	assert.Equal(t, set{"rack": "r1", "example.com/team": "blue", "node-role.kubernetes.io/worker": "", labels.Marker: "70"}, got.Labels)
	assert.False(t, hasGate(got))

	seen := h.View.OfWhole(got.DeepCopy(), time.Now())
	assert.Empty(t, seen.Machine)
	assert.Empty(t, seen.Unclear, "who has set them is known from the first version on")
	assert.Equal(t, "example.com/team,labels_restored,node-role.kubernetes.io/worker,rack", string(seen.Admitted))
}

// The other labels wait behind the startup taint. With them, the request would be rejected.
func TestKubeletGetsWhatItMaySet(t *testing.T) {
	t.Parallel()
	h := handler(t, saved{record: recordOf(set{
		"rack": "r1", "node-role.kubernetes.io/worker": "", "example.k8s.io/pool": "a", "feature.node.kubernetes.io/gpu": "yes",
	})})
	h.Policy.Restricted = labels.Keep
	name := serve(t, h)
	got := created(t, kubelet(t, name), node(name, set{"kubernetes.io/os": "linux"}))
	assert.Equal(t, set{"rack": "r1", "feature.node.kubernetes.io/gpu": "yes", "kubernetes.io/os": "linux", labels.Marker: labels.Pending}, got.Labels)
	assert.True(t, hasGate(got))
}

func TestKubeletThatMaySetAllOfItIsNotHeldBack(t *testing.T) {
	t.Parallel()
	name := serve(t, handler(t, saved{record: recordOf(set{"rack": "r1"})}))
	got := created(t, kubelet(t, name), node(name, set{"kubernetes.io/os": "linux"}))
	assert.Equal(t, set{"rack": "r1", "kubernetes.io/os": "linux", labels.Marker: "70"}, got.Labels)
	assert.False(t, hasGate(got))
}

// The API server keeps one entry per field manager.
func TestLaterAnswerKeepsWhatAnEarlierOneOwns(t *testing.T) {
	first := saved{record: recordOf(set{"rack": "r1"})}
	sure, unsure := handler(t, first), handler(t, saved{err: errors.New("away")})
	view, err := nodeview.Parse(agents.Default, labels.DefaultIgnored, "")
	require.NoError(t, err)
	n := created(t, adminClient(t), node(serve(t, sure, unsure)+"-twice", set{"own": "1"}))
	require.Equal(t, labels.Pending, n.Labels[labels.Marker], "the later answer was uncertain")
	assert.True(t, hasGate(n))
	for _, moment := range []string{"created", "changed since"} {
		entries := slices.DeleteFunc(slices.Clone(n.ManagedFields), func(e metav1.ManagedFieldsEntry) bool { return e.Manager != agents.Webhook })
		assert.Len(t, entries, 1, moment)
		seen := view.OfWhole(n.DeepCopy(), time.Now())
		assert.Equal(t, labels.KeysOf(slices.Values([]string{labels.Marker, "rack"})), seen.Admitted, moment)
		n.Annotations = map[string]string{"other": "1"}
		require.NoError(t, adminClient(t).Update(t.Context(), n))
	}
}

// The API server does not track the fields of a Node that is created with only a name.
func TestLabelsOfABareNodeAreTheWebhooks(t *testing.T) {
	t.Parallel()
	bare := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	untouched := created(t, adminClient(t), bare("n"+rand.String(8)))
	require.Empty(t, untouched.ManagedFields, "without the webhook")

	n := created(t, adminClient(t), bare(serve(t, handler(t, saved{record: recordOf(set{"rack": "r1", "team": "blue"})}))+"-bare"))
	require.Equal(t, set{"rack": "r1", "team": "blue", labels.Marker: "70"}, n.Labels)
	view, err := nodeview.Parse(agents.Default, labels.DefaultIgnored, "")
	require.NoError(t, err)
	owners := func() (admitted, unclear labels.Keys) {
		seen := view.OfWhole(n.DeepCopy(), time.Now())
		return seen.Admitted, seen.Unclear
	}
	admitted, unclear := owners()
	assert.Equal(t, labels.KeysOf(slices.Values([]string{labels.Marker, "rack", "team"})), admitted)
	assert.Empty(t, unclear)

	n.Labels["team"], n.Labels["own"] = "red", "1"
	require.NoError(t, adminClient(t).Update(t.Context(), n, client.FieldOwner("kubectl-edit")))
	admitted, unclear = owners()
	assert.Equal(t, labels.KeysOf(slices.Values([]string{labels.Marker, "rack"})), admitted, "a label that a user sets later is the user's")
	assert.Empty(t, unclear)
}

// A restore therefore keeps it, like any label that came with the Node.
func TestAppliedLabelsAreOwnedByTheirUserToo(t *testing.T) {
	n := created(t, adminClient(t), node(serve(t, handler(t, saved{record: recordOf(set{"rack": "r1", "team": "blue"})}))+"-applied", set{"own": "1"}))
	body := client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"labels":{"rack":"r1"}}}`))
	require.NoError(t, adminClient(t).Patch(t.Context(), n, body, client.FieldOwner("machines"), client.ForceOwnership))
	view, err := nodeview.Parse(agents.Default, labels.DefaultIgnored, "")
	require.NoError(t, err)
	seen := view.OfWhole(n, time.Now())
	assert.Equal(t, labels.KeysOf(slices.Values([]string{labels.Marker, "team"})), seen.Admitted)
}

func TestNodeWithoutARecordJoinsUntouched(t *testing.T) {
	t.Parallel()
	for what, s := range map[string]saved{"no record": {}, "a floor": {record: &record.Record{Revision: revision.MustParse("70"), Floor: true}}} {
		h := handler(t, s)
		h.Gate = true
		name := serve(t, h)
		got := created(t, kubelet(t, name), node(name, set{"kubernetes.io/os": "linux"}))
		assert.Equal(t, set{"kubernetes.io/os": "linux"}, got.Labels, what)
		assert.False(t, hasGate(got), what)
		assert.Len(t, got.ManagedFields, 1, what)
	}
}

// A gate would stay closed, as watchers ignore the Node.
func TestNodeThatItsLabelsTakeOutOfTheSelectorJoinsUntouched(t *testing.T) {
	t.Parallel()
	h := handler(t, saved{record: recordOf(set{"pool": "b", "node-role.kubernetes.io/worker": ""})})
	var err error
	h.View, err = nodeview.Parse(agents.Default, "", "pool=a")
	require.NoError(t, err)
	name := serve(t, h)
	got := created(t, adminClient(t), node(name, set{"pool": "a"}))
	assert.Equal(t, set{"pool": "a"}, got.Labels)
	assert.False(t, hasGate(got))
}

func TestGateHoldsEveryReturningNode(t *testing.T) {
	t.Parallel()
	h := handler(t, saved{record: recordOf(set{"rack": "r1"})})
	h.Gate = true
	name := serve(t, h)
	got := created(t, kubelet(t, name), node(name, nil))
	assert.Equal(t, set{"rack": "r1", labels.Marker: labels.Pending}, got.Labels)
	assert.True(t, hasGate(got))
}

// TestUncertainAnswersGate also checks that these requests are allowed with a warning.
func TestUncertainAnswersGate(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(h *admission.Handler){
		"error":      func(h *admission.Handler) { h.Records = saved{err: errors.New("no cache")} },
		"stale":      func(h *admission.Handler) { h.Behind = func() time.Duration { return time.Minute } },
		"unreadable": func(h *admission.Handler) { h.Records = unreadable{} },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := handler(t, saved{record: recordOf(set{"rack": "r1"})})
			change(h)
			name := serve(t, h)
			got := created(t, kubelet(t, name), node(name, set{"own": "1"}))
			assert.Equal(t, set{"own": "1", labels.Marker: labels.Pending}, got.Labels)
			assert.True(t, hasGate(got))
		})
	}
}

// Users may edit records.
func TestRecordThatNoNodeCanHaveKeepsNoNodeFromJoining(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("x", 300<<10)
	for what, own := range map[string]set{
		"label value":    {"rack": "not a value"},
		"label key":      {"not a key": "1"},
		"annotations":    {labels.AnnotationKey("example.com/a"): huge},
		"annotation key": {labels.AnnotationKey("example.com/a b"): ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := handler(t, saved{record: recordOf(own)})
			h.Policy.Preserves = func(string) bool { return true }
			name := serve(t, h)
			got := created(t, kubelet(t, name), node(name, set{"own": "1"}))
			assert.Equal(t, set{"own": "1", labels.Marker: labels.Pending}, got.Labels)
			assert.True(t, hasGate(got))
		})
	}
}

type unreadable struct{}

func (unreadable) Cached(context.Context, string) (records.Stored, error) {
	return records.Stored{Unreadable: record.ErrUnreadable}, nil
}

func TestPanicRejectsNothing(t *testing.T) {
	t.Parallel()
	name := serve(t, handler(t, saved{broken: true}))
	got := created(t, kubelet(t, name), node(name, set{"own": "1"}))
	assert.Equal(t, set{"own": "1"}, got.Labels)
}

// TestAnnotationsComeWithTheLabels also covers a Node without annotations. Taints are restored
// later: the webhook could not be shown to be their owner.
func TestAnnotationsComeWithTheLabels(t *testing.T) {
	t.Parallel()
	h := handler(t, saved{record: recordOf(set{
		labels.AnnotationKey("example.com/a"): "1", labels.TaintKey("dedicated", "NoSchedule"): "gpu", "a/b": "c",
	})})
	var err error
	h.View.Preserved, err = nodeview.ParsePreserved("example.com/*", "dedicated")
	require.NoError(t, err)
	h.Policy.Preserves = h.View.Preserved.Has
	name := serve(t, h)
	got := created(t, adminClient(t), node(name, nil))
	assert.Equal(t, set{"a/b": "c", labels.Marker: labels.Pending}, got.Labels)
	assert.Equal(t, set{"example.com/a": "1"}, got.Annotations)
	var own []corev1.Taint
	for _, taint := range got.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			own = append(own, taint)
		}
	}
	assert.Equal(t, []corev1.Taint{nodeview.StartupTaint()}, own)
}
