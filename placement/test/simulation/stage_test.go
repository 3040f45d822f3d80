package simulation

import "slices"

// stage is a simulation with a fixed schedule. Nothing is random: the steps follow each other.
type stage struct {
	*simulation
	lagging [2][kinds]bool // the kinds whose changes a leader does not see
	stalled func()         // a write that a leader has computed but not sent yet
}

// step is one step of a story.
type step func(s *stage)

// The leaders, pods and processes of a story. The process of a pod has the pod's number.
const (
	leader1, leader2 = 0, 1
	pod0, pod1       = 0, 1
	newPod0          = 2 // the process in the replacement of pod0
)

// playWith plays steps from the start and returns the promise that was broken, if any. The settings
// are as a rule those of small: there are one resource with one desired vreplica and two pods.
func playWith(narrow func(*settings), m *mutant, steps []step) (*stage, error) {
	directed := *m
	directed.narrow = narrow
	s := &stage{simulation: newSimulation(directed)}
	s.reset(nil, true)
	for _, do := range steps {
		if s.world.broken == nil {
			do(s)
		}
	}
	return s, s.world.broken
}

// at starts a turn of a leader that has seen everything except the kinds in which it lags.
func (s *stage) at(who int) *leader {
	l := s.leaders[who]
	l.turn++
	for k := range kinds {
		if !s.lagging[who][k] {
			l.sync(s.world, k, len(s.world.log[k]))
		}
	}
	return l
}

// sends performs the write that a leader has computed, and reports whether there was one.
func (l *leader) sends() bool {
	write := l.pending
	if l.pending = nil; write == nil {
		return false
	}
	write()
	return true
}

// looks advances the caches of a leader.
func looks(who int) step {
	return func(s *stage) {
		s.lagging[who] = [kinds]bool{}
		s.at(who)
	}
}

// lags stops one cache of a leader.
func lags(who int, what kind) step { return func(s *stage) { s.lagging[who][what] = true } }

func decides(who int) step {
	return func(s *stage) {
		l := s.at(who)
		l.decide(0)
		l.sends()
	}
}

func releases(who int) step {
	return func(s *stage) {
		l := s.at(who)
		l.release(0)
		l.sends()
	}
}

func reports(who int) step {
	return func(s *stage) {
		l := s.at(who)
		l.report(0)
		l.sends()
	}
}

// builds creates the contract of a pod if there is none, and writes it.
func builds(who, name int) step {
	return func(s *stage) {
		for range 2 {
			l := s.at(who)
			if l.build(name); !l.sends() {
				return
			}
		}
	}
}

// stalls computes the contract of a pod. The write arrives later.
func stalls(who, name int) step {
	return func(s *stage) {
		l := s.at(who)
		l.build(name)
		s.stalled, l.pending = l.pending, nil
		s.world.record("%s computes the contract of %s, and stalls", l.name, podName(name))
	}
}

func wakesUp(s *stage) {
	if s.stalled != nil {
		s.world.record("the stalled leader resumes")
		s.stalled()
	}
}

// acts gives a process one turn: it joins, or it carries out its contract and acknowledges it.
func acts(who int) step {
	return func(s *stage) {
		if who < len(s.processes) {
			s.processes[who].next()
		}
	}
}

// leavesOrReturns makes a pod leave the pool or return to it.
func leavesOrReturns(name int) step { return func(s *stage) { s.leave(name) } }

// deletesOnPod0 deletes the contract or the Lease of pod 0.
func deletesOnPod0(what kind) step {
	return func(s *stage) {
		s.world.record("the %s of %s is deleted", kindText[what], podName(pod0))
		s.world.store(what, pod0, nil)
	}
}

// isReplaced starts a new pod of the name of pod 0. The old process still runs, on an unreachable
// node.
func isReplaced(s *stage) {
	s.newPod(pod0)
	s.world.record("%s is replaced, and its process still runs", s.processes[pod0])
}

// isCutOff cuts a process off from the API server, or reconnects it.
func isCutOff(who int) step {
	return func(s *stage) {
		p := s.processes[who]
		p.cut = !p.cut
		s.world.record("%s is cut off: %v", p, p.cut)
	}
}

// isTerminating deletes the pod of a process: its next turn stops the workers, and the one after
// that releases the Lease.
func isTerminating(who int) step {
	return func(s *stage) {
		p := s.processes[who]
		s.world.record("%s is terminating", p)
		p.leaves = true
	}
}

// wants changes the desired number of vreplicas.
func wants(count int32) step {
	return func(s *stage) {
		next := *s.world.resource(0)
		next.wanted, next.generation, next.rv = count, next.generation+1, s.world.nextRV()
		s.world.record("the author wants %d of %s", count, next.uid)
		s.world.store(resourceKind, 0, &next)
	}
}

// isRestarted makes a process release its Lease and join again, as when its container restarts.
func isRestarted(who int) step {
	return func(s *stage) {
		p := s.processes[who]
		s.world.record("%s releases its Lease, and returns", p)
		p.leaves, p.returns = true, true
	}
}

// isDeleted deletes the pod of a process, which gets SIGTERM.
func isDeleted(who int) step { return func(s *stage) { s.processes[who].terminate() } }

// collects lets the garbage collector look at an object of pod 0.
func collects(what kind) step {
	return func(s *stage) {
		s.garbage.syncAll(s.world)
		s.garbage.collect(what, pod0)
	}
}

// renewsLate makes a process renew its Lease when that is due. The write is in flight for a long
// time.
func renewsLate(who int) step {
	return func(s *stage) {
		s.passTime(leaseDuration / 3)
		s.settings.lateWrites = 64
		s.processes[who].next()
		s.settings.lateWrites = 0
	}
}

func lateWritesArrive(s *stage) {
	s.world.record("late writes arrive")
	for _, write := range s.world.late {
		write()
	}
	s.world.late = nil
}

func crashes(who int) step  { return func(s *stage) { s.processes[who].crash() } }
func isFrozen(who int) step { return func(s *stage) { s.processes[who].frozen = true } }

// watches lets a leader look at the Leases of all pods.
func watches(who int) step {
	return func(s *stage) {
		l := s.at(who)
		for name := range s.settings.pods {
			l.watch(name)
			l.sends()
		}
	}
}

// timePasses lets a leader watch the Leases for longer than a takeover takes, while processes renew
// theirs.
func timePasses(who int) step {
	return func(s *stage) {
		s.world.record("time passes")
		for range quiet {
			s.passTime(1)
			for _, p := range s.processes {
				if p.incarnation != "" {
					p.next()
				}
			}
			l := s.at(who)
			for name := range s.settings.pods {
				l.watch(name)
				l.sends()
			}
		}
	}
}

// without returns all steps except one.
func without(steps []step, at int) []step { return slices.Delete(slices.Clone(steps), at, at+1) }
