package byhand_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/plugin/byhand"
)

type set = map[string]string

func TestLabelEditIsWhatKubectlLabelWouldDo(t *testing.T) {
	before := set{"rack": "r1", "team": "blue"}
	for name, tc := range map[string]struct {
		args      []string
		overwrite bool
		want      set
	}{
		"another label":     {[]string{"zone=a"}, false, set{"rack": "r1", "team": "blue", "zone": "a"}},
		"an empty value":    {[]string{"zone="}, false, set{"rack": "r1", "team": "blue", "zone": ""}},
		"an equals sign":    {[]string{"rack=r1"}, false, before},
		"another value":     {[]string{"rack=r2"}, true, set{"rack": "r2", "team": "blue"}},
		"one less":          {[]string{"team-"}, false, set{"rack": "r1"}},
		"one that is none":  {[]string{"none-"}, false, before},
		"all of it at once": {[]string{"example.com/a=b", "team-", "rack=r3"}, true, set{"rack": "r3", "example.com/a": "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			edit, err := byhand.ParseLabelEdit(tc.args)
			require.NoError(t, err)
			got, err := edit.Of(before, tc.overwrite)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
			assert.Equal(t, set{"rack": "r1", "team": "blue"}, before, "the argument stays as it is")
		})
	}
	edit, err := byhand.ParseLabelEdit([]string{"rack=r2"})
	require.NoError(t, err)
	_, err = edit.Of(before, false)
	require.ErrorContains(t, err, "give --overwrite")
}

func TestLabelEditRefusesWhatIsNoChange(t *testing.T) {
	for says, args := range map[string][]string{
		"give what to change":     nil,
		"give key=value":          {"rack"},
		"not a label key":         {"a/b/c=d"},
		"not a label value":       {"rack=a b"},
		"nodekeeper's own label":  {"labels_restored-"},
		"is both set and removed": {"rack-", "rack=r1"},
	} {
		_, err := byhand.ParseLabelEdit(args)
		require.ErrorContains(t, err, says)
	}
}
