package txn_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
)

// Any ConfigMap is either malformed or a transaction that is stored identically.
func FuzzParse(f *testing.F) {
	const time = "2026-11-21T03:14:15.926535Z"
	f.Add("", "2571", "node-1", "uid", "", time, "", "deleted", "rack", "r7", false)
	f.Add("", "9", "node-1", "uid", "12", time, "true", "added", "example.com---SLASH---team", "blue", false)
	f.Add("", "9", "node-1", "uid", "12", time, "false", "updated", "---ESCAPED---type", "gpu", false)
	f.Add("", "9", "node-1", "uid", "12", time, "true", "updated", "---ESCAPED---labels_Urestored", "1", false)
	f.Add("", "9", "node-1", "uid", "12", time, "true", "updated", "---OTHER---x", "1", false)
	f.Add("", "9", "node-1", "uid", "12", time, "true", "updated", "type", "added", false)
	f.Add("", "9", "node-1", "uid", "", time, "", "deleted", "binary", "r7", true)
	f.Add("", "09", "node-1", "uid", "", time, "", "deleted", "rack", "r7", false)
	f.Add("", "9", "node-1", "uid", "", "0000-01-01T00:00:00+23:59", "", "deleted", "rack", "r7", false)
	f.Add("", "9", "node-1", "uid", "", "9999-12-31T23:59:59-23:59", "", "deleted", "rack", "r7", false)
	f.Add("", "9", "node-1", "uid", "", "2026-11-21T03:14:15,5+00:00", "", "deleted", "rack", "r7", false)
	f.Add(hashOfNode1, "9", "node-1", "uid", "", time, "", "deleted", "rack", "r7", false)
	f.Add(hashOfNode1, "9", "node-2", "uid", "", time, "", "deleted", "rack", "r7", false)
	f.Fuzz(func(t *testing.T, nodeHash, rv, node, uid, marker, observedAt, foundsRecord, typ, dataKey, dataValue string, binary bool) {
		if nodeHash == "" {
			nodeHash = txn.NodeHash(node) // otherwise no input would get beyond the name
		}
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: nodeHash + "." + rv,
				Annotations: map[string]string{
					"nodekeeper.dev/node":          node,
					"nodekeeper.dev/uid":           uid,
					"nodekeeper.dev/marker":        marker,
					"nodekeeper.dev/observed-at":   observedAt,
					"nodekeeper.dev/founds-record": foundsRecord,
				},
			},
			Data: map[string]string{dataKey: dataValue, "type": typ},
		}
		if binary {
			cm.BinaryData = map[string][]byte{"binary": []byte(dataValue)}
		}
		got, err := txn.Parse(cm)
		if err != nil {
			require.ErrorIs(t, err, txn.ErrMalformed)
			return
		}
		stored := got.ConfigMap(cm.Namespace)
		assert.Equal(t, cm.Name, stored.Name)
		assert.Equal(t, cm.Data, stored.Data)
		again, err := txn.Parse(stored)
		require.NoError(t, err)
		assert.Equal(t, got, again)
	})
}

// FuzzValidate compares the result for a label with that of the API server's own check.
func FuzzValidate(f *testing.F) {
	for key, value := range map[string]string{
		"rack": "r-1", "example.com/team": "a.b_c", "Example.com/team": "", "example_a.com/x": "1", "a..b/c": "x", "a-.b/c": "x", "a/b/c": "", "/a": "", "a/": "",
		"a--b": "c--d", "-a": "x", "a": "-", "": "", "é": "x",
		strings.Repeat("a", 63): strings.Repeat("b", 63), strings.Repeat("a", 64): "x", strings.Repeat("a", 64) + "/a": strings.Repeat("b", 64),
	} {
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		if !labels.IsLabel(key) {
			t.Skip("an annotation or a taint")
		}
		own := map[string]string{key: value}
		isInvalid := len(metav1validation.ValidateLabels(own, field.NewPath("labels"))) > 0
		assert.Equal(t, isInvalid, txn.Validate(own) != nil, "%q=%q", key, value)
	})
}
