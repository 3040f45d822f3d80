package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	webhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/internal/webhook/admission"
)

// leases is a cache with fixed Leases.
type leases struct {
	client.Reader

	all []coordinationv1.Lease
}

func (l leases) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	found, isLeases := list.(*coordinationv1.LeaseList)
	if !isLeases {
		return fmt.Errorf("%T is no list of Leases", list)
	}
	found.Items = slices.Clone(l.all)
	return nil
}

// processors returns Peers with three processors that publish all settings.
func processors() *admission.Peers {
	var l leases
	own := settings.Defaults()
	for i := range 3 {
		name := fmt.Sprintf("processor-%d", i)
		l.all = append(l.all, coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set{ring.Label: "processor"}, Annotations: own.Annotations("v1")},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name},
		})
	}
	return &admission.Peers{Leases: l, Settings: own}
}

// BenchmarkDiffering measures the comparison of the settings with those of the processors, a part
// of every answer.
func BenchmarkDiffering(b *testing.B) {
	peers := processors()
	for b.Loop() {
		names, err := peers.Differing(b.Context())
		require.NoError(b, err)
		require.Empty(b, names)
	}
}

// BenchmarkAnswer sends the requests of the API server for the Node of a kubelet, over TLS.
func BenchmarkAnswer(b *testing.B) {
	own := set{}
	for i := range 12 {
		own[fmt.Sprintf("example.com/label-%d", i)] = "value"
	}
	h := handler(b, saved{record: recordOf(own)})
	h.Processors = processors()
	server := httptest.NewTLSServer(&webhook.Webhook{Handler: h})
	defer server.Close()
	c, review := server.Client(), reviewOf(b)
	var took []time.Duration
	for b.Loop() {
		begun := time.Now()
		resp, err := c.Post(server.URL, "application/json", bytes.NewReader(review))
		require.NoError(b, err)
		var answer admissionv1.AdmissionReview
		require.NoError(b, json.NewDecoder(resp.Body).Decode(&answer))
		require.NoError(b, resp.Body.Close())
		took = append(took, time.Since(begun))
		require.Equal(b, http.StatusOK, resp.StatusCode)
		require.NotEmpty(b, answer.Response.Patch)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// reviewOf returns the review of a Node as a current kubelet creates it, with fifty images, ten
// conditions and managed fields.
func reviewOf(b *testing.B) []byte {
	b.Helper()
	n := node("worker-1", set{"kubernetes.io/hostname": "worker-1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"})
	for i := range 50 {
		name := fmt.Sprintf("registry.example.com/team/image-%d", i)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{name + ":v1", fmt.Sprintf("%s@sha256:%064d", name, i)}, SizeBytes: 1 << 28})
	}
	for i := range 10 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprint("Condition", i)), Status: corev1.ConditionFalse, Reason: "KubeletHasSufficient", Message: "kubelet has sufficient memory available"})
	}
	fields := `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/arch":{},"f:kubernetes.io/hostname":{},"f:kubernetes.io/os":{}}}}`
	n.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: new(metav1.Now()), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}}
	n.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	object, err := json.Marshal(n)
	require.NoError(b, err)
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Operation: admissionv1.Create, Name: n.Name, Object: runtime.RawExtension{Raw: object},
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Node"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "nodes"},
			UserInfo: authenticationv1.UserInfo{Username: "system:node:worker-1", Groups: []string{"system:nodes"}},
		},
	})
	require.NoError(b, err)
	return review
}
