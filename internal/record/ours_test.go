package record_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/record"
)

func TestRecordIsOursByMetadataOrData(t *testing.T) {
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want bool
	}{
		"a record":             {saved().ConfigMap("ns"), true},
		"a floor":              {floor().ConfigMap("ns"), true},
		"made by hand":         {&corev1.ConfigMap{Data: map[string]string{"labels_restored": "7", "rack": "r1"}}, true},
		"spoiled":              {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{record.ManagedByLabel: record.ManagedBy}}}, true},
		"only annotated":       {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"nodekeeper.dev/source-uid": "u"}}}, true},
		"the cluster's root":   {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: record.RootCAName}, Data: map[string]string{"ca.crt": ""}}, false},
		"a mesh's root":        {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "istio-ca-root-cert"}, Data: map[string]string{"root-cert.pem": ""}}, false},
		"managed by others":    {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{record.ManagedByLabel: "helm"}}}, false},
		"a prefix that begins": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"nodekeeper.development/x": "y"}}}, false},
		"empty":                {&corev1.ConfigMap{}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, record.Ours(tc.cm)) })
	}
}
