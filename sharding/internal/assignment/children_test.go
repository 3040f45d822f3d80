package assignment

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// withChildren returns a tracker of main objects that has seen the shard web-0 live, and one of these objects at it.
func withChildren() (*tracker, *metav1.PartialObjectMetadata) {
	t := &tracker{
		of: &assigner{seenLive: map[string]bool{"web-0": true}}, keys: keys{shard: "shard", drain: "drain"},
		moved: map[types.UID]moved{}, attempted: map[types.UID]attempt{},
	}
	return t, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "uid", Labels: map[string]string{"shard": "web-0"}}}
}

// TestScatteredChildrenAreLookedForEverywhere, until their main object has moved: a retry that looks only at the former shard misses those that
// have left it, and moves the main object without them.
func TestScatteredChildrenAreLookedForEverywhere(t *testing.T) {
	t.Parallel()
	for name, scatter := range map[string]func(*tracker, *metav1.PartialObjectMetadata){
		"an attempt failed":                  func(t *tracker, m *metav1.PartialObjectMetadata) { t.haveScattered(m.UID) },
		"they had begun to go elsewhere":     func(t *tracker, m *metav1.PartialObjectMetadata) { t.childrenAt(m, "web-2") },
		"both":                               func(t *tracker, m *metav1.PartialObjectMetadata) { t.childrenAt(m, "web-2"); t.haveScattered(m.UID) },
		"they had begun to go, and are back": func(t *tracker, m *metav1.PartialObjectMetadata) { t.childrenAt(m, "web-2"); t.childrenAt(m, "web-1") },
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

// TestVersionsOfChildrenAreKept: a second look, which finds no child at the former shard any more, does not take back up to where the new shard must
// have seen them.
func TestVersionsOfChildrenAreKept(t *testing.T) {
	t.Parallel()
	tr, m := withChildren()
	tr.haveMoved(m.UID, "web-1", map[string]string{"configmaps": "99", "services": "100"})
	tr.haveMoved(m.UID, "web-1", map[string]string{"configmaps": "101"})
	tr.haveMoved(m.UID, "web-1", map[string]string{})
	assert.Equal(t, map[string]string{"configmaps": "101", "services": "100"}, tr.moved[m.UID].versions)
	tr.haveMoved(m.UID, "web-2", map[string]string{"services": "90"})
	assert.Equal(t, map[string]string{"services": "90"}, tr.moved[m.UID].versions, "they are elsewhere")
}
