package revision_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nodekeeper.dev/internal/revision"
)

func TestParseAcceptsPositiveNumbersOfAnyLength(t *testing.T) {
	for _, text := range []string{"1", "10", "18446744073709551616", "99999999999999999999999999999999999999"} {
		r, err := revision.Parse(text)
		require.NoError(t, err)
		assert.Equal(t, text, r.String())
		assert.False(t, r.IsZero())
		assert.Equal(t, r, revision.Of(text))
	}
	for _, text := range []string{"", "0", "01", "-1", "1a", " 1", "1.0"} {
		_, err := revision.Parse(text)
		require.Error(t, err, "%q", text)
		assert.True(t, revision.Of(text).IsZero(), "%q", text)
		assert.Panics(t, func() { revision.MustParse(text) }, "%q", text)
	}
}

func TestRevisionsAreOrderedAsNumbers(t *testing.T) {
	ascending := []revision.Revision{
		{},
		revision.MustParse("1"), revision.MustParse("9"), revision.MustParse("10"), revision.MustParse("99"),
		revision.MustParse("100"), revision.MustParse("18446744073709551615"), revision.MustParse("18446744073709551616"),
	}
	for i, a := range ascending {
		for j, b := range ascending {
			assert.Equal(t, i > j, a.After(b), "%s after %s", a, b)
			assert.Equal(t, -b.Compare(a), a.Compare(b), "%s and %s", a, b)
			assert.Equal(t, i == j, a.Compare(b) == 0, "%s and %s", a, b)
		}
	}
	assert.Equal(t, ascending[len(ascending)-1], revision.Max(slices.Clone(ascending)...))
	assert.True(t, revision.Max().IsZero())
}

// FuzzCompare compares the order with apimachinery's.
func FuzzCompare(f *testing.F) {
	f.Add("1", "2")
	f.Add("10", "9")
	f.Add("", "7")
	f.Fuzz(func(t *testing.T, a, b string) {
		want, err := resourceversion.CompareResourceVersion(a, b)
		if err != nil {
			t.Skip("not two resourceVersions")
		}
		assert.Equal(t, want, revision.MustParse(a).Compare(revision.MustParse(b)))
	})
}
