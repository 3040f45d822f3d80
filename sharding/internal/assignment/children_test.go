package assignment

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// withChildren returns a tracker of main objects that has seen shard web-0 alive, and a main object
// at that shard.
func withChildren() (*tracker, *metav1.PartialObjectMetadata) {
	t := &tracker{
		of: &assigner{seenLive: map[string]bool{"web-0": true}}, keys: keys{shard: "shard", drain: "drain"},
		moved: map[types.UID]moved{}, attempted: map[types.UID]attempt{},
	}
	return t, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "uid", Labels: map[string]string{"shard": "web-0"}}}
}

// A retry that considers only the former shard would miss children that have left it, and move the
// main object without them.
func TestScatteredChildrenAreSearchedEverywhere(t *testing.T) {
	t.Parallel()
	for name, scatter := range map[string]func(*tracker, *metav1.PartialObjectMetadata){
		"an attempt failed":             func(t *tracker, m *metav1.PartialObjectMetadata) { t.setScattered(m.UID) },
		"an attempt had another target": func(t *tracker, m *metav1.PartialObjectMetadata) { t.childrenAt(m, "web-2") },
		"both":                          func(t *tracker, m *metav1.PartialObjectMetadata) { t.childrenAt(m, "web-2"); t.setScattered(m.UID) },
		"the target changed back":       func(t *tracker, m *metav1.PartialObjectMetadata) { t.childrenAt(m, "web-2"); t.childrenAt(m, "web-1") },
	} {
		tr, m := withChildren()
		assert.Equal(t, "web-0", tr.childrenAt(m, "web-1"), name)
		assert.Equal(t, "web-0", tr.childrenAt(m, "web-1"), "%s: it waits for the first attempt", name)
		scatter(tr, m)
		assert.Empty(t, tr.childrenAt(m, "web-1"), name)
		assert.Empty(t, tr.childrenAt(m, "web-1"), name)
		tr.forgetChildren(m.UID)
		assert.Equal(t, "web-0", tr.childrenAt(m, "web-1"), name)
	}
}

// A second attempt that finds no more children at the former shard must not lower the versions that
// the new shard must have seen.
func TestVersionsOfChildrenAreKept(t *testing.T) {
	t.Parallel()
	tr, m := withChildren()
	tr.setMoved(m.UID, "web-1", map[string]string{"configmaps": "99", "services": "100"})
	tr.setMoved(m.UID, "web-1", map[string]string{"configmaps": "101"})
	tr.setMoved(m.UID, "web-1", map[string]string{})
	assert.Equal(t, map[string]string{"configmaps": "101", "services": "100"}, tr.moved[m.UID].versions)
	tr.setMoved(m.UID, "web-2", map[string]string{"services": "90"})
	assert.Equal(t, map[string]string{"services": "90"}, tr.moved[m.UID].versions, "they are at another shard")
}
