package simulation

import (
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
)

// removerActor removes the record of the node at any time, like a user with kubectl nodekeeper
// forget. It ignores pending transactions.
type removerActor struct {
	actor
	busy bool
}

func (a *removerActor) down() { a.busy = false }

// run is one life of a remover.
func (a *removerActor) run() {
	for {
		a.pause()
		if a.choices.happens(a.settings.removals) {
			a.busy = true
			a.remove()
			a.busy = false
		}
	}
}

// remove replaces the record, conditional on the record that was read. It reads the record before
// the Node, so the record cannot belong to a Node that was created later.
func (a *removerActor) remove() {
	var n, live *nodeview.Node
	var now int
	if a.mutant.looksFirst {
		n, live, now = a.world.node, a.world.liveNode(), a.world.rv
		a.pause()
	}
	read := a.world.record
	if !read.hasLabels() {
		return
	}
	if !a.mutant.looksFirst {
		a.pause()
		n, live, now = a.world.node, a.world.liveNode(), a.world.rv
	}
	a.log("must remove version %s, with the Node: %s", read.Revision, nodeText(n))
	a.pause()
	if a.world.removeRecord(read, n, live, now) {
		a.log("removes the record")
	}
}

// removeRecord replaces the record after the Node was read. The decision gets live as the current
// Node.
func (w *world) removeRecord(read *storedRecord, n *nodeview.Node, live *nodeview.Node, now int) bool {
	if w.record != read {
		return false
	}
	next := preserve.Forgotten(nodeName, read.get(), live, rev(now))
	w.nextRV()
	if next.Equal(read.Record) { // the record does not change, so no decision does
		w.setRecord(newStoredRecord(next))
		return true
	}
	w.removals++
	w.ghost.removed(w, n, now)
	if next.Floor && w.leavesNoFloor {
		w.setRecord(nil)
	} else {
		w.setRecord(newStoredRecord(next))
	}
	return true
}
