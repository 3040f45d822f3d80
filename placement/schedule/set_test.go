package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/schedule"
)

func TestParseSet(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]schedule.Set{
		"": nil, "0": {0}, "0-2,7": {0, 1, 2, 7}, "3-4": {3, 4}, "0,1,2": {0, 1, 2}, "2147483647": {2147483647}, "5-5": {5},
	} {
		set, err := schedule.ParseSet(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, set, text)
	}
	for _, text := range []string{
		",", "a", "-1", "1-", "-", "2-1", "1,1", "2,1", "0-3,3", "01", "+1", " 1", "1,", "0-0-0", "2147483648", "0-2147483647", "0,5-1048580",
	} {
		_, err := schedule.ParseSet(text)
		require.ErrorIs(t, err, schedule.ErrMalformedSet, text)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	s := schedule.Set{0, 1, 2, 7}
	assert.Equal(t, "0-2,7", s.String())
	assert.True(t, s.Has(7))
	assert.False(t, s.Has(3))
	assert.Equal(t, schedule.Set{0, 1}, s.Below(2))
	assert.Equal(t, schedule.Set{0, 1, 2, 3, 7}, s.With(3))
	assert.Equal(t, schedule.Set{0, 2, 7}, s.Without(1))
	assert.Equal(t, s, s.With(1))
	assert.Equal(t, s, s.Without(9))
	assert.Equal(t, schedule.Set{0, 1, 2, 7}, s, "no method modifies it")
}

func FuzzParseSet(f *testing.F) {
	for _, text := range []string{"", "0-2,7", "1,1", "0-99999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := schedule.ParseSet(text)
		if err != nil {
			return
		}
		again, err := schedule.ParseSet(set.String())
		require.NoError(t, err)
		require.Equal(t, set, again)
	})
}
