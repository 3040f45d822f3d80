package agents_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
)

const (
	registration = `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/hostname":{},"f:kubernetes.io/os":{},"f:pool":{},"f:node-role.kubernetes.io/master":{},` +
		`"f:node.kubernetes.io/exclude-from-external-load-balancers":{}}}}`
	annotated = `{"f:metadata":{"f:annotations":{"f:volumes.kubernetes.io/controller-managed-attach-detach":{}},"f:labels":{"f:pool":{}}}}`
)

func TestKubeletWithoutAName(t *testing.T) {
	created := time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC) // as the entries
	apply := entry("Go-http-client", registration)
	apply.Operation = metav1.ManagedFieldsOperationApply
	const registered labels.Keys = "kubernetes.io/hostname,kubernetes.io/os,pool"
	for name, tc := range map[string]struct {
		managers         string
		entries          []metav1.ManagedFieldsEntry
		created          time.Time
		machine, unclear labels.Keys
	}{
		"as it registered":       {"kubelet", []metav1.ManagedFieldsEntry{entry("Go-http-client", registration)}, created, registered, ""},
		"within a second":        {"kubelet", []metav1.ManagedFieldsEntry{entry("Go-http-client", registration)}, created.Add(-time.Second), registered, ""},
		"written since":          {"kubelet", []metav1.ManagedFieldsEntry{entry("Go-http-client", registration)}, created.Add(-time.Hour), "", registered},
		"only the annotation":    {"kubelet", []metav1.ManagedFieldsEntry{entry("Go-http-client", annotated)}, created, "pool", ""},
		"a person has it too":    {"kubelet", []metav1.ManagedFieldsEntry{entry("Go-http-client", annotated), entry("kubectl", `{"f:metadata":{"f:labels":{"f:pool":{}}}}`)}, created, "", ""},
		"an agent has it now":    {"kubelet", []metav1.ManagedFieldsEntry{entry("Go-http-client", annotated), entry("kubelet", `{"f:metadata":{"f:labels":{"f:pool":{}}}}`)}, created.Add(-time.Hour), "pool", ""},
		"not what kubelets hold": {"kubelet", []metav1.ManagedFieldsEntry{entry("Go-http-client", `{"f:metadata":{"f:labels":{"f:pool":{}}}}`)}, created, "", ""},
		"a person's manifest":    {"kubelet", []metav1.ManagedFieldsEntry{entry("kubectl-create", registration)}, created, "", ""},
		"applied":                {"kubelet", []metav1.ManagedFieldsEntry{apply}, created, "", ""},
		"kubelets are no agents": {"nfd-master", []metav1.ManagedFieldsEntry{entry("Go-http-client", registration)}, created, "", ""},
		"listed":                 {"kubelet,Go-http-client", []metav1.ManagedFieldsEntry{entry("Go-http-client", `{"f:metadata":{"f:labels":{"f:pool":{}}}}`)}, created, "pool", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Labels: set{
					"kubernetes.io/hostname": "n", "kubernetes.io/os": "linux", "pool": "a", "node-role.kubernetes.io/master": "",
					"node.kubernetes.io/exclude-from-external-load-balancers": "",
				},
				CreationTimestamp: metav1.NewTime(tc.created), ManagedFields: tc.entries,
			}}
			o := parse(t, tc.managers).Of(&n.ObjectMeta)
			own := func(keys labels.Keys) labels.Keys { // a label of the Node that no entry names is unclear
				return keys.Where(func(key string) bool {
					return registered.Set()[key] && (key == "pool" || tc.entries[0].FieldsV1.GetRawString() == registration)
				})
			}
			assert.Equal(t, tc.machine, own(o.Machine))
			assert.Equal(t, tc.unclear, own(o.Unclear))
			assert.NotContains(t, o.Machine.Set(), "node-role.kubernetes.io/master", "kubeadm sets it once")
			assert.NotContains(t, o.Machine.Set(), "node.kubernetes.io/exclude-from-external-load-balancers", "kubeadm sets it once")
		})
	}
}
