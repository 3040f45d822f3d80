package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/plugin/inspect"
)

// TestFollowLosesNothingThatCeasesToBeOurs: a ConfigMap that loses nodekeeper's labels counts as
// removed, and a ConfigMap that gets them as new.
func TestFollowLosesNothingThatCeasesToBeOurs(t *testing.T) {
	t.Parallel()
	c := &cluster{Cluster: inspect.Cluster{TransactionNamespace: "transactions", MetadataNamespace: "records"}}
	for namespace, key := range map[string]string{"transactions": "nodekeeper.dev/type", "records": "nodekeeper.dev/source"} {
		var got []change[*corev1.ConfigMap]
		note := func(ch change[*corev1.ConfigMap]) { got = append(got, ch) }
		do := followed{transaction: note}
		if namespace == "records" {
			do = followed{record: note}
		}
		foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
		ours := foreign.DeepCopy()
		ours.Annotations = map[string]string{key: "x"}
		for _, ch := range []change[*corev1.ConfigMap]{
			{after: foreign}, {before: foreign, after: ours}, {before: ours, after: ours}, {before: ours, after: foreign}, {before: foreign},
		} {
			do.configMap(c, ch)
		}
		assert.Equal(t, []change[*corev1.ConfigMap]{{after: ours}, {before: ours, after: ours}, {before: ours}}, got, namespace)
	}
}
