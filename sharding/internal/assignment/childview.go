package assignment

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// keepViews is how long a view is kept after the last batch that has used it.
const keepViews = 10 * time.Second

// childView shows the objects of a controlled resource while main objects move, so that not every
// batch lists them: a list, and a watch from there on. The watch can be behind, see [children].
type childView struct {
	selector string
	stop     context.CancelFunc
	// used is when a batch has used the view last. Only children.run uses it.
	used time.Time

	mu sync.Mutex
	// objects are the objects with a controller.
	objects map[types.NamespacedName]*metav1.PartialObjectMetadata
	// at is the resourceVersion of the last change that the view shows.
	at string
	// isEnded is set when the watch has ended.
	isEnded bool
}

// openView lists the objects of the tracker that match a selector by a most recent read, and starts to
// watch them.
func (t *tracker) openView(ctx context.Context, selector string) (*childView, error) {
	v := &childView{selector: selector, objects: map[types.NamespacedName]*metav1.PartialObjectMetadata{}}
	at, err := t.list(ctx, v)
	if err != nil {
		return nil, err
	}
	v.at = at
	show := func(m *metav1.PartialObjectMetadata, exists bool) { v.changed(t.strip(m), exists) }
	ctx, v.stop = context.WithCancel(t.ctx)
	t.api.watchFrom(ctx, selector, at, show, v.end) //nolint:contextcheck // the watch outlives the batch
	return v, nil
}

// list updates the objects of a view by a most recent read, and returns its version. A child that is
// deleted meanwhile can be shown until the next list: a write to it is not found.
func (t *tracker) list(ctx context.Context, v *childView) (version string, err error) {
	listed := map[types.NamespacedName]bool{}
	version, err = t.api.list(ctx, v.selector, func(m *metav1.PartialObjectMetadata) error {
		listed[keyFor(m)] = true
		v.show(t.strip(m), true)
		return nil
	})
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.objects, func(key types.NamespacedName, m *metav1.PartialObjectMetadata) bool {
		return !listed[key] && !isLater(m.ResourceVersion, version)
	})
	return version, nil
}

// changed updates the view after a change that the watch shows.
func (v *childView) changed(m *metav1.PartialObjectMetadata, exists bool) {
	v.show(m, exists)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at = m.ResourceVersion
}

// show updates an object of the view.
func (v *childView) show(m *metav1.PartialObjectMetadata, exists bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if known := v.objects[keyFor(m)]; known != nil && isLater(known.ResourceVersion, m.ResourceVersion) {
		return // from before a write of ours
	}
	if exists && metav1.GetControllerOfNoCopy(m) != nil {
		v.objects[keyFor(m)] = m
	} else {
		delete(v.objects, keyFor(m))
	}
}

// wrote updates an object of the view after a write to it, which the watch shows later: another batch
// must not repeat the write.
func (v *childView) wrote(m *metav1.PartialObjectMetadata) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.objects[keyFor(m)]
	switch {
	case known == nil || !isLater(m.ResourceVersion, known.ResourceVersion):
	case metav1.GetControllerOfNoCopy(m) == nil: // it was orphaned meanwhile
		delete(v.objects, keyFor(m))
	default:
		v.objects[keyFor(m)] = m
	}
}

func (v *childView) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.isEnded = true
}

func (v *childView) hasEnded() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.isEnded
}

// hasReached reports whether the view shows all changes up to a version.
func (v *childView) hasReached(version string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return version == v.at || isLater(v.at, version)
}

// isOpen reports whether the view shows the changes of all objects that match a selector.
func (v *childView) isOpen(selector string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.isEnded && (v.selector == selector || v.selector == "")
}

// of returns the children of the main objects of a batch.
func (v *childView) of(b batch) []*metav1.PartialObjectMetadata {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []*metav1.PartialObjectMetadata
	for _, m := range v.objects {
		if b[metav1.GetControllerOfNoCopy(m).UID] != nil {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *metav1.PartialObjectMetadata) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}
