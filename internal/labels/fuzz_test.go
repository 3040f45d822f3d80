package labels_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/internal/labels"
)

// interestingKeys are valid label keys near every boundary between two forms.
var interestingKeys = []string{
	"rack", "example.com/team", "node_name", "type", "x/type", "labels_restored", "x/labels_restored",
	"a/b", "a---SLASH---b", "a/SLASH---b", "a/b---SLASH---c", "a/SLASH---SLASH---b", "a---SLASH---SLASH---b",
	"SLASH---b", "SLASH---SLASH---b", "a_S---SLASH---b", "a_US---SLASH---b", "a---ESCAPED---b", "ESCAPED---type", "a---LONG---b", "S---SLASH---_U_S",
	strings.Repeat("p", 238) + "/name", strings.Repeat("p", 239) + "/name", longestPrefix + "/" + longestName,
	strings.Repeat("p", 200) + "/x---SLASH---" + strings.Repeat("y", 20),
	strings.Repeat("p", 200) + "/x---SLASH---" + strings.Repeat("_", 50) + "y",
}

// kept are the stored keys of a label, an annotation and taints with that name.
func kept(name string) []string {
	return []string{name, labels.AnnotationKey(name), labels.TaintKey(name, "NoSchedule"), labels.TaintKey(name, "NoExecute")}
}

// isKey reports whether a key can be one of a Node's.
func isKey(key string) bool {
	if name, ok := labels.AsAnnotation(key); ok {
		// The prefix of an annotation may have upper case: ValidateAnnotations in
		// k8s.io/apimachinery/pkg/api/validation.
		return len(validation.IsQualifiedName(strings.ToLower(name))) == 0
	}
	name := key
	if taint, effect, ok := labels.AsTaint(key); ok {
		if effect != "NoSchedule" && effect != "NoExecute" {
			return false
		}
		name = taint
	}
	return len(validation.IsQualifiedName(name)) == 0
}

func FuzzEncodeEntry(f *testing.F) {
	for _, name := range interestingKeys {
		for _, key := range kept(name) {
			f.Add(key, "value")
			f.Add(key, "")
		}
	}
	f.Add(labels.AnnotationKey("SLASH/SLASH---b"), "value")
	f.Add(labels.AnnotationKey("a---SLASH/b"), "value")
	f.Add(longestPrefix+"/"+longestName, "=a=b") // not a valid value, but that does not matter here
	f.Fuzz(func(t *testing.T, key, value string) {
		if !isKey(key) {
			t.Skip("no key")
		}
		dataKey, dataValue := labels.EncodeEntry(key, value)
		assert.Empty(t, validation.IsConfigMapKey(dataKey), "a legal ConfigMap key: %q", dataKey)
		assert.NotContains(t, []string{labels.TypeKey, labels.Marker}, dataKey, "reserved data keys")

		gotKey, gotValue, err := labels.DecodeEntry(dataKey, dataValue)
		require.NoError(t, err)
		assert.Equal(t, key, gotKey)
		assert.Equal(t, value, gotValue)
	})
}

func FuzzEncodeInjective(f *testing.F) {
	for i, a := range interestingKeys {
		for _, b := range interestingKeys[:i+1] {
			for _, key := range kept(a) {
				f.Add(key, b)
				f.Add(key, labels.TaintKey(b, "NoSchedule"))
			}
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if !isKey(a) || !isKey(b) {
			t.Skip("no key")
		}
		dataKeyA, _ := labels.EncodeEntry(a, "v")
		dataKeyB, _ := labels.EncodeEntry(b, "w")
		assert.Equal(t, a == b, dataKeyA == dataKeyB, "%q and %q are %q and %q", a, b, dataKeyA, dataKeyB)
	})
}

func FuzzDecodeEntry(f *testing.F) {
	for _, name := range interestingKeys {
		for _, key := range kept(name) {
			dataKey, dataValue := labels.EncodeEntry(key, "value")
			f.Add(dataKey, dataValue)
			f.Add("---ESCAPED---"+key, "value")
			f.Add(hashed(key), key+"=value")
		}
	}
	f.Add("---TAINT---NoSchedule", "value")
	f.Add("---ESCAPED---annotation_Crack", "value")
	f.Add("---OTHER---x", "value")
	f.Add("---LONG---", "")
	f.Add("---ESCAPED---a_X_", "value")
	f.Add("a/b", "\xff\x00")
	f.Fuzz(func(t *testing.T, dataKey, dataValue string) {
		key, value, err := labels.DecodeEntry(dataKey, dataValue)
		if err != nil {
			require.ErrorIs(t, err, labels.ErrUndecodable)
			return
		}
		againKey, againValue := labels.EncodeEntry(key, value)
		assert.Equal(t, dataKey, againKey)
		assert.Equal(t, dataValue, againValue)
	})
}
