package changes_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/plugin/cli/changes"
)

func TestChangesAreInTheOrderOfTheirKeys(t *testing.T) {
	var shown bytes.Buffer
	changes.Write(&shown, map[string]string{"b": "1", "same": "x", "gone": ""}, map[string]string{"b": "2", "same": "x", "a": "new"})
	assert.Equal(t, "+a=new\n-b=1\n+b=2\n-gone=\n", shown.String(), "without colors unless it is a terminal")
}
