package labels_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
)

func TestDecodeEntryRejectsOtherEntries(t *testing.T) {
	long := keyOfLength(300)
	for name, tc := range map[string]struct{ dataKey, dataValue string }{
		"the type":                                 {"type", "added"},
		"the marker":                               {"labels_restored", "7"},
		"a slash":                                  {"a/b", "v"},
		"a second token for a second slash":        {"a---SLASH---b---SLASH---c", "v"},
		"a slash token and no prefix":              {"---SLASH---b", "v"},
		"an unknown form":                          {"---OTHER---x", "v"},
		"an unknown form with a slash":             {"---OTHER---x---SLASH---y", "v"},
		"dashes alone":                             {"---", "v"},
		"an ordinary form that is too long":        {strings.Repeat("p", 245) + "---SLASH---name", "v"},
		"escaped where ordinary would do":          {"---ESCAPED---rack", "v"},
		"escaped where ordinary with a slash does": {"---ESCAPED---a_Sb", "v"},
		"escaped nothing":                          {"---ESCAPED---", "v"},
		"escaped twice":                            {"---ESCAPED------ESCAPED---type", "v"},
		"an underscore that is not escaped":        {"---ESCAPED---labels_restored", "v"},
		"an escape that does not exist":            {"---ESCAPED---a---SLASH---b_X", "v"},
		"an escape in lower case":                  {"---ESCAPED---labels_urestored", "v"},
		"an escape cut short":                      {"---ESCAPED---a---SLASH---b_", "v"},
		"a slash that is not escaped":              {"---ESCAPED---a/b---SLASH---c", "v"},
		"an escaped form in lower case":            {"---escaped---type", "v"},
		"an escaped form that is too long":         {"---ESCAPED---" + strings.Repeat("p", 240) + "---SLASH---x", "v"},
		"hashed where ordinary would do":           {hashed("rack"), "rack=v"},
		"hashed where escaped would do":            {hashed("type"), "type=v"},
		"hashed one character too short":           {hashed(keyOfLength(243)), keyOfLength(243) + "=v"},
		"the hash of another key":                  {hashed(keyOfLength(301)), long + "=v"},
		"a hash in capitals":                       {"---LONG---" + strings.ToUpper(hashed(long)[len("---LONG---"):]), long + "=v"},
		"a hash cut short":                         {hashed(long)[:len(hashed(long))-1], long + "=v"},
		"no hash":                                  {"---LONG---", long + "=v"},
		"a hash and more":                          {hashed(long) + "0", long + "=v"},
		"hashed with no key":                       {hashed(long), ""},
		"hashed with a key and no equals sign":     {hashed(long), long},
		"hashed with a value alone":                {hashed(long), "v"},
	} {
		t.Run(name, func(t *testing.T) {
			key, value, err := labels.DecodeEntry(tc.dataKey, tc.dataValue)
			require.ErrorIs(t, err, labels.ErrUndecodable)
			require.ErrorContains(t, err, tc.dataKey, "the error names the entry")
			assert.Empty(t, key)
			assert.Empty(t, value)
		})
	}
}

func TestDecodeRejectsAllForOneUndecodableEntry(t *testing.T) {
	decoded, err := labels.Decode(map[string]string{"rack": "r7", "---ESCAPED---rack": "r8"})
	require.ErrorIs(t, err, labels.ErrUndecodable)
	assert.Nil(t, decoded)
}

func TestSplitRemovesTheMarker(t *testing.T) {
	for name, tc := range map[string]struct {
		nodeLabels, own map[string]string
		marker          string
	}{
		"no labels":       {nil, map[string]string{}, ""},
		"no marker":       {map[string]string{"rack": "r7"}, map[string]string{"rack": "r7"}, ""},
		"marker":          {map[string]string{"rack": "r7", labels.Marker: "12"}, map[string]string{"rack": "r7"}, "12"},
		"only the marker": {map[string]string{labels.Marker: "12"}, map[string]string{}, "12"},
		"empty marker":    {map[string]string{labels.Marker: ""}, map[string]string{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			own, marker := labels.Split(tc.nodeLabels)
			assert.Equal(t, tc.own, own)
			assert.Equal(t, tc.marker, marker)
		})
	}
}

func TestSplitReturnsACopy(t *testing.T) {
	nodeLabels := map[string]string{"rack": "r7", labels.Marker: "12"}
	own, _ := labels.Split(nodeLabels)
	own["rack"] = "r8"
	assert.Equal(t, map[string]string{"rack": "r7", labels.Marker: "12"}, nodeLabels)
}
