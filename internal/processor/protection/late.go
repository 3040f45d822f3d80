package protection

import (
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/txn"
)

// lateEdits are the ends of Nodes that were edited while they were being deleted. The edit may have
// come between the write that removed the [Finalizer] and the delete, and there may be no watcher.
// So every process that protects nodes keeps what its own watch shows until that is stored. The
// zero value has none. It is safe for concurrent use.
type lateEdits struct {
	mu     sync.Mutex
	edited map[types.UID]bool           // Nodes that are being deleted and have not ended
	ends   map[string][]txn.Transaction // by node, oldest first, none is empty
}

// see takes an event of a Node that is there; before is nil if it was not seen before.
func (l *lateEdits) see(before, after *metav1.PartialObjectMetadata) {
	if before != nil && before.UID != after.UID { // the watch missed the end of one and the start of the other
		l.end(before)
		before = nil
	}
	if !nodeview.Selected(after) || after.DeletionTimestamp == nil || before != nil && maps.Equal(before.Labels, after.Labels) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.edited == nil {
		l.edited, l.ends = map[types.UID]bool{}, map[string][]txn.Transaction{}
	}
	l.edited[after.UID] = true
}

// end takes the end of a Node. If the watch missed it, n is the last that was seen.
func (l *lateEdits) end(n *metav1.PartialObjectMetadata) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasEdited := l.edited[n.UID]
	delete(l.edited, n.UID)
	if wasEdited && nodeview.Selected(n) {
		t := txn.EndSeen(n)
		t.ObservedAt = time.Now()
		l.ends[n.Name] = append(l.ends[n.Name], t)
	}
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

// removeOldest removes the oldest end. The controller runs one worker per node, so nobody else
// removes it meanwhile.
func (l *lateEdits) removeOldest(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends[node] = l.ends[node][1:]; len(l.ends[node]) == 0 {
		delete(l.ends, node)
	}
}
