package preserve

import (
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/txn"
)

// Edits has the keys that users have edited on each live incarnation, as far as a process that watches
// Nodes has seen that since its last gap, and since the labels were restored. The final state of a Node
// does not show what users have removed. The zero value has none. It is not safe for concurrent use.
type Edits struct{ byUID map[types.UID]labels.Keys }

// Observe updates the edits by an event that was observed, and adds those of an incarnation that it
// ends to its transaction.
func (e *Edits) Observe(before, after *nodeview.Node, transactions []txn.Transaction) {
	switch {
	case before == nil:
	case after == nil:
		for i, t := range transactions {
			transactions[i].Edited = t.Edited.Union(e.byUID[before.UID])
		}
		e.set(before.UID, "")
	case after.UID == before.UID:
		e.set(before.UID, EditedSince(e.byUID[before.UID], before, after))
	default: // the watch missed the end
		e.ObserveAfterGap(before, transactions)
	}
}

// ObserveAfterGap forgets the edits of an incarnation: agents may have set and removed labels in
// between, or they may have been restored. Of its end, the last state that was seen is not the final
// one.
func (e *Edits) ObserveAfterGap(before *nodeview.Node, transactions []txn.Transaction) {
	if before != nil {
		e.set(before.UID, "")
	}
	for i := range transactions {
		transactions[i].Edited = ""
	}
}

func (e *Edits) set(uid types.UID, edited labels.Keys) {
	if edited == "" {
		delete(e.byUID, uid)
		return
	}
	if e.byUID == nil {
		e.byUID = map[types.UID]labels.Keys{}
	}
	e.byUID[uid] = edited
}
