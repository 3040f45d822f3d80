package simulation

// registers creates the Node of a machine, which has reported its identity or will later.
func (s *script) registers(m machine, hasReported bool) {
	s.user(creates)
	s.world.machine, s.world.hasReported = m, hasReported
	s.world.ghost.by[s.world.incarnation].machine = m
}

// ends deletes the Node, and lets its end be recorded and saved.
func (s *script) ends(node string) {
	s.user(deletes)
	s.until("W1", "records deleted "+node)
	s.until("P1", "removes deleted "+node)
}

// anothersLabels: a Node that was created by hand is trusted. A machine takes its name and gets the
// label, as the former Node had no other identity. A processor crashes before it notes that, and
// another machine comes.
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

// trustedNoMore: a label is restored onto a machine that reports its identity late, and a user
// removes it before the watcher has stored its presence. Then the machine returns.
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
	s.user(reportsMachine)
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

// putBackAndNotNoted: a label is restored onto a machine that reports its identity late, the
// processor crashes before it notes that, and a user removes the label.
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
	s.user(reportsMachine)
	s.until("P1", "restores u2")
	s.crashes("P1")
	s.user(removesTrust)
	s.turns("P2", 12)
}
