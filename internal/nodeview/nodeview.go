// Package nodeview says what nodekeeper sees of a Node: which of its labels count, and whose they
// are, and whether the Node is looked after. Whatever reads a Node applies it. The package is pure.
package nodeview

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/labels"
)

// View is what nodekeeper sees of a Node. The zero value sees every label, and takes all for labels
// that people set. It is safe for concurrent use.
type View struct {
	// Agents are the managers of the labels that are the machine's.
	Agents agents.Managers
	// Ignored are the labels that are not seen: they are neither saved nor restored nor removed.
	Ignored labels.Patterns
	// Preserved selects the annotations and taints that are seen among the labels, see
	// [labels.TaintKey].
	Preserved Preserved
	// Selector selects the nodes that are looked after, by all of their labels; nil selects all.
	Selector apilabels.Selector
}

// unselected is the annotation, in memory only, of a Node that the selector does not match.
const unselected = "nodekeeper.dev/not-selected"

// Parse returns the view of the flags --machine-managers, --ignore-labels and --node-selector. An
// error names the flag.
func Parse(managers, ignored, selector string) (View, error) {
	m, err := agents.Parse(managers)
	if err != nil {
		return View{}, fmt.Errorf("--machine-managers: %w", err)
	}
	i, err := labels.ParsePatterns(ignored)
	if err != nil {
		return View{}, fmt.Errorf("--ignore-labels: %w", err)
	}
	if i.Match(labels.Marker) {
		return View{}, fmt.Errorf("--ignore-labels: %q matches %s, by which nodekeeper knows that a node has its labels", ignored, labels.Marker)
	}
	if selector == "" {
		return View{Agents: m, Ignored: i}, nil
	}
	s, err := apilabels.Parse(selector)
	if err != nil {
		return View{}, fmt.Errorf("--node-selector %q: %w: write it as for kubectl get -l", selector, err)
	}
	if requirements, _ := s.Requirements(); slices.ContainsFunc(requirements, func(r apilabels.Requirement) bool { return r.Key() == labels.Marker }) {
		return View{}, fmt.Errorf("--node-selector %q: nodekeeper itself sets %s, so every node would begin or cease to match by its restore", selector, labels.Marker)
	}
	return View{Agents: m, Ignored: i, Selector: s}, nil
}

// Selected reports whether a Node to which a view was applied is looked after.
func Selected(n *metav1.PartialObjectMetadata) bool {
	_, isNot := n.Annotations[unselected]
	return !isNot
}

// Apply changes a Node in memory: it notes whether the Node is looked after, takes the ignored labels
// off, and notes whose the others are, see [agents.Managers.Stamp]. What the Node is noted to say of
// its machine is forgotten, see [identity.Note]. No write to a Node touches a label that was not seen.
// It adds the annotations that are kept to the labels, under the keys of [labels.AnnotationKey].
func (v View) Apply(n *metav1.PartialObjectMetadata) {
	delete(n.Annotations, taintsAnnotation) // whoever may patch the Node can write it
	v.apply(n)
}

// Whole applies the view to a whole Node, as [View.Apply] does, and returns its metadata. The labels
// include the taints that are kept, and [Taints] returns all of them. The result shares the maps of
// the Node, which it changes.
func (v View) Whole(whole *corev1.Node) (*metav1.PartialObjectMetadata, error) {
	n := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: whole.ObjectMeta}
	if err := noteTaints(n, whole.Spec.Taints); err != nil {
		return nil, err
	}
	v.apply(n)
	return n, nil
}

// notePrefix begins the keys of the annotations, in memory only, in which a view notes what it saw.
const notePrefix = "nodekeeper.dev/"

// StripAnnotations removes from a viewed Node all annotations but the notes of the view, to save
// memory. It drops the taints too: [Taints] is not ok afterwards.
func StripAnnotations(n *metav1.PartialObjectMetadata) {
	for key := range n.Annotations {
		if key == taintsAnnotation || !strings.HasPrefix(key, notePrefix) {
			delete(n.Annotations, key)
		}
	}
	if len(n.Annotations) == 0 {
		n.Annotations = nil
	}
}

func (v View) apply(n *metav1.PartialObjectMetadata) {
	delete(n.Annotations, unselected) // whoever may patch the Node can write it
	if v.Selector != nil && !v.Selector.Matches(apilabels.Set(n.Labels)) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, unselected, "")
	}
	for key := range n.Labels {
		if v.Ignored.Match(key) {
			delete(n.Labels, key)
		}
	}
	v.Preserved.add(n)
	identity.Clear(n)
	v.Agents.Stamp(n)
}
