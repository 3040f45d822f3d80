package v1alpha1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPrefixesThatLabelsCanHave(t *testing.T) {
	t.Parallel()
	for prefix, message := range map[Prefix]string{
		DefaultPrefix:         "",
		"example.com":         "",
		"":                    "not a valid prefix of label keys",
		"Example.com":         "not a valid prefix of label keys",
		"example.com/shards":  "not a valid prefix of label keys",
		Prefix(tooLong):       "not a valid prefix of label keys",
		Prefix(tooLong[10:]):  "",
		TimeberttPrefix:       "another project",
		"-example.com":        "not a valid prefix of label keys",
		"shards.example.com.": "not a valid prefix of label keys",
	} {
		if err := prefix.Validate(); message == "" {
			assert.NoError(t, err, prefix)
		} else {
			assert.ErrorContains(t, err, message, prefix)
		}
	}
}

// tooLong has 253 characters, the maximum for a subdomain, which leaves no room for a prefix.
var tooLong = strings.Repeat("a.", 126) + "b"
