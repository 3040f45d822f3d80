package agents

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
)

// unnamed is the field manager of programs that give no name. Kubelets before 1.24 were among them.
const unnamed = "Go-http-client"

// kubelet is the field manager of kubelets that give their name.
const kubelet = "kubelet"

// attachDetach is an annotation that only kubelets set.
const attachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"

// isUnnamed reports whether an entry may be that of a kubelet without a name, if kubelets are
// agents.
func (m Managers) isUnnamed(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == unnamed && entry.Operation == metav1.ManagedFieldsOperationUpdate && !m.match(unnamed) && m.match(kubelet)
}

// registers reports whether an entry with these keys is that of a program that registered its Node.
// Every kubelet does so with these labels or with the annotation.
func registers(keys map[string]bool) bool {
	return keys[corev1.LabelHostname] && keys[corev1.LabelOSStable] || keys[labels.AnnotationKey(attachDetach)]
}

// kubeletMayHave reports whether a kubelet registers with the key, and kubeadm, which had no name
// either, does not set it.
func kubeletMayHave(key string) bool {
	return key != AllTaints && labels.KubeletMaySet(key) && !labels.Restricted(key) && key != corev1.LabelNodeExcludeBalancers
}

// assign adds the keys of an entry of an unnamed program to those of their owners. If the entry has
// not changed since the Node was created, all that a kubelet may set is the kubelet's. Otherwise
// another unnamed program may have set some of it, so that the setter is unknown.
func (f ownedFields) assign(keys map[string]bool, entry metav1.ManagedFieldsEntry, created metav1.Time) {
	isKubelets := registers(keys)
	isUnchanged := created.IsZero() || entry.Time != nil && !entry.Time.After(created.Add(time.Second)) // times are whole seconds
	for key := range keys {
		switch {
		case !isKubelets || !kubeletMayHave(key):
			f.others[key] = true
		case isUnchanged:
			f.agents[key] = true
		case f.unknown != nil:
			f.unknown[key] = true
		}
	}
}
