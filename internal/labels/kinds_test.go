package labels_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/internal/labels"
)

func TestAnnotationsAndTaintsHaveReadableDataKeys(t *testing.T) {
	for key, want := range map[string]string{
		labels.AnnotationKey("example.com/owner"):             "---ANNOTATION---example.com---SLASH---owner",
		labels.AnnotationKey("type"):                          "---ANNOTATION---type",
		labels.TaintKey("example.com/dedicated", "NoExecute"): "---TAINT---NoExecute---example.com---SLASH---dedicated",
	} {
		dataKey, _ := labels.EncodeEntry(key, "v")
		assert.Equal(t, want, dataKey)
	}
}

func TestEveryKindOfKeyKeepsItsOwnDataKey(t *testing.T) {
	seen := map[string]string{}
	names := []string{
		"a", "type", "labels_restored", "a/b", "a---SLASH---b", "A/b---SLASH---c", "A---SLASH---b/c",
		"ESCAPED---a", "NoSchedule---a", "a_Cb", "Example.COM/a_b", strings.Repeat("p", 253) + "/name",
	}
	for _, name := range names {
		for _, key := range []string{
			name, labels.AnnotationKey(name),
			labels.TaintKey(name, "NoSchedule"), labels.TaintKey(name, "NoExecute"),
		} {
			dataKey, dataValue := labels.EncodeEntry(key, "a=b")
			assert.Empty(t, validation.IsConfigMapKey(dataKey), key)
			assert.NotContains(t, seen, dataKey, key)
			seen[dataKey] = key
			again, value, err := labels.DecodeEntry(dataKey, dataValue)
			if !strings.HasPrefix(name, "A") || key != name { // labels never have such a prefix
				require.NoError(t, err, key)
				assert.Equal(t, key, again)
				assert.Equal(t, "a=b", value)
			}
		}
	}
}

func TestADataKeyOfAnUnknownKindIsUndecodable(t *testing.T) {
	for _, dataKey := range []string{"---TAINT---", "---TAINT---NoSchedule", "---OTHER---a"} {
		_, _, err := labels.DecodeEntry(dataKey, "v")
		require.ErrorIs(t, err, labels.ErrUndecodable, dataKey)
	}
}
