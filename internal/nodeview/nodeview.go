// Package nodeview defines nodekeeper's view of a Node: which of its labels count, who owns them,
// and whether the Node is selected. Every reader of Nodes gets a [Node], which only a [View] makes.
// The package is pure.
package nodeview

import (
	"fmt"
	"slices"

	apilabels "k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/agents"
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

// Selects reports whether the selector matches all labels of a node.
func (v View) Selects(own map[string]string) bool {
	return v.Selector == nil || v.Selector.Matches(apilabels.Set(own))
}
