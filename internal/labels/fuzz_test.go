package labels_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/internal/labels"
)

// interestingKeys are legal label keys near every boundary between two forms.
var interestingKeys = []string{
	"rack", "example.com/team", "node_name", "type", "x/type", "labels_restored", "x/labels_restored",
	"a/b", "a---SLASH---b", "a/SLASH---b", "a/b---SLASH---c", "a/SLASH---SLASH---b", "a---SLASH---SLASH---b",
	"a_S---SLASH---b", "a_US---SLASH---b", "a---ESCAPED---b", "ESCAPED---type", "a---LONG---b", "S---SLASH---_U_S",
	strings.Repeat("p", 238) + "/name", strings.Repeat("p", 239) + "/name", longestPrefix + "/" + longestName,
	strings.Repeat("p", 200) + "/x---SLASH---" + strings.Repeat("y", 20),
	strings.Repeat("p", 200) + "/x---SLASH---" + strings.Repeat("_", 50) + "y",
}

func FuzzEncodeEntry(f *testing.F) {
	for _, key := range interestingKeys {
		f.Add(key, "value")
		f.Add(key, "")
	}
	f.Add(longestPrefix+"/"+longestName, "=a=b") // no legal value, but no worse for it
	f.Fuzz(func(t *testing.T, key, value string) {
		if len(validation.IsQualifiedName(key)) > 0 {
			t.Skip("no label key")
		}
		dataKey, dataValue := labels.EncodeEntry(key, value)
		assert.Empty(t, validation.IsConfigMapKey(dataKey), "a legal ConfigMap key: %q", dataKey)
		assert.NotContains(t, []string{labels.TypeKey, labels.Marker}, dataKey, "what is reserved")

		gotKey, gotValue, err := labels.DecodeEntry(dataKey, dataValue)
		require.NoError(t, err)
		assert.Equal(t, key, gotKey)
		assert.Equal(t, value, gotValue)
	})
}

func FuzzEncodeInjective(f *testing.F) {
	for i, a := range interestingKeys {
		for _, b := range interestingKeys[:i+1] {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(validation.IsQualifiedName(a)) > 0 || len(validation.IsQualifiedName(b)) > 0 {
			t.Skip("no label key")
		}
		dataKeyA, _ := labels.EncodeEntry(a, "v")
		dataKeyB, _ := labels.EncodeEntry(b, "w")
		assert.Equal(t, a == b, dataKeyA == dataKeyB, "%q and %q are %q and %q", a, b, dataKeyA, dataKeyB)
	})
}

func FuzzDecodeEntry(f *testing.F) {
	for _, key := range interestingKeys {
		dataKey, dataValue := labels.EncodeEntry(key, "value")
		f.Add(dataKey, dataValue)
		f.Add("---ESCAPED---"+key, "value")
		f.Add(hashed(key), key+"=value")
	}
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
