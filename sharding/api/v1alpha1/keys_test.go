package v1alpha1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPrefixesThatLabelsCanHave(t *testing.T) {
	t.Parallel()
	for prefix, says := range map[Prefix]string{
		DefaultPrefix:         "",
		"example.com":         "",
		"":                    "not a valid prefix of labels",
		"Example.com":         "not a valid prefix of labels",
		"example.com/shards":  "not a valid prefix of labels",
		Prefix(tooLong):       "not a valid prefix of labels",
		Prefix(tooLong[10:]):  "",
		TimeberttPrefix:       "another project",
		"-example.com":        "not a valid prefix of labels",
		"shards.example.com.": "not a valid prefix of labels",
	} {
		if err := prefix.Validate(); says == "" {
			assert.NoError(t, err, prefix)
		} else {
			assert.ErrorContains(t, err, says, prefix)
		}
	}
}

// tooLong is a subdomain of 253 characters, the most that there can be: it has no room for what is put before it.
var tooLong = strings.Repeat("a.", 126) + "b"
