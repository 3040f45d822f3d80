package protection

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// lateEdits holds the ends of Nodes that were edited while they were being deleted. Such an edit
// may have come between the write that removed the [Finalizer] and the delete, and possibly no
// watcher runs. So every process that protects nodes keeps the ends that its own watch delivers
// until their labels are stored. It also keeps those of edited Nodes that may never have got their
// labels, because then the edits are saved only from the final state. The zero value is empty and ready
// to use. It is safe for concurrent use.
//
// A gap in the watch goes unnoticed: what agents have taken over and removed within it looks like an
// edit, until the labels are restored.
type lateEdits struct {
	mu     sync.Mutex
	seen   preserve.Edits               // of all Nodes that exist
	edited map[types.UID]bool           // Nodes that are being deleted and still exist
	ends   map[string][]txn.Transaction // by node, oldest first, never empty
}

// observe processes an event of a Node that exists; before is nil if the Node is new to the cache.
func (l *lateEdits) observe(before, after *nodeview.Node) {
	if before != nil && before.UID != after.UID { // the watch missed a delete and a create
		l.end(before, nil, false)
		before = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen.Observe(before, after, nil)
	if after.Unselected || !after.IsDeleting() || before != nil && before.Marker == after.Marker && maps.Equal(before.Labels, after.Labels) {
		return
	}
	if l.edited == nil {
		l.edited = map[types.UID]bool{}
	}
	l.edited[after.UID] = true
}

// end processes the delete of a Node, given its record, nil if none is known. If the watch missed the
// final state, n is an earlier one.
func (l *lateEdits) end(n *nodeview.Node, r *record.Record, isFinal bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.endOf(n, isFinal)
	isLate := l.edited[n.UID] || t.Edited != "" && !preserve.NotesEnding(t, r)
	delete(l.edited, n.UID)
	if isLate && !n.Unselected {
		t.ObservedAt = time.Now()
		if l.ends == nil {
			l.ends = map[string][]txn.Transaction{}
		}
		l.ends[n.Name] = append(l.ends[n.Name], t)
	}
}

// endOf returns the end of a Node, with what users have edited. mu must be held.
func (l *lateEdits) endOf(n *nodeview.Node, isFinal bool) txn.Transaction {
	ends := []txn.Transaction{txn.EndSeen(n, isFinal)}
	if isFinal {
		l.seen.Observe(n, nil, ends)
	} else {
		l.seen.ObserveAfterGap(n, ends)
	}
	return ends[0]
}

func (l *lateEdits) has(node string) bool {
	_, ok := l.oldest(node)
	return ok
}

func (l *lateEdits) oldest(node string) (t txn.Transaction, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ends[node]) == 0 {
		return txn.Transaction{}, false
	}
	return l.ends[node][0], true
}

// removeOldest removes the oldest end of a node. Only one worker at a time works on a node, so it
// is the end that oldest returned.
func (l *lateEdits) removeOldest(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends[node] = l.ends[node][1:]; len(l.ends[node]) == 0 {
		delete(l.ends, node)
	}
}
