package cluster_test

import (
	"os/exec"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// processorAccount is the user name of the processors.
const processorAccount = "system:serviceaccount:" + system + ":processor"

// foreign are the names of ConfigMaps that Istio, OpenShift and a bundle of trust-manager put into every namespace.
var foreign = []string{"istio-ca-root-cert", "openshift-service-ca.crt", "corporate-ca-bundle"}

// addForeign puts other products' ConfigMaps into the namespaces of transactions and records.
func (w *walk) addForeign() {
	for _, namespace := range []string{transactions, records} {
		for _, name := range foreign {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"ca.crt": "a certificate"}}
			require.NoError(w.t, w.client.Create(w.t.Context(), cm))
			w.foreign = append(w.foreign, cm)
		}
	}
}

// checkForeign checks that nothing has written what is not nodekeeper's.
func (w *walk) checkForeign() {
	require.NotEmpty(w.t, w.foreign)
	for _, before := range w.foreign {
		now := &corev1.ConfigMap{}
		require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKeyFromObject(before), now))
		assert.Equal(w.t, before.ResourceVersion, now.ResourceVersion, "%s in %s", before.Name, before.Namespace)
	}
}

// checkQuota checks that the cluster is as strict as GKE: without the quota of the manifests, their pods would be refused.
func (w *walk) checkQuota() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "critical"},
		Spec: corev1.PodSpec{
			PriorityClassName: "system-cluster-critical",
			Containers:        []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
	require.ErrorContains(w.t, w.client.Create(w.t.Context(), pod, client.DryRunAll), "insufficient quota")
}

// checkGuarded does what the admission policies are there to refuse: the processors' account
// changes more of a Node than its labels, and a user with the cluster role edit forges a
// transaction and changes a record.
func (w *walk) checkGuarded() {
	name := w.nodes[0]
	const user = "edith"
	require.NoError(w.t, w.client.Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
	for _, tc := range []struct {
		as, want string
		args     []string
	}{
		{processorAccount, "may not change the annotations of a Node", []string{"annotate", "node", name, "example.com/mine=yes"}},
		{processorAccount, "may not change the spec of a Node", []string{"patch", "node", name, "-p", `{"spec":{"unschedulable":true}}`}},
		{user, `you need the verb "write"`, []string{"create", "configmap", "-n", transactions, strings.Repeat("a", 64) + ".1", "--from-literal=type=deleted"}},
		{user, `you need the verb "write"`, []string{"patch", "configmap", "-n", records, name, "--type=merge", "-p", `{"data":{"rack":"forged"}}`}},
	} {
		out, err := exec.CommandContext(w.t.Context(), "kubectl", append(tc.args, "--as="+tc.as)...).CombinedOutput()
		require.Error(w.t, err, "kubectl %s: %s", strings.Join(tc.args, " "), out)
		assert.Contains(w.t, string(out), tc.want)
	}
	w.kubectl(w.t, "create", "configmap", "-n", records, "notes", "--from-literal=a=b", "--as="+user)
}
