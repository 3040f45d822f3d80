// Package nodeview says what nodekeeper sees of a Node: which of its labels count, and whose they
// are. Whatever reads a Node applies it. The package is pure.
package nodeview

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/agents"
	"nodekeeper.dev/internal/labels"
)

// View is what nodekeeper sees of a Node. The zero value sees every label, and takes all for labels
// that people set. It is safe for concurrent use.
type View struct {
	// Agents are the managers of the labels that are the machine's.
	Agents agents.Managers
	// Ignored are the labels that are not seen: they are neither saved nor restored nor removed.
	Ignored labels.Patterns
}

// Parse returns the view of the flags --machine-managers and --ignore-labels. An error names the
// flag.
func Parse(managers, ignored string) (View, error) {
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
	return View{Agents: m, Ignored: i}, nil
}

// Apply changes a Node in memory: it takes the ignored labels off, and notes whose the others are, see
// [agents.Managers.Stamp]. No write to a Node touches a label that was not seen.
func (v View) Apply(n *metav1.PartialObjectMetadata) {
	for key := range n.Labels {
		if v.Ignored.Match(key) {
			delete(n.Labels, key)
		}
	}
	v.Agents.Stamp(n)
}
