package simulation

// creates is the action on a node that does not exist.
const creates = deletes

// deletesProtected: a protected Node is saved and then deleted.
func deletesProtected(s *script) {
	s.user(creates)
	s.turns("P1", 2) // a watcher also waits for processors that protect nodes
	s.turns("P2", 2)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.user(deletes)
}

// notesLate: a processor reads a Node while another processor notes its restore, and then stalls
// until the next incarnation has its labels, too. These labels have the same version, since no
// watcher saw the end in between.
func notesLate(s *script) {
	s.user(creates)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.user(deletes)
	s.until("W1", "records deleted u1")
	s.until("P1", "removes deleted u1")
	s.user(creates)
	s.until("W1", "records added u2")
	s.crashes("W1")
	s.turns("N", 1) // takes its Lease over
	s.until("P1", "reads the Node: u2")
	s.turns("P1", 1) // reads the record
	s.until("P2", "restores u2")
	s.until("P2", "stores")
	s.until("P1", "conflict")
	s.until("P1", "reads the Node: u2")
	s.user(deletes, creates)
	s.until("W1", "records added u3")
	s.until("P2", "restores u3")
	s.until("P2", "stores")
	s.turns("P1", 1)
}

// joinsDuringAList: a watcher joins while another one waits for the answer to its list. After the
// earlier watcher is gone, only the new one has seen the end of the last incarnation.
func joinsDuringAList(s *script) {
	s.user(creates)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.turns("W2", 1) // joins
	s.until("W3", "lists u1")
	s.turns("W1", 1) // receives the current revision of the API server
	s.user(edits, deletes, creates)
	s.until("W2", "lists u2")
	s.turns("W3", 3) // asks, and processes the edit, the end and the next incarnation
	s.turns("W1", 1) // answers, and stores nothing
	s.turns("W2", 1) // answers
	s.until("W3", "starts")
	s.crashes("W1")
	s.turns("N", 1) // takes its Lease over
	s.turns("W2", 4)
	s.turns("P1", 10)
}

// letsGoAfterARemoval: a processor stalls before it releases a Node. Meanwhile the record is
// removed, and a Node without the finalizer is created and deleted. The Node that the processor
// then releases is the following incarnation.
func letsGoAfterARemoval(s *script) {
	deletesProtected(s)
	s.turns("P1", 1)
	s.until("P2", "takes the finalizer of u1")
	s.world.removeRecord(s.world.record, s.world.node, s.world.liveNode(), s.world.rv)
	s.world.createNode(map[string]string{"bare": "1"}, nil)
	s.world.deleteNode()
	s.until("W1", "records deleted u2")
	s.user(creates, deletes)
	s.until("P1", "lets u3")
	s.turns("P1", 10)
}

// closesAgainInAGap: a closed gate is opened and closed again in a gap of all watches.
func closesAgainInAGap(s *script) {
	s.user(creates)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.until("W2", "lists u1")
	s.turns("W2", 2) // asks
	s.turns("W1", 2) // answers
	s.until("W2", "starts")
	s.user(closesGate)
	s.until("W1", "records added u1")
	s.turns("W2", 4)
	s.until("P1", "opens the gate")
	s.until("P1", "removes added u1")
	s.user(edits, closesGate) // with the same labels, the node would be compared with its record
	for _, w := range s.watchers[:2] {
		w.relist()
	}
	s.turns("W1", 4)
	s.turns("W2", 4)
	s.turns("P1", 10)
}

// closesAgainWhileItOpens: the startup taint is removed by hand, and a processor reads the Node.
// Before it opens the gate, the gate is closed again.
func closesAgainWhileItOpens(s *script) {
	s.user(creates)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.user(closesGate)
	s.until("W1", "records added u1")
	s.user(removesTaint)
	s.until("P1", "reads the Node: u1")
	s.user(closesGate)
	s.turns("P1", 10)
}

// endsBeforeTheNote: a processor restores labels and crashes before it notes the restore. A user
// removes the label of the machine's agents, and the node is deleted.
func endsBeforeTheNote(s *script) {
	deletesProtected(s)
	s.until("P1", "takes the finalizer of u1")
	s.user(creates, agentSets)
	s.until("W1", "records added u2")
	s.until("P1", "restores u2")
	s.crashes("P1")
	s.user(overrules, deletes)
	s.until("W1", "records updated u2")
	s.until("P2", "takes the finalizer of u2")
	s.user(creates, agentSets)
	s.turns("P2", 10)
}

// admittedTooEarly: a Node is edited and deleted before it has the finalizer. The webhook admits
// the next one with the record from before the edit, and that Node is deleted and released while
// the edit waits in the queue.
func admittedTooEarly(s *script) {
	s.until("W1", "lists none")
	s.world.createNode(map[string]string{"base": "1"}, nil)
	s.until("W1", "records added u1")
	s.user(edits, deletes)
	s.until("P1", "removes added u1")
	s.admits(map[string]string{"base": "1"})
	s.user(deletes)
	s.until("W1", "records added u2")
	s.until("P1", "takes the finalizer of u2")
	s.user(creates)
}

// returnsThenRestarts: a backup of a record takes the place of the one that was restored onto the
// live Node. Then a watcher starts, and compares the two.
func returnsThenRestarts(s *script) {
	s.user(creates)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.user(edits)
	s.until("W1", "records updated u1")
	s.until("P1", "removes updated u1")
	s.user(deletes, creates)
	s.until("W1", "records added u2")
	s.until("P1", "removes added u2")
	for _, name := range []string{"W1", "W2", "P1", "P2", "W2", "P2", "P1"} {
		s.turns(name, maxTurns)
	}
	s.user(edits)
	for range 3 {
		for _, name := range []string{"W1", "W2", "P1", "P2"} {
			s.turns(name, maxTurns)
		}
	}
	s.user(returnsBackup)
	s.crashes("W2")
	s.turns("W2", maxTurns)
}

// releasedAsSaved: a restored Node is being deleted when a processor notes its restore, and another
// processor lets it go in this state. With no watcher, the next Node is edited and ends before its
// restore.
func releasedAsSaved(s *script) {
	deletesProtected(s)
	s.until("P1", "takes the finalizer of u1")
	s.user(creates)
	s.until("W1", "records added u2")
	s.until("P1", "restores u2")
	s.until("P2", "takes added u2")
	s.crashes("P1") // before the note
	s.turns("P1", 1)
	s.user(deletes)
	s.until("P2", "stores")
	s.until("P1", "takes the finalizer of u2")
	s.crashes("W1")
	s.user(creates)
	s.user(heartbeats, edits, deletes) // an edit in the second of the creation is not visible
	s.until("P1", "takes the finalizer of u3")
	s.user(creates)
	s.turns("P1", 10)
}
