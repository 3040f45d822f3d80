package inspect

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
)

// Board has summaries of all nodes that match a selector, which watches keep current. It is not
// safe for concurrent use.
type Board struct {
	selector apilabels.Selector
	live     map[string]nodeSummary
	records  map[string]savedSummary
	// pending has the names of each node's transactions, with the time of the deletion if it is
	// one.
	pending map[string]map[string]time.Time
}

// NewBoard returns an empty board.
func NewBoard(selector apilabels.Selector) *Board {
	return &Board{selector: selector, live: map[string]nodeSummary{}, records: map[string]savedSummary{}, pending: map[string]map[string]time.Time{}}
}

// SetNode sets the current Node.
func (b *Board) SetNode(n *metav1.PartialObjectMetadata) {
	b.live[n.Name] = summarizeNode(n, b.selector)
}

// RemoveNode removes a Node.
func (b *Board) RemoveNode(name string) { delete(b.live, name) }

// SetRecord sets the current record. A floor removes the record.
func (b *Board) SetRecord(cm *corev1.ConfigMap) {
	if s, saves := summarizeRecord(cm, b.selector); saves {
		b.records[cm.Name] = s
		return
	}
	b.RemoveRecord(cm.Name)
}

// RemoveRecord removes the record of a node.
func (b *Board) RemoveRecord(name string) { delete(b.records, name) }

// SetPending sets a pending transaction.
func (b *Board) SetPending(p Pending) {
	if b.pending[p.Node] == nil {
		b.pending[p.Node] = map[string]time.Time{}
	}
	b.pending[p.Node][p.Name()] = deletedAt(p)
}

// RemovePending removes a pending transaction.
func (b *Board) RemovePending(p Pending) {
	delete(b.pending[p.Node], p.Name())
	if len(b.pending[p.Node]) == 0 {
		delete(b.pending, p.Node)
	}
}

// Summary returns the summary of a node, and false if no object of the node matches.
func (b *Board) Summary(name string) (Summary, bool) {
	live, isLive := b.live[name]
	saved, isSaved := b.saved(name)
	if isLive && !live.isMatched || !isLive && (!isSaved || !saved.isMatched) {
		return Summary{}, false
	}
	return summarize(name, live, saved, slices.Collect(maps.Values(b.pending[name]))), true
}

// saved returns the record of a node. Another program's ConfigMap counts only if it keeps a node
// from having a record.
func (b *Board) saved(name string) (savedSummary, bool) {
	saved, isSaved := b.records[name]
	if _, isLive := b.live[name]; isSaved && saved.isForeign && !isLive && len(b.pending[name]) == 0 {
		return savedSummary{}, false
	}
	return saved, isSaved
}

// Has reports whether there is a Node or a record of this name, whether it matches or not.
func (b *Board) Has(name string) bool {
	_, isLive := b.live[name]
	_, isSaved := b.saved(name)
	return isLive || isSaved
}

// All returns the summaries of all nodes by name.
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
