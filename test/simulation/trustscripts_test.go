package simulation

// registers creates the Node of a machine, which says who it is or will later.
func (s *script) registers(m machine, hasSaid bool) {
	s.user(creates)
	s.world.machine, s.world.hasSaid = m, hasSaid
	s.world.ghost.by[s.world.incarnation].machine = m
}

// ends deletes the Node, whose end is recorded and saved.
func (s *script) ends(node string) {
	s.user(deletes)
	s.until("W1", "records deleted "+node)
	s.until("P1", "removes deleted "+node)
}

// anothersLabels: a Node that was made by hand is trusted, a machine takes its name, and gets the label, since the name was all that
// the former Node had. A processor crashes before it notes that. Then another machine comes.
func anothersLabels(s *script) {
	s.registers(byHand, false)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.user(setsTrust)
	s.until("W1", "records updated u1")
	s.until("P1", "removes updated u1")
	s.ends("u1")
	s.registers(machineA, true)
	s.until("W1", "records added u2")
	s.until("P1", "restores u2")
	s.crashes("P1")
	s.until("P2", "removes added u2")
	s.ends("u2")
	s.registers(machineB, true)
	s.until("W1", "records added u3")
	s.until("P1", "restores u3")
}

// trustedNoMore: a label is put back onto a machine that says late who it is, and a person removes it before the watcher has stored that
// it was there. Then the machine comes once more.
func trustedNoMore(s *script) {
	s.registers(machineA, true)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.user(setsTrust)
	s.until("W1", "records updated u1")
	s.until("P1", "removes updated u1")
	s.ends("u1")
	s.registers(machineA, false)
	s.until("W1", "records added u2")
	s.until("P1", "restores u2")
	s.until("P1", "removes added u2")
	s.user(saysMachine)
	s.until("P1", "restores u2")
	s.until("P1", "stores")
	s.user(removesTrust)
	s.until("W1", "records updated u2")
	s.until("P1", "removes updated u2")
	s.ends("u2")
	s.registers(machineA, true)
	s.until("W1", "records added u3")
	s.until("P1", "restores u3")
}

// putBackAndNotNoted: a label is put back onto a machine that says late who it is, the processor crashes before it notes that, and a
// person removes the label.
func putBackAndNotNoted(s *script) {
	s.registers(machineA, true)
	s.until("W1", "records added u1")
	s.until("P1", "removes added u1")
	s.user(setsTrust)
	s.until("W1", "records updated u1")
	s.until("P1", "removes updated u1")
	s.ends("u1")
	s.registers(machineA, false)
	s.until("W1", "records added u2")
	s.until("P1", "restores u2")
	s.until("P1", "removes added u2")
	s.user(saysMachine)
	s.until("P1", "restores u2")
	s.crashes("P1")
	s.user(removesTrust)
	s.turns("P2", 12)
}
