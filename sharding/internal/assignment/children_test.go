package assignment

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A second attempt that finds no more children at the former shard must not lower the versions that
// the new shard must have seen.
func TestVersionsOfChildrenAreKept(t *testing.T) {
	t.Parallel()
	first := map[string]string{"configmaps": "99", "services": "100"}
	c := childrenMove{}.moved("web-1", first)
	c = c.moved("web-1", map[string]string{"configmaps": "101"}).moved("web-1", map[string]string{})
	assert.Equal(t, map[string]string{"configmaps": "101", "services": "100"}, c.versions)
	assert.Equal(t, map[string]string{"configmaps": "99", "services": "100"}, first, "values are not shared")
	c = c.moved("web-2", map[string]string{"services": "90"})
	assert.Equal(t, map[string]string{"services": "90"}, c.versions, "they are at another shard")
}
