package labels_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
)

func TestKeysAreASet(t *testing.T) {
	keys := labels.KeysOf(slices.Values([]string{"rack", "example.com/team", "rack", "a"}))
	assert.Equal(t, labels.Keys("a,example.com/team,rack"), keys)
	assert.Equal(t, []string{"a", "example.com/team", "rack"}, slices.Collect(keys.All()))
	assert.Equal(t, map[string]bool{"a": true, "example.com/team": true, "rack": true}, keys.Set())

	assert.Empty(t, labels.KeysOf(slices.Values([]string(nil))))
	assert.Empty(t, slices.Collect(labels.Keys("").All()))
	assert.Empty(t, labels.Keys("").Set())
}

func TestParseKeysAcceptsManualInput(t *testing.T) {
	for text, want := range map[string]labels.Keys{"": "", "rack": "rack", "\tb , a,b\n": "a,b"} {
		got, err := labels.ParseKeys(text)
		require.NoError(t, err)
		assert.Equal(t, want, got, "%q", text)
	}
	for _, text := range []string{",", "a,", "a b", "/a", "a/", "a;b", "ä"} {
		_, err := labels.ParseKeys(text)
		require.ErrorContains(t, err, "is not a label key", "%q", text)
	}
}

// Too large a set is treated as empty, as if users had set the labels.
func TestTooManyKeysAreNone(t *testing.T) {
	key := func(i int) string { return fmt.Sprintf("%s/%05d", strings.Repeat("p", 253), i) }
	many := func(count int) labels.Keys {
		var all []string
		for i := range count {
			all = append(all, key(i))
		}
		return labels.KeysOf(slices.Values(all))
	}
	fits := (labels.MaxKeysBytes + 1) / (len(key(0)) + 1)
	assert.Len(t, slices.Collect(many(fits).All()), fits)
	assert.Empty(t, many(fits+1))
}

func TestSetsOfAnySizeThatAreNotStored(t *testing.T) {
	big, small := labels.Keys(strings.Repeat("k", labels.MaxKeysBytes+1)), labels.Keys("a,b")
	assert.Equal(t, big, labels.AllKeysOf(big.All()))
	assert.Equal(t, "a,b,"+big, small.Join(big))
	assert.Equal(t, "a,b,"+big, big.Join(small))
	assert.Equal(t, big, small.Join(big).Without(small))
	assert.Equal(t, small, small.Union(big), "too large")
	assert.Empty(t, big.Bounded())
	assert.Equal(t, small, small.Bounded())
}

func TestSetsOfKeys(t *testing.T) {
	assert.Equal(t, labels.Keys("a,b,c"), labels.Keys("a,c").Union("b,c"))
	assert.Equal(t, labels.Keys("a"), labels.Keys("").Union("a"))
	assert.Equal(t, labels.Keys("a"), labels.Keys("a").Union(""))
	assert.Equal(t, labels.Keys("a"), labels.Keys("a,b,c").Without("b,c,d"))
	assert.Equal(t, labels.Keys("a,b"), labels.Keys("a,b").Without(""))
	assert.Empty(t, labels.Keys("").Without("a"))
	assert.Equal(t, labels.Keys("b"), labels.Keys("a,b,c").Where(func(key string) bool { return key == "b" }))
	assert.Empty(t, labels.Keys("").Where(func(string) bool { return true }))
}
