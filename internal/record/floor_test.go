package record_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

// floor is the floor in doc.go.
func floor() record.Record {
	return record.Record{Node: "node-1", Revision: revision.MustParse("2801"), SavedAt: savedAt, Floor: true}
}

func TestFloorIsAsTheDocumentationShowsIt(t *testing.T) {
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:      "node-1",
		Namespace: "node-metadata",
		Labels:    map[string]string{"app.kubernetes.io/managed-by": "nodekeeper"},
		Annotations: map[string]string{
			"nodekeeper.dev/forgotten": "2801",
			"nodekeeper.dev/saved-at":  "2026-11-21T03:14:15Z",
		},
	}}
	cm := floor().ConfigMap("node-metadata")
	assert.Equal(t, want, cm)
	got, err := record.Parse(cm)
	require.NoError(t, err)
	assert.Equal(t, floor(), *got)
}

func TestFloorAndRecordReplaceEachOtherInOneConfigMap(t *testing.T) {
	cm := saved().ConfigMap("node-metadata")
	cm.BinaryData = map[string][]byte{"by": []byte("hand")}
	cm.Annotations[record.AwaySinceAnnotation] = "2026-11-21T03:14:15Z"
	floor().Write(cm)
	assert.Equal(t, floor().ConfigMap("node-metadata"), cm)
	saved().Write(cm)
	assert.Equal(t, saved().ConfigMap("node-metadata"), cm)
}

func TestParseRejectsFloorWithLabels(t *testing.T) {
	for name, spoil := range map[string]func(cm *corev1.ConfigMap){
		"labels":        func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"rack": "r7"} },
		"a version":     func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"labels_restored": "2571"} },
		"no revision":   func(cm *corev1.ConfigMap) { cm.Annotations[record.ForgottenAnnotation] = "" },
		"a wrong one":   func(cm *corev1.ConfigMap) { cm.Annotations[record.ForgottenAnnotation] = "true" },
		"binary data":   func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"b": nil} },
		"no time at it": func(cm *corev1.ConfigMap) { cm.Annotations["nodekeeper.dev/saved-at"] = "yesterday" },
	} {
		t.Run(name, func(t *testing.T) {
			cm := floor().ConfigMap("ns")
			spoil(cm)
			_, err := record.Parse(cm)
			require.ErrorIs(t, err, record.ErrUnreadable)
		})
	}
}
