package typo_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/daemon/command/typo"
)

func TestAdviceNamesTheNearest(t *testing.T) {
	names := []string{"list", "set", "show", "status"}
	for word, want := range map[string]string{
		"lsit":     "did you mean --list or --set?",
		"lst":      "did you mean --list?",
		"stat":     "did you mean --status?",
		"SHOW":     "did you mean --show?",
		"discover": "see help",
		"x":        "see help",
		"":         "see help",
	} {
		assert.Equal(t, want, typo.Advice(word, names, "--", "see help"), word)
	}
}
