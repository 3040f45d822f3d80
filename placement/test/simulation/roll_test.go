package simulation

// gracePeriod is how long a pod that is deleted may take to end, in seconds. It is shorter than in
// a cluster, so that it also ends while something goes wrong.
const gracePeriod = 12

// roll is a rolling update of the StatefulSet: one pod after the other, the last one first, is
// deleted and made again under its name, and must work before the next one is deleted.
type roll struct {
	on      bool
	name    int    // the pod that is rolled
	deleted string // the UID of the pod that was deleted
	ordered bool   // no pod is deleted by force
}

// roll takes one step of the controller of the StatefulSet.
func (s *simulation) roll() {
	r := &s.rolling
	if !r.on {
		*r = roll{on: true, name: s.settings.pods - 1, ordered: s.choices.Next(4) != 3}
		s.world.record("a roll begins")
		return
	}
	p, pd := s.present(r.name), s.world.pod(r.name)
	switch {
	case pd.removed:
		*r = roll{on: r.name > 0, name: r.name - 1, ordered: r.ordered}
	case r.deleted == "":
		r.deleted = pd.uid
		p.terminate()
	case r.deleted != pd.uid:
		if p.incarnation != "" {
			s.count.rolled++
			*r = roll{on: r.name > 0, name: r.name - 1, ordered: r.ordered}
		}
	case !p.alive:
		s.remakeEnded()
	case !r.ordered && len(s.processes) < 2*pods:
		s.world.record("%s is deleted by force", p)
		s.count.forced++
		s.newPod(r.name)
	}
}

// present returns the process in the present pod of a name.
func (s *simulation) present(name int) *process {
	uid := s.world.pod(name).uid
	for _, p := range s.processes {
		if p.uid == uid {
			return p
		}
	}
	return nil
}

// scale changes the replicas of the StatefulSet, which deletes the last pods or creates them again.
func (s *simulation) scale(replicas int) {
	for name := range s.settings.pods {
		next, p := *s.world.pod(name), s.present(name)
		if next.removed == (name >= replicas) {
			continue
		}
		next.removed, next.leaving = !next.removed, !next.removed
		s.world.record("%s is removed: %v", podName(name), next.removed)
		s.world.store(podKind, name, &next)
		if next.removed {
			s.count.removed++
			p.terminate()
		} else {
			s.count.returned++
		}
	}
	s.remakeEnded()
}

// remakeEnded starts a new pod in place of each one that has ended.
func (s *simulation) remakeEnded() {
	for i, p := range s.processes {
		if pd := s.world.pod(p.name); pd.uid == p.uid && pd.terminated && !pd.removed {
			s.newPod(p.name)
			last := len(s.processes) - 1
			s.processes[i], s.processes = s.processes[last], s.processes[:last]
		}
	}
}

// terminate deletes the pod of a process, which gets SIGTERM, and SIGKILL after the grace period.
func (p *process) terminate() {
	if !p.alive {
		return
	}
	p.world.record("%s is deleted", p)
	p.leaves, p.returns, p.killedAt = true, false, p.world.now+gracePeriod
	if p.incarnation == "" && !p.frozen { // it holds nothing
		p.exit()
	}
}

// kill ends a process whose grace period is over, even if it is frozen.
func (p *process) kill() {
	p.world.record("%s is killed", p)
	p.count.killed++
	p.crash()
	p.exit()
}

// exit ends a process and its pod.
func (p *process) exit() {
	p.alive, p.killedAt = false, 0
	if pd := p.world.pod(p.name); pd.uid == p.uid {
		next := *pd
		next.terminated = true
		p.world.store(podKind, p.name, &next)
	}
}

// rollCalmly rolls all pods that have not left the pool, while nothing goes wrong, and checks that
// no work moves.
func (s *simulation) rollCalmly() {
	for _, p := range s.processes {
		for _, w := range p.running {
			if w.neverEnds {
				return // it is killed, and its Lease must be taken over, which takes longer
			}
		}
	}
	owners := s.ownerPods()
	s.world.record("--- all pods are rolled")
	for name := s.settings.pods - 1; name >= 0; name-- {
		former := s.present(name)
		if s.world.pod(name).leaving {
			continue
		}
		former.terminate()
		for round := 0; former.alive || s.present(name).incarnation == ""; round++ {
			s.round(0)
			s.remakeEnded()
			if round > maxRounds {
				s.world.breaks(errBrokeW6, "no new pod %s joins", podName(name))
				return
			}
		}
		s.count.calmly++
	}
	if s.calmDown(); s.world.broken != nil {
		return
	}
	if after := s.ownerPods(); after != owners {
		s.world.breaks(errBrokeW6, "%s, before the roll: %s", after, owners)
	}
	s.checkWork()
}
