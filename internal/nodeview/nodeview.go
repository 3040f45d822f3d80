// Package nodeview defines nodekeeper's view of a Node: which of its labels count, who owns them,
// and whether the Node is selected. Every reader of Nodes applies it. The package is pure.
package nodeview

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/nodeview/identity"
)

// View is nodekeeper's view of Nodes. The zero value includes every label and treats all as set by
// users. It is safe for concurrent use.
type View struct {
	// Agents are the field managers whose labels belong to the machine.
	Agents agents.Managers
	// Ignored are labels outside the view: they are never saved, restored or removed.
	Ignored labels.Patterns
	// MachineBound selects the labels that belong to a machine and not to the name of a node.
	MachineBound labels.MachineBound
	// Preserved selects the annotations and taints that are included among the labels, see
	// [labels.TaintKey].
	Preserved Preserved
	// Selector selects nodes by all of their labels; nil selects all nodes.
	Selector apilabels.Selector
}

// unselected is an in-memory annotation on Nodes that the selector does not match.
const unselected = "nodekeeper.dev/not-selected"

// Parse returns the view for the flags --machine-managers, --ignore-labels and --node-selector.
// Errors name the flag.
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
		return View{}, fmt.Errorf("--ignore-labels: %q matches %s, which nodekeeper uses to mark nodes that have their labels", ignored, labels.Marker)
	}
	if selector == "" {
		return View{Agents: m, Ignored: i}, nil
	}
	s, err := apilabels.Parse(selector)
	if err != nil {
		return View{}, fmt.Errorf("--node-selector %q: %w: write it as for kubectl get -l", selector, err)
	}
	if requirements, _ := s.Requirements(); slices.ContainsFunc(requirements, func(r apilabels.Requirement) bool { return r.Key() == labels.Marker }) {
		return View{}, fmt.Errorf("--node-selector %q: nodekeeper itself sets %s, so every restore would change whether the node matches", selector, labels.Marker)
	}
	return View{Agents: m, Ignored: i, Selector: s}, nil
}

// Selected reports whether a Node, after [View.Apply], matches the selector.
func Selected(n *metav1.PartialObjectMetadata) bool {
	_, isNot := n.Annotations[unselected]
	return !isNot
}

// Apply reduces a Node, in memory, to the view. It records whether the Node is selected, removes
// ignored labels, records who owns the others, see [agents.Managers.Stamp], and adds the preserved
// annotations to the labels, with the keys of [labels.AnnotationKey]. It clears the identity, see
// [identity.Note]. Writes to a Node never touch labels outside the view.
func (v View) Apply(n *metav1.PartialObjectMetadata) {
	delete(n.Annotations, taintsAnnotation) // anyone who may patch the Node can set it
	v.apply(n)
}

// Whole applies the view to a whole Node, as [View.Apply] does, and returns its metadata. The
// labels include the preserved taints, and [Taints] returns all taints. The result shares the maps
// of the Node, which it changes.
func (v View) Whole(whole *corev1.Node) (*metav1.PartialObjectMetadata, error) {
	n := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: whole.ObjectMeta}
	if err := noteTaints(n, whole.Spec.Taints); err != nil {
		return nil, err
	}
	v.apply(n)
	return n, nil
}

// notePrefix is the prefix of the in-memory annotations that a view adds.
const notePrefix = "nodekeeper.dev/"

// StripAnnotations removes all annotations except the view's own from a Node, to save memory. It
// also drops the taints, so [Taints] reports false afterwards.
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

// Selects reports whether the selector matches all labels of a node.
func (v View) Selects(own map[string]string) bool {
	return v.Selector == nil || v.Selector.Matches(apilabels.Set(own))
}

func (v View) apply(n *metav1.PartialObjectMetadata) {
	delete(n.Annotations, unselected) // anyone who may patch the Node can set it
	if !v.Selects(n.Labels) {
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
