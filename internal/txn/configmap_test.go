package txn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

var observedAt = time.Date(2026, time.November, 21, 3, 14, 15, 926535000, time.UTC)

// deleted is the transaction in doc.go.
func deleted() txn.Transaction {
	return txn.Transaction{
		Type: txn.Deleted, Node: "node-1", UID: "0b8a8a0c-9b1c-4bb5-8a43-6a1f2ac1d7a1", Revision: revision.MustParse("2571"),
		Labels:  map[string]string{"rack": "r7", "example.com/team": "blue"},
		Machine: "kubernetes.io/arch,kubernetes.io/hostname,kubernetes.io/os",
		Unclear: "rack", Withdrawn: "example.com/gone", Overruled: "example.com/pool", Edited: "example.com/gone,rack",
		Marker: "2214", Restored: true, ObservedAt: observedAt,
	}
}

func TestConfigMapIsAsTheDocumentationShowsIt(t *testing.T) {
	immutable := true
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "35971be6e9bb024a895582fe0e42e04848a86da550aaef0fccbfba86f99f617d.2571",
			Namespace: "node-metadata-transactions",
			Labels: map[string]string{
				"nodekeeper.dev/type":      "deleted",
				"nodekeeper.dev/node-hash": "35971be6e9bb024a",
			},
			Annotations: map[string]string{
				"nodekeeper.dev/node":        "node-1",
				"nodekeeper.dev/uid":         "0b8a8a0c-9b1c-4bb5-8a43-6a1f2ac1d7a1",
				"nodekeeper.dev/marker":      "2214",
				"nodekeeper.dev/restored":    "true",
				"nodekeeper.dev/observed-at": "2026-11-21T03:14:15.926535Z",

				"nodekeeper.dev/machine-labels":   "kubernetes.io/arch,kubernetes.io/hostname,kubernetes.io/os",
				"nodekeeper.dev/unclear-labels":   "rack",
				"nodekeeper.dev/withdrawn-labels": "example.com/gone",
				"nodekeeper.dev/overruled-labels": "example.com/pool",
				"nodekeeper.dev/edited-labels":    "example.com/gone,rack",
			},
		},
		Immutable: &immutable,
		Data:      map[string]string{"type": "deleted", "rack": "r7", "example.com---SLASH---team": "blue"},
	}
	assert.Equal(t, want, deleted().ConfigMap("node-metadata-transactions"))
}

func TestConfigMapOmitsEmptyFields(t *testing.T) {
	cm := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "u", Revision: revision.MustParse("7")}.ConfigMap("ns")
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/marker")
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/founds-record")
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/restored")
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/withdrawn-labels")
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/overruled-labels")
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/edited-labels")
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/unclear-labels")
	assert.Equal(t, map[string]string{"type": "added"}, cm.Data)
}

func TestConfigMapStoresFoundsRecord(t *testing.T) {
	cm := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "u", Revision: revision.MustParse("7"), FoundsRecord: true}.ConfigMap("ns")
	assert.Equal(t, "true", cm.Annotations["nodekeeper.dev/founds-record"])
}

// Watchers that do not support ownership do not store it.
func TestLabelsWithoutOwnershipAreUnclear(t *testing.T) {
	cm := deleted().ConfigMap("ns")
	for _, key := range []string{"machine-labels", "unclear-labels", "withdrawn-labels", "overruled-labels", "edited-labels"} {
		delete(cm.Annotations, "nodekeeper.dev/"+key)
	}
	got, err := txn.Parse(cm)
	require.NoError(t, err)
	assert.Empty(t, got.Machine)
	assert.Equal(t, labels.Keys("example.com/team,rack"), got.Unclear)
}

func TestConfigMapDoesNotModifyTheTransaction(t *testing.T) {
	tx := deleted()
	cm := tx.ConfigMap("ns")
	cm.Data["rack"] = "r8"
	cm.Data["more"] = "v"
	assert.Equal(t, deleted(), tx)
}

func TestParseIsTheInverseOfConfigMap(t *testing.T) {
	longKey := strings.Repeat("p", 253) + "/" + strings.Repeat("N", 63)
	type set = map[string]string
	for name, tx := range map[string]txn.Transaction{
		"deleted":       deleted(),
		"updated":       {Type: txn.Updated, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{"a": "b"}, ObservedAt: observedAt},
		"added":         {Type: txn.Added, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{"a": "b"}, ObservedAt: observedAt},
		"founds record": {Type: txn.Added, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{}, ObservedAt: observedAt, FoundsRecord: true},
		"at once":       {Type: txn.Updated, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{}, ObservedAt: observedAt, AtOnce: true},
		"marker":        {Type: txn.Updated, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{}, Marker: "x", ObservedAt: observedAt},
		"no labels":     {Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{}, ObservedAt: observedAt},
		"no time":       {Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{}},
		"reserved keys": {Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{"type": "gpu", "x/type": "", labels.Marker: "7"}, ObservedAt: observedAt},
		"tokens":        {Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{"a/b": "1", "a---SLASH---b": "2"}, ObservedAt: observedAt},
		"a long key":    {Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.MustParse("9"), Labels: set{longKey: strings.Repeat("v", 63)}, ObservedAt: observedAt},
		"a long node":   {Type: txn.Deleted, Node: strings.Repeat("n", 253), UID: "u", Revision: revision.MustParse("9"), Labels: set{}, ObservedAt: observedAt},
		"a long rv":     {Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.Of(strings.Repeat("9", 100)), Labels: set{}, ObservedAt: observedAt},
		"a dotted node": {Type: txn.Deleted, Node: "10.0.0.1.example.com", UID: "u", Revision: revision.MustParse("9"), Labels: set{}, ObservedAt: observedAt},
	} {
		t.Run(name, func(t *testing.T) {
			cm := tx.ConfigMap("ns")
			for key := range cm.Data {
				assert.Empty(t, validation.IsConfigMapKey(key), "%q", key)
			}
			got, err := txn.Parse(cm)
			require.NoError(t, err)
			assert.Equal(t, tx, got)
		})
	}
}

func TestParseReadsTimesOfAnyZone(t *testing.T) {
	tx := deleted()
	tx.ObservedAt = observedAt.In(time.FixedZone("", 5*60*60))
	fromZone, err := txn.Parse(tx.ConfigMap("ns"))
	require.NoError(t, err)
	assert.Equal(t, deleted(), fromZone)

	cm := deleted().ConfigMap("ns")
	cm.Annotations["nodekeeper.dev/observed-at"] = "2026-11-21T05:14:15.926535+02:00"
	got, err := txn.Parse(cm)
	require.NoError(t, err)
	assert.Equal(t, deleted(), got)
}

func TestParseOfNoLabelsIsNotNil(t *testing.T) {
	got, err := txn.Parse(txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.MustParse("9")}.ConfigMap("ns"))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{}, got.Labels)
}

func TestDataBytesCountsValuesOnly(t *testing.T) {
	assert.Equal(t, 0, txn.DataBytes(nil))
	assert.Equal(t, 5, txn.DataBytes(map[string]string{"a": "12", "long": "345", "empty": ""}))
	assert.Equal(t, 2, txn.DataBytes(map[string]string{"a": "ä"}), "bytes, not characters")
}
