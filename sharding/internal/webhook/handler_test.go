package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
	"nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/internal/webhook"
	"nodekeeper.dev/sharding/slots"
	"nodekeeper.dev/test/metrics"
)

// served is an API server with Secrets.
type served struct{}

func (served) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "secrets", Kind: "Secret", Namespaced: true}}}}, nil
}

// handler returns a handler that knows the rings web and gone, which is being deleted, and the counter of
// its assignments.
func handler(t *testing.T) (*webhook.Handler, *prometheus.CounterVec) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	secrets := v1alpha1.GroupResource{Resource: "secrets"}
	web := &v1alpha1.ClusterRing{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       v1alpha1.ClusterRingSpec{Shards: v1alpha1.Shards{Namespace: "web"}, Resources: []v1alpha1.Resource{{GroupResource: secrets}}},
		Status: v1alpha1.ClusterRingStatus{
			LabelledResources: []v1alpha1.GroupResource{secrets}, Table: &v1alpha1.Table{Generation: 1, Shards: []string{"web-0"}, Slots: make([]int32, slots.Count)},
		},
	}
	gone := web.DeepCopy()
	gone.Name, gone.Finalizers = "gone", []string{"test/keep"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(web, gone).Build()
	require.NoError(t, c.Delete(t.Context(), gone))
	dialect := ring.Dialect{Prefix: v1alpha1.DefaultPrefix}
	rings := &webhook.Rings{
		Reader: c, Resources: &policy.Resources{Reader: c, Discovery: served{}, Clock: time.Now, NeedNoSchema: true}, Dialect: dialect, Namespace: "sharder", SyncPeriod: time.Minute,
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
	for _, name := range []string{"web", "gone"} {
		require.Error(t, rings.Ready(request))
		_, err := rings.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		require.NoError(t, err)
	}
	require.NoError(t, rings.Ready(request))
	assignments := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "assignments"}, []string{"ring", "group", "resource", "by"})
	return webhook.New(rings, dialect, assignments), assignments
}

// ask returns the answer to a request about an object.
func ask(t *testing.T, h http.Handler, path, object string, change func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionResponse {
	t.Helper()
	r := &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Secret"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "secrets"},
		Namespace: "n", Name: "s", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
	}
	if change != nil {
		change(r)
	}
	review := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: r}
	body, err := json.Marshal(review)
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
	return review.Response
}

// TestEveryAnswerAllows covers R16.
func TestEveryAnswerAllows(t *testing.T) {
	h, _ := handler(t)
	const object = `{"metadata":{"namespace":"n","name":"s"}}`
	for name, tc := range map[string]struct {
		path, object     string
		change           func(*admissionv1.AdmissionRequest)
		patched, warning bool
	}{
		"new object":            {"/rings/web/1/assign", object, nil, true, false},
		"unknown ring":          {"/rings/other/1/assign", object, nil, false, true},
		"ring that is deleted":  {"/rings/gone/1/assign", object, nil, false, false},
		"another operation":     {"/rings/web/1/stick", object, nil, false, false},
		"metadata of bad types": {"/rings/web/1/assign", `{"metadata":{"labels":7}}`, nil, false, true},
		"no metadata":           {"/rings/web/1/assign", `{}`, nil, false, false},
		"update of nothing": {"/rings/web/1/stick", object, func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(`[]`)
		}, false, true},
		"update": {"/rings/web/1/stick", object, func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(object)
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, h, tc.path, tc.object, tc.change)
			assert.True(t, answer.Allowed)
			assert.Equal(t, tc.patched, len(answer.Patch) > 0, string(answer.Patch))
			assert.Equal(t, tc.warning, len(answer.Warnings) > 0, answer.Warnings)
		})
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/rings/web", nil))
	assert.Equal(t, http.StatusNotFound, w.Code)
}

// A dry run that creates a ring with a shard label shows the revision in the path, and nothing else
// does.
func TestProbeShowsTheRevision(t *testing.T) {
	h, _ := handler(t)
	const probe = `{"metadata":{"labels":{"shard.sharding.nodekeeper.dev/web":"probe"}}}`
	asRing := func(dryRun bool) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) {
			r.Resource = metav1.GroupVersionResource{Group: v1alpha1.GroupName, Version: "v1alpha1", Resource: "clusterrings"}
			r.DryRun = &dryRun
		}
	}
	assert.JSONEq(t, `[{"op":"replace","path":"/metadata/labels/shard.sharding.nodekeeper.dev~1web","value":"abc"}]`,
		string(ask(t, h, "/rings/web/abc/assign", probe, asRing(true)).Patch))
	assert.Empty(t, ask(t, h, "/rings/web/abc/assign", probe, asRing(false)).Patch)
	assert.Empty(t, ask(t, h, "/rings/web/abc/assign", `{}`, asRing(true)).Patch)
	assert.Empty(t, ask(t, h, "/rings/other/abc/assign", probe, asRing(true)).Patch)
}

// TestAssignmentsAreCounted covers R40: only objects that had no shard count.
func TestAssignmentsAreCounted(t *testing.T) {
	h, assignments := handler(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(assignments)
	const object, draining = `{"metadata":{"namespace":"n","name":"s"}}`, `{"metadata":{"namespace":"n","name":"s","labels":{
		"shard.sharding.nodekeeper.dev/web":"web-0","drain.sharding.nodekeeper.dev/web":"web-1"}}}`
	update := func(old string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) { r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(old) }
	}
	ask(t, h, "/rings/web/1/assign", object, func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) })
	ask(t, h, "/rings/web/1/assign", `{"metadata":{"namespace":"n","generateName":"s-"}}`, nil)
	ask(t, h, "/rings/web/1/stick", object, update(draining))
	ask(t, h, "/rings/web/1/acknowledge", object, update(draining))
	ask(t, h, "/rings/gone/1/assign", object, nil)
	counted, err := metrics.Gather(registry)
	require.NoError(t, err)
	assert.Empty(t, counted)
	ask(t, h, "/rings/web/1/assign", object, nil)
	ask(t, h, "/rings/web/1/stick", object, update(object))
	counted, err = metrics.Gather(registry)
	require.NoError(t, err)
	assert.Equal(t, metrics.Samples{`assignments{by="webhook",group="",resource="secrets",ring="web"}`: 2}, counted)
}

// A custom resource can have a field whose name differs from metadata only in the case of its letters.
func TestOtherFieldsAreNoMetadata(t *testing.T) {
	t.Parallel()
	h, _ := handler(t)
	label := v1alpha1.DefaultPrefix.DrainLabel("web")
	raw := `{"metadata":{"name":"s","namespace":"n"},"Metadata":{"labels":{"` + label + `":"web-1"}}}`
	response := ask(t, h, "/rings/web/1/assign", raw, nil)
	assert.True(t, response.Allowed)
	assert.NotContains(t, string(response.Patch), "remove", "there is no label to remove")
	assert.Contains(t, string(response.Patch), `"/metadata/labels"`)
}
