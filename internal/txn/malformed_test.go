package txn_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

func TestParseRejectsOtherNames(t *testing.T) {
	for name, tc := range badNames {
		t.Run(name, func(t *testing.T) {
			cm := deleted().ConfigMap("ns")
			cm.Name = tc
			_, err := txn.Parse(cm)
			require.ErrorIs(t, err, txn.ErrMalformed)
			assert.ErrorContains(t, err, "its name is not")
		})
	}
}

func TestParseRejectsMalformedTransactions(t *testing.T) {
	const (
		node       = "nodekeeper.dev/node"
		uid        = "nodekeeper.dev/uid"
		observedAt = "nodekeeper.dev/observed-at"
	)
	for name, tc := range map[string]struct {
		spoil   func(cm *corev1.ConfigMap)
		message string
	}{
		"no annotations":        {func(cm *corev1.ConfigMap) { cm.Annotations = nil }, node + " is missing"},
		"no node":               {func(cm *corev1.ConfigMap) { delete(cm.Annotations, node) }, node + " is missing"},
		"an empty node":         {func(cm *corev1.ConfigMap) { cm.Annotations[node] = "" }, node + " is missing"},
		"no label key":          {func(cm *corev1.ConfigMap) { cm.Annotations["nodekeeper.dev/machine-labels"] = "a b" }, `nodekeeper.dev/machine-labels: "a b" is not a label key`},
		"another node":          {func(cm *corev1.ConfigMap) { cm.Annotations[node] = "node-2" }, "does not begin with the SHA-256 of node"},
		"an illegal node":       {rename("Node_1"), `"Node_1", not a node name`},
		"a node that is a path": {rename("../node"), "not a node name"},
		"a node too long":       {rename(strings.Repeat("n", 254)), "not a node name"},
		"no uid":                {func(cm *corev1.ConfigMap) { delete(cm.Annotations, uid) }, uid + " is missing"},
		"an empty uid":          {func(cm *corev1.ConfigMap) { cm.Annotations[uid] = "" }, uid + " is missing"},
		"no time":               {func(cm *corev1.ConfigMap) { delete(cm.Annotations, observedAt) }, observedAt + " is not a time"},
		"an unreadable time":    {func(cm *corev1.ConfigMap) { cm.Annotations[observedAt] = "yesterday" }, observedAt + " is not a time"},
		"a time before year 0":  {func(cm *corev1.ConfigMap) { cm.Annotations[observedAt] = "0000-01-01T00:00:00+01:00" }, observedAt + " is not a time"},
		"a time after 9999":     {func(cm *corev1.ConfigMap) { cm.Annotations[observedAt] = "9999-12-31T23:59:59-01:00" }, observedAt + " is not a time"},
		"no data":               {func(cm *corev1.ConfigMap) { cm.Data = nil }, `data.type is ""`},
		"no type":               {func(cm *corev1.ConfigMap) { delete(cm.Data, "type") }, `data.type is ""`},
		"another type":          {func(cm *corev1.ConfigMap) { cm.Data["type"] = "moved" }, `data.type is "moved"`},
		"a type in capitals":    {func(cm *corev1.ConfigMap) { cm.Data["type"] = "Deleted" }, `data.type is "Deleted"`},
		"binary data":           {func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"b": nil} }, "it has binaryData"},
		"an undecodable key":    {func(cm *corev1.ConfigMap) { cm.Data["---ESCAPED---rack"] = "v" }, `data key "---ESCAPED---rack": not an encoded label`},
		"an unknown form":       {func(cm *corev1.ConfigMap) { cm.Data["---OTHER---x"] = "v" }, `data key "---OTHER---x": not an encoded label`},
		"the marker as data":    {func(cm *corev1.ConfigMap) { cm.Data["labels_restored"] = "7" }, `data key "labels_restored": not an encoded label`},
		"an illegal label key":  {func(cm *corev1.ConfigMap) { cm.Data["_x"] = "v" }, "labels: "},
		"an illegal prefix":     {func(cm *corev1.ConfigMap) { cm.Data["A_b---SLASH---c"] = "v" }, "labels: "},
		"an illegal value":      {func(cm *corev1.ConfigMap) { cm.Data["x"] = "no value" }, "labels: "},
		"a value too long":      {func(cm *corev1.ConfigMap) { cm.Data["x"] = strings.Repeat("v", 64) }, "labels: "},
		"a certificate":         {func(cm *corev1.ConfigMap) { cm.Data["ca.crt"] = "-----BEGIN CERTIFICATE-----\n" }, "labels: "},
	} {
		t.Run(name, func(t *testing.T) {
			cm := deleted().ConfigMap("ns")
			tc.spoil(cm)
			got, err := txn.Parse(cm)
			require.ErrorIs(t, err, txn.ErrMalformed)
			require.ErrorContains(t, err, tc.message)
			assert.Equal(t, txn.Transaction{}, got)
		})
	}
}

func TestParseOfAnEmptyConfigMapIsMalformed(t *testing.T) {
	_, err := txn.Parse(&corev1.ConfigMap{})
	require.ErrorIs(t, err, txn.ErrMalformed)
}

// rename makes a ConfigMap the transaction of another node, including its name.
func rename(node string) func(cm *corev1.ConfigMap) {
	return func(cm *corev1.ConfigMap) {
		cm.Name = txn.Transaction{Node: node, Revision: revision.MustParse("2571")}.Name()
		cm.Annotations["nodekeeper.dev/node"] = node
	}
}
