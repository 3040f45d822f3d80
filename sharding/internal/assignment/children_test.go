package assignment

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/daemon/signal"
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

// A request for an object whose children are being moved is repeated for nothing, unless it comes from
// a new tracker: the one of the batch has ended, and enqueues the object no more.
func TestRequestOfANewTrackerCounts(t *testing.T) {
	t.Parallel()
	main := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7"}}
	former, c := &tracker{}, &children{waiting: map[types.UID]move{}, wake: signal.New()}
	c.add(move{of: former, main: main, to: "web-1"})
	c.take()
	c.add(move{of: former, main: main, to: "web-1"})
	assert.Empty(t, c.waiting)
	c.add(move{of: &tracker{}, main: main, to: "web-1"})
	assert.Len(t, c.waiting, 1)
}

// The garbage collector takes the controller of a child away just before a write to the child.
func TestOrphanLeavesTheView(t *testing.T) {
	t.Parallel()
	child := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "child", ResourceVersion: "7", OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: new(true)}},
	}}
	v := &childView{objects: map[types.NamespacedName]*metav1.PartialObjectMetadata{}}
	v.show(child, true)
	b := batch{"u": &result{}}
	assert.Len(t, v.of(b), 1)
	orphan := child.DeepCopy()
	orphan.ResourceVersion, orphan.OwnerReferences = "9", nil
	v.wrote(orphan)
	assert.Empty(t, v.of(b))
}
