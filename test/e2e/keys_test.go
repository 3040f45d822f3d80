package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/txn"
)

// longestKey is a label key of 317 characters: a prefix of 253 and a name of 63.
var longestKey = strings.Repeat("p", 63) + "." + strings.Repeat("q", 63) + "." + strings.Repeat("r", 63) + "." + strings.Repeat("s", 61) +
	"/" + strings.Repeat("n", 63)

// awkward returns labels whose keys or values are hard to store in a ConfigMap.
func awkward() labelSet {
	return labelSet{
		"type":                      "worker",
		"node_name":                 "n",
		"a---SLASH---b":             "token",
		"a/b":                       "slash",
		"example.com/x---SLASH---y": "both",
		"example.com/Under_Score.x": "ordinary",
		longestKey:                  "long",
		"empty":                     "",
	}
}

// awkwardData returns their form in the data of a ConfigMap, see package labels.
func awkwardData() map[string]string {
	sum := sha256.Sum256([]byte(longestKey))
	return map[string]string{
		"---ESCAPED---type":                       "worker",
		"node_name":                               "n",
		"---ESCAPED---a---SLASH---b":              "token",
		"a---SLASH---b":                           "slash",
		"---ESCAPED---example.com_Sx---SLASH---y": "both",
		"example.com---SLASH---Under_Score.x":     "ordinary",
		"---LONG---" + hex.EncodeToString(sum[:]): longestKey + "=long",
		"empty": "",
	}
}

func TestAwkwardLabelsSurvive(t *testing.T) {
	t.Parallel()
	require.Len(t, longestKey, 317)
	e := newEnv(t)
	e.watcher()
	e.processor()
	name := e.name("node")
	e.create(name, awkward())

	for range 2 {
		e.delete(name)
		e.create(name, labelSet{"a/b": "other", "type": "other"})
		e.restored(name, awkward())
	}

	e.settle()
	e.hasRestored(t, name, awkward())
}

func TestStoredFormIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	name := e.name("node")
	node := e.create(name, awkward())
	e.recorded(node.UID, txn.Added)

	queue := e.queue(t, name)
	require.Len(t, queue, 1)
	transaction := queue[0]
	hash := sha256.Sum256([]byte(name))
	assert.Equal(t, hex.EncodeToString(hash[:])+"."+node.ResourceVersion, transaction.Name)
	want := awkwardData()
	want["type"] = "added"
	assert.Equal(t, want, transaction.Data)
	assert.Equal(t, new(true), transaction.Immutable)
	assert.Equal(t, "added", transaction.Labels["nodekeeper.dev/type"])
	assert.Equal(t, hex.EncodeToString(hash[:])[:16], transaction.Labels["nodekeeper.dev/node-hash"])
	assert.Equal(t, name, transaction.Annotations["nodekeeper.dev/node"])
	assert.Equal(t, string(node.UID), transaction.Annotations["nodekeeper.dev/uid"])
	assert.NotContains(t, transaction.Annotations, "nodekeeper.dev/marker")
	assert.NotEmpty(t, transaction.Annotations["nodekeeper.dev/observed-at"])

	e.processor()
	e.saved(name, awkward())
	cm := &corev1.ConfigMap{}
	require.NoError(t, e.client.Get(t.Context(), types.NamespacedName{Namespace: e.metadata, Name: name}, cm))
	want = maps.Clone(awkwardData())
	want["labels_restored"] = node.ResourceVersion
	assert.Equal(t, want, cm.Data)
	assert.Equal(t, string(node.UID), cm.Annotations["nodekeeper.dev/source-uid"])
	assert.Equal(t, "nodekeeper", cm.Labels["app.kubernetes.io/managed-by"])
}
