package simulation

import (
	"slices"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// undo is the former version of an object that has changed.
type undo struct {
	kind   kind
	key    int
	object any
}

// restore restores etcd as it was some changes ago, except for pods, whose objects follow what
// runs. Writes in flight are lost, because API servers restart. resourceVersions do not repeat.
// Leaders and agents do not notice anything except the objects.
func (s *simulation) restore(changes int) {
	if changes == 0 {
		return
	}
	w := s.world
	former := w.stored
	for _, u := range backward(w.undo, changes) {
		if u.kind != podKind {
			former[u.kind][u.key] = u.object
		}
	}
	w.record("etcd is restored as it was %d changes ago", changes)
	w.late = w.late[:0]
	for k := range former {
		for key, object := range former[k] {
			if w.stored[k][key] != object {
				w.store(kind(k), key, object)
			}
		}
		w.ghost.restored[k] = len(w.log[k])
	}
	for uid := range w.ghost.born {
		w.ghost.deleted[uid] = s.byUID(uid) == nil
	}
	for _, l := range s.leaders {
		l.rewound = l.pending != nil
	}
	w.ghost.lost, w.ghost.disorder = 0, true
	clear(w.ghost.renewed) // the last renewals may be undone
}

// backward returns the last changes, latest first.
func backward(all []undo, count int) []undo {
	last := make([]undo, 0, count)
	for i := range count {
		last = append(last, all[len(all)-1-i])
	}
	return last
}

// breaks reports a broken promise, except while a restore excuses it.
func (g *ghost) breaks(w *world, err error, format string, args ...any) {
	if !g.disorder {
		w.breaks(err, format, args...)
	}
}

// checkRestored ends the disorder after a restore once nothing is left of the lost history: both
// leaders have seen the restored objects, contracts agree with decisions, and every agent has
// renewed its Lease and acknowledged its contract.
func (s *simulation) checkRestored() {
	g := &s.world.ghost
	if !g.disorder || !s.haveSeenTheRestore() || !s.contractsAgree() {
		return
	}
	for _, p := range s.processes {
		if !p.agrees() {
			return
		}
	}
	s.world.record("nothing is left of the time before the restore")
	g.disorder = false
	clear(g.fence)
	clear(g.moved)
	clear(g.dropped)
	clear(g.held)
	clear(g.owner)
	for name := range resources {
		r := s.world.resource(name)
		if r == nil {
			continue
		}
		for _, share := range r.status.Placement {
			set, _ := schedule.ParseSet(share.Indexes)
			for _, index := range set {
				u := contract.Unit{UID: r.uid, Index: index}
				g.owner[u], g.held[task{u, share.Incarnation}] = share.Incarnation, r.status.Decision
			}
		}
	}
	for _, p := range s.processes {
		for u, w := range p.running {
			if f := g.fence[g.called(u)]; w.Epoch >= f.epoch {
				g.fence[g.called(u)] = fence{w.Epoch, p.incarnation, u.UID}
			}
		}
		if p.incarnation != "" && p.lease != nil {
			g.acknowledges(p, &p.lease.ack)
		}
	}
}

// haveSeenTheRestore reports whether both leaders have seen the restored objects, and whether no
// write that was computed before that is left.
func (s *simulation) haveSeenTheRestore() bool {
	for _, l := range s.leaders {
		if l.rewound || l.isBehindRestore() {
			return false
		}
	}
	return s.world.ghost.lost == 0
}

// isBehindRestore reports whether a cache has objects from before the last restore.
func (l *leader) isBehindRestore() bool {
	for k, position := range l.world.ghost.restored {
		if l.position[k] < position {
			return true
		}
	}
	return false
}

// contractsAgree reports whether the stored contracts follow from the stored decisions: each lists
// only what its incarnation owns or releases, and no two list the same vreplica.
func (s *simulation) contractsAgree() bool {
	listed := map[contract.Unit]bool{}
	for name := range pods {
		c := s.world.contract(name)
		if c == nil {
			continue
		}
		for i := range c.contract.Entries {
			e := &c.contract.Entries[i]
			r := s.byUID(e.UID)
			if r == nil || e.Highest() > r.status.Decision {
				return false
			}
			for index := range e.Replicas {
				u := contract.Unit{UID: e.UID, Index: index}
				if listed[u] && !s.settings.overlap || !isNamed(&r.status, c.contract.Incarnation, index) {
					return false
				}
				listed[u] = true
			}
		}
	}
	return true
}

// isNamed reports whether a decision lets an incarnation work on an index.
func isNamed(status *placement.Status, incarnation string, index int32) bool {
	for _, share := range slices.Concat(status.Placement, status.Releasing) {
		if set, _ := share.Set(); share.Incarnation == incarnation && set.Has(index) {
			return true
		}
	}
	return false
}

// agrees reports whether a process has nothing of a lost history: no events of it are left in its
// watch, its last renewal is stored, and it follows no contract, or has acknowledged the stored one.
// A renewal that a restore has undone does not keep a leader from taking over the Lease.
func (p *process) agrees() bool {
	if p.incarnation == "" {
		return true
	}
	c, le := p.world.contract(p.name), p.world.lease(p.name)
	if le == nil || le != p.lease || p.position < p.world.ghost.restored[contractKind] {
		return false
	}
	if len(p.running) == 0 && p.contract.Incarnation == "" {
		return true
	}
	return c != nil && c.contract.Incarnation == p.incarnation && p.digest == c.digest && p.last == c.contract.Generation && le.ack.Generation == p.last && le.ack.Digest == p.digest && len(le.ack.Stopping) == 0
}
