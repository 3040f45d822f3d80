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
	c := childrenMove{}.begun("web-1").done("web-1", first)
	c = c.begun("web-1").done("web-1", map[string]string{"configmaps": "101"}).done("web-1", map[string]string{})
	assert.Equal(t, map[string]string{"configmaps": "101", "services": "100"}, c.versions)
	assert.Equal(t, map[string]string{"configmaps": "99", "services": "100"}, first, "values are not shared")
	c = c.begun("web-2")
	assert.Equal(t, childrenMove{to: "web-2"}, c, "they move on")
	assert.Equal(t, c, c.done("web-1", first), "a late result")
	assert.Equal(t, childrenMove{to: "web-1"}, c.begun("web-1"), "some may be at web-2")
}
