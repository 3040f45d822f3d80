package record_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

func TestWriteKeepsForeignMetadata(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "node-1", UID: "u", ResourceVersion: "88",
		Labels:      map[string]string{"argocd": "yes"},
		Annotations: map[string]string{"note": "of a user", "nodekeeper.dev/note": "of a later version"},
		Finalizers:  []string{"example.com/keep"},
	}}
	saved().Write(cm)

	assert.Equal(t, "88", cm.ResourceVersion)
	assert.EqualValues(t, "u", cm.UID)
	assert.Equal(t, []string{"example.com/keep"}, cm.Finalizers)
	assert.Equal(t, map[string]string{"argocd": "yes", record.ManagedByLabel: record.ManagedBy}, cm.Labels)
	assert.Equal(t, "of a user", cm.Annotations["note"])
	assert.Equal(t, "of a later version", cm.Annotations["nodekeeper.dev/note"])
	got, err := record.Parse(cm)
	require.NoError(t, err)
	assert.Equal(t, saved(), *got)
}

func TestWriteRemovesAwaySince(t *testing.T) {
	cm := saved().ConfigMap("ns")
	cm.Annotations[record.AwaySinceAnnotation] = "2026-11-21T03:14:15Z"
	saved().Write(cm)
	assert.Equal(t, saved().ConfigMap("ns"), cm)
}

func TestWriteReplacesThePreviousRecord(t *testing.T) {
	cm := saved().ConfigMap("ns")
	next := record.Record{Node: "node-1", Labels: map[string]string{"rack": "r8"}, Revision: revision.MustParse("3000")}
	next.Write(cm)
	assert.Equal(t, next.ConfigMap("ns"), cm, "no label, no uid, no time of it is left")
}

func TestWriteIsIdempotent(t *testing.T) {
	cm := saved().ConfigMap("ns")
	saved().Write(cm)
	assert.Equal(t, saved().ConfigMap("ns"), cm)
}

func TestWriteDoesNotModifyTheRecord(t *testing.T) {
	r := saved()
	cm := r.ConfigMap("ns")
	cm.Data["rack"] = "r8"
	assert.Equal(t, saved(), r)
}

func TestWriteSavesTheTimeInUTC(t *testing.T) {
	r := saved()
	r.SavedAt = savedAt.In(time.FixedZone("", -7*60*60))
	assert.Equal(t, saved().ConfigMap("ns"), r.ConfigMap("ns"))
}
