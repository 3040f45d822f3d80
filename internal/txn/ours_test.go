package txn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/txn"
)

func TestTransactionIsOursByNameOrMetadata(t *testing.T) {
	named := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want bool
	}{
		"by its name":        {named(txn.NodeHash("node-1") + ".7"), true},
		"marked":             {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{txn.MalformedLabel: "true"}}}, true},
		"of a node":          {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"nodekeeper.dev/node": "node-1"}}}, true},
		"the cluster's root": {named("kube-root-ca.crt"), false},
		"a mesh's root":      {named("istio-ca-root-cert"), false},
		"half a name":        {named(txn.NodeHash("node-1")), false},
		"no revision":        {named(txn.NodeHash("node-1") + ".x"), false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, txn.Ours(tc.cm)) })
	}
}
