package inspect

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
)

// Board is what there is of all nodes that match a selector, kept up to date by what watches show. It
// is for one goroutine at a time.
type Board struct {
	selector apilabels.Selector
	live     map[string]nodeSummary
	records  map[string]savedSummary
	pending  map[string]int
}

// NewBoard returns an empty board.
func NewBoard(selector apilabels.Selector) *Board {
	return &Board{selector: selector, live: map[string]nodeSummary{}, records: map[string]savedSummary{}, pending: map[string]int{}}
}

// SetNode notes a Node as it is now, and RemoveNode that there is none.
func (b *Board) SetNode(n *metav1.PartialObjectMetadata) {
	b.live[n.Name] = summarizeNode(n, b.selector)
}

// RemoveNode notes that there is no Node of that name.
func (b *Board) RemoveNode(name string) { delete(b.live, name) }

// SetRecord notes a record, or the floor that is left of one, as it is now.
func (b *Board) SetRecord(cm *corev1.ConfigMap) {
	if s, saves := summarizeRecord(cm, b.selector); saves {
		b.records[cm.Name] = s
		return
	}
	b.RemoveRecord(cm.Name)
}

// RemoveRecord notes that nothing is saved of a node.
func (b *Board) RemoveRecord(name string) { delete(b.records, name) }

// AddPending notes that more transactions of a node are pending, or fewer.
func (b *Board) AddPending(name string, more int) {
	if b.pending[name] += more; b.pending[name] <= 0 {
		delete(b.pending, name)
	}
}

// Summary returns what there is of a node. It reports false if there is nothing that matches.
func (b *Board) Summary(name string) (Summary, bool) {
	live, isLive := b.live[name]
	saved, isSaved := b.records[name]
	if isLive && !live.isMatched || !isLive && (!isSaved || !saved.isMatched) {
		return Summary{}, false
	}
	return summarize(name, live, saved, b.pending[name]), true
}

// All returns what there is of all nodes, in the order of their names.
func (b *Board) All() []Summary {
	var all []Summary
	for name := range b.live {
		if s, ok := b.Summary(name); ok {
			all = append(all, s)
		}
	}
	for name := range b.records {
		if _, isLive := b.live[name]; isLive {
			continue
		}
		if s, ok := b.Summary(name); ok {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Summary) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
