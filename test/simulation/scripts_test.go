package simulation

// creates stands for the create of a node that is not there.
const creates = deletes

// notesLate: a processor reads a Node whose restore is noted by another one, and then stands still until the next incarnation has its
// labels, too. The labels are those of the same version, since no watcher saw the end between.
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

// joinsDuringAList: a watcher joins while another one waits for the answer to its list. When the one that was there before is gone,
// only the one that has joined knows the end of the last incarnation.
func joinsDuringAList(s *script) {
	s.user(creates)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.turns("W2", 1) // joins
	s.until("W3", "lists u1")
	s.turns("W1", 1) // is told how far the API server is
	s.user(edits, deletes, creates)
	s.until("W2", "lists u2")
	s.turns("W3", 3) // asks, and takes in the edit, the end and the next incarnation
	s.turns("W1", 1) // answers, and stores nothing
	s.turns("W2", 1) // answers
	s.until("W3", "starts")
	s.crashes("W1")
	s.turns("N", 1) // takes its Lease over
	s.turns("W2", 4)
	s.turns("P1", 10)
}

// letsGoAfterARemoval: a processor stands still while it is to let a Node go. Meanwhile the record is removed, a Node without the
// finalizer comes and goes, and the Node that is let go then is of the incarnation after that.
func letsGoAfterARemoval(s *script) {
	s.user(creates)
	s.turns("P1", 2) // a watcher waits for those that protect nodes, too
	s.turns("P2", 2)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.user(deletes)
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

// closesAgainInAGap: a gate that was closed is opened and closed again in a gap of all watches.
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
	s.user(edits, closesGate) // with the same labels, the node is compared with its record
	for _, w := range s.watchers[:2] {
		w.relist()
	}
	s.turns("W1", 4)
	s.turns("W2", 4)
	s.turns("P1", 10)
}

// endsBeforeTheNote: a processor puts labels back and crashes before it notes that. A person
// removes what the agents of the machine had set, and the node is deleted.
func endsBeforeTheNote(s *script) {
	s.user(creates)
	s.turns("P1", 2) // a watcher waits for those that protect nodes, too
	s.turns("P2", 2)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.user(deletes)
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

// admittedTooEarly: a Node is edited and deleted before it has the finalizer. The webhook answers
// for the next one by the record of before the edit, and that one is deleted and let go while the
// edit waits in the queue.
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
