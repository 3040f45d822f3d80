package record_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/record"
)

func TestParseRejectsUnreadableRecords(t *testing.T) {
	const (
		restoredUID = "nodekeeper.dev/restored-uid"
		restoredRV  = "nodekeeper.dev/restored-rv"
		savedAt     = "nodekeeper.dev/saved-at"
		halfNoted   = "must be a uid and a resourceVersion, or both absent"
	)
	for name, tc := range map[string]struct {
		spoil   func(cm *corev1.ConfigMap)
		message string
	}{
		"no data":                   {func(cm *corev1.ConfigMap) { cm.Data = nil }, `data.labels_restored is ""`},
		"no version":                {func(cm *corev1.ConfigMap) { delete(cm.Data, "labels_restored") }, `data.labels_restored is ""`},
		"version 0":                 {func(cm *corev1.ConfigMap) { cm.Data["labels_restored"] = "0" }, `data.labels_restored is "0"`},
		"a version with a zero":     {func(cm *corev1.ConfigMap) { cm.Data["labels_restored"] = "02571" }, `data.labels_restored is "02571"`},
		"a version of letters":      {func(cm *corev1.ConfigMap) { cm.Data["labels_restored"] = "new" }, `data.labels_restored is "new"`},
		"restored but not when":     {func(cm *corev1.ConfigMap) { delete(cm.Annotations, restoredRV) }, halfNoted},
		"restored but not which":    {func(cm *corev1.ConfigMap) { delete(cm.Annotations, restoredUID) }, halfNoted},
		"restored with an empty rv": {func(cm *corev1.ConfigMap) { cm.Annotations[restoredRV] = "" }, halfNoted},
		"restored with a bad rv":    {func(cm *corev1.ConfigMap) { cm.Annotations[restoredRV] = "2650x" }, halfNoted},
		"an unreadable time":        {func(cm *corev1.ConfigMap) { cm.Annotations[savedAt] = "yesterday" }, savedAt + " is not a time"},
		"an empty time":             {func(cm *corev1.ConfigMap) { cm.Annotations[savedAt] = "" }, savedAt + " is not a time"},
		"a time before year 0":      {func(cm *corev1.ConfigMap) { cm.Annotations[savedAt] = "0000-01-01T00:00:00+01:00" }, savedAt + " is not a time"},
		"a time after 9999":         {func(cm *corev1.ConfigMap) { cm.Annotations[savedAt] = "9999-12-31T23:59:59-01:00" }, savedAt + " is not a time"},
		"binary data":               {func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"b": nil} }, "it has binaryData"},
		"an undecodable key":        {func(cm *corev1.ConfigMap) { cm.Data["---ESCAPED---rack"] = "v" }, `data key "---ESCAPED---rack": not an encoded label`},
		"an unknown form":           {func(cm *corev1.ConfigMap) { cm.Data["---OTHER---x"] = "v" }, `data key "---OTHER---x": not an encoded label`},
		"a transaction's type":      {func(cm *corev1.ConfigMap) { cm.Data["type"] = "deleted" }, `data key "type": not an encoded label`},
		"an illegal label key":      {func(cm *corev1.ConfigMap) { cm.Data["_x"] = "v" }, "labels: "},
		"an illegal prefix":         {func(cm *corev1.ConfigMap) { cm.Data["A_b---SLASH---c"] = "v" }, "labels: "},
		"an illegal value":          {func(cm *corev1.ConfigMap) { cm.Data["x"] = "no value" }, "labels: "},
		"no label key":              {func(cm *corev1.ConfigMap) { cm.Annotations["nodekeeper.dev/machine-labels"] = "a b" }, `nodekeeper.dev/machine-labels: "a b" is not a label key`},
		"no overruled label key":    {func(cm *corev1.ConfigMap) { cm.Annotations["nodekeeper.dev/overruled-labels"] = "a," }, `nodekeeper.dev/overruled-labels: "" is not a label key`},
		"a value too long":          {func(cm *corev1.ConfigMap) { cm.Data["x"] = strings.Repeat("v", 64) }, "labels: "},
	} {
		t.Run(name, func(t *testing.T) {
			cm := saved().ConfigMap("ns")
			tc.spoil(cm)
			got, err := record.Parse(cm)
			require.ErrorIs(t, err, record.ErrUnreadable)
			require.ErrorContains(t, err, tc.message)
			assert.Nil(t, got)
		})
	}
}

func TestRootCAIsNotARecord(t *testing.T) {
	_, err := record.Parse(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "node-metadata", Name: record.RootCAName},
		Data:       map[string]string{"ca.crt": "-----BEGIN CERTIFICATE-----\n"},
	})
	require.ErrorIs(t, err, record.ErrUnreadable)
}
