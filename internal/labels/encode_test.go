package labels_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/internal/labels"
)

// longestPrefix and longestName form the longest valid label key: 317 characters.
var (
	longestPrefix = strings.Repeat("p", 253)
	longestName   = strings.Repeat("N", 63)
)

// keyOfLength returns a legal label key of that length with a slash in it.
func keyOfLength(length int) string {
	const name = "name"
	return strings.Repeat("p", length-len("/")-len(name)) + "/" + name
}

// hashed returns the data key of the hashed form.
func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "---LONG---" + hex.EncodeToString(sum[:])
}

func TestEncodeEntryAndDecodeEntryOfEveryForm(t *testing.T) {
	escapedTooLong := strings.Repeat("p", 200) + "/x---SLASH---y" + strings.Repeat("_", 49) + "z"
	for name, tc := range map[string]struct{ key, value, wantKey, wantValue string }{
		"an ordinary key":               {"rack", "r7", "rack", "r7"},
		"all characters of a name":      {"Aa0-_.Zz9", "v", "Aa0-_.Zz9", "v"},
		"an underscore is ordinary":     {"node_name", "n", "node_name", "n"},
		"an empty value":                {"node-role.kubernetes.io/worker", "", "node-role.kubernetes.io---SLASH---worker", ""},
		"a prefix":                      {"example.com/team", "blue", "example.com---SLASH---team", "blue"},
		"a short prefix":                {"a/b", "v", "a---SLASH---b", "v"},
		"the type, reserved":            {"type", "gpu", "---ESCAPED---type", "gpu"},
		"the marker, reserved":          {"labels_restored", "7", "---ESCAPED---labels_Urestored", "7"},
		"a reserved word with a prefix": {"example.com/type", "v", "example.com---SLASH---type", "v"},
		"a reserved word in capitals":   {"Type", "v", "Type", "v"},
		"the token":                     {"a---SLASH---b", "v", "---ESCAPED---a---SLASH---b", "v"},
		"the token after a prefix":      {"example.com/x---SLASH---y", "v", "---ESCAPED---example.com_Sx---SLASH---y", "v"},
		"the token and no slash":        {"example.com---SLASH---type", "v", "---ESCAPED---example.com---SLASH---type", "v"},
		"the token and an underscore":   {"a_S---SLASH---b_U", "v", "---ESCAPED---a_US---SLASH---b_UU", "v"},
		"the token made by the slash":   {"a/SLASH---b", "v", "a---SLASH---SLASH---b", "v"},
		"another token":                 {"a---ESCAPED---b", "v", "a---ESCAPED---b", "v"},
		"243 characters with a slash":   {keyOfLength(243), "v", strings.Repeat("p", 238) + "---SLASH---name", "v"},
		"244 characters with a slash":   {keyOfLength(244), "v", hashed(keyOfLength(244)), keyOfLength(244) + "=v"},
		"escaped and then too long":     {escapedTooLong, "v", hashed(escapedTooLong), escapedTooLong + "=v"},
		"317 characters":                {longestPrefix + "/" + longestName, "v", hashed(longestPrefix + "/" + longestName), longestPrefix + "/" + longestName + "=v"},
		"317 characters, no value":      {longestPrefix + "/" + longestName, "", hashed(longestPrefix + "/" + longestName), longestPrefix + "/" + longestName + "="},
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, validation.IsQualifiedName(tc.key), "a legal label key")
			gotKey, gotValue := labels.EncodeEntry(tc.key, tc.value)
			assert.Equal(t, tc.wantKey, gotKey)
			assert.Equal(t, tc.wantValue, gotValue)
			assert.Empty(t, validation.IsConfigMapKey(gotKey), "a legal ConfigMap key")

			key, value, err := labels.DecodeEntry(gotKey, gotValue)
			require.NoError(t, err)
			assert.Equal(t, tc.key, key)
			assert.Equal(t, tc.value, value)
		})
	}
}

func TestEncodeDistinguishesSimilarKeys(t *testing.T) {
	own := map[string]string{
		"a/b":                                  "slash",
		"a---SLASH---b":                        "token",
		"a/SLASH---b":                          "half a token",
		"type":                                 "reserved",
		"x/type":                               "not reserved",
		labels.Marker:                          "a label like any other here",
		longestPrefix + "/" + longestName:      "long",
		longestPrefix + "/n" + longestName[1:]: "as long",
	}
	data := labels.Encode(own)
	assert.Len(t, data, len(own))
	assert.NotContains(t, data, labels.TypeKey)
	assert.NotContains(t, data, labels.Marker)

	decoded, err := labels.Decode(data)
	require.NoError(t, err)
	assert.Equal(t, own, decoded)
}

func TestEncodeAndDecodeOfNothingAreNotNil(t *testing.T) {
	assert.Equal(t, map[string]string{}, labels.Encode(nil))
	decoded, err := labels.Decode(nil)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{}, decoded)
}

func TestMaxKeyLengthIsConfigMapLimit(t *testing.T) {
	assert.Empty(t, validation.IsConfigMapKey(strings.Repeat("k", labels.MaxKeyLength)))
	assert.NotEmpty(t, validation.IsConfigMapKey(strings.Repeat("k", labels.MaxKeyLength+1)))
}
