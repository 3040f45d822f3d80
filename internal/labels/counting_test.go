package labels_test

import (
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/internal/labels"
)

const (
	lowerAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789"
	alphanumerics  = lowerAndDigits + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	dataKeyChars   = alphanumerics + "-._"
)

// There are more valid label keys than valid ConfigMap keys, so any encoding that stores a label
// key only in the ConfigMap key, and nothing of it in the value, gives two labels the same entry.
// This is why the hashed form exists.
func TestNoEncodingFitsEveryLabelKeyIntoConfigMapKey(t *testing.T) {
	// A lower bound: only the label keys of 317 characters without dash, dot or underscore.
	for _, c := range lowerAndDigits {
		require.Empty(t, validation.IsQualifiedName(strings.Repeat(string(c), 253)+"/"+longestName))
	}
	for _, c := range alphanumerics {
		require.Empty(t, validation.IsQualifiedName(longestPrefix+"/"+strings.Repeat(string(c), 63)))
	}
	labelKeys := new(big.Int).Mul(power(len(lowerAndDigits), 253), power(len(alphanumerics), 63))

	// An upper bound: "." and "..", for example, are not valid.
	for c := range rune(0x100) {
		legal := len(validation.IsConfigMapKey("x"+string(c))) == 0
		require.Equal(t, strings.ContainsRune(dataKeyChars, c), legal, "%q", c)
	}
	dataKeys := new(big.Int)
	for length := 1; length <= labels.MaxKeyLength; length++ {
		dataKeys.Add(dataKeys, power(len(dataKeyChars), length))
	}

	assert.Equal(t, 1, labelKeys.Cmp(dataKeys), "there are more label keys than ConfigMap keys")
	assert.Equal(t, 1524, dataKeys.BitLen(), "ConfigMap keys, as doc.go has it")
	ratio := new(big.Int).Div(labelKeys, dataKeys)
	assert.Greater(t, ratio.BitLen(), 128, "and not by a little: nearly every label key would share its entry")
}

func power(base, exponent int) *big.Int {
	return new(big.Int).Exp(big.NewInt(int64(base)), big.NewInt(int64(exponent)), nil)
}
