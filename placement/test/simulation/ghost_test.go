package simulation

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// The promises that a run can break.
var (
	errBrokeW1    = errors.New("W1: two pods work on one vreplica, or an epoch does not increase")
	errBrokeW2    = errors.New("W2: a desired vreplica is not worked on")
	errBrokeMove  = errors.New("W2: a move interrupts a vreplica although hand-overs overlap")
	errBrokeW3    = errors.New("W3: Ready is written before a pod has acknowledged its share")
	errBrokeW4    = errors.New("W4: a pod exceeds its capacity")
	errBrokeW5    = errors.New("W5: a calm pool writes something")
	errBrokeW6    = errors.New("W6: a new leader, or a pod that returns in time, moves something")
	errBrokeW8    = errors.New("W8: an entry of another incarnation is worked on")
	errBrokeW9    = errors.New("W9: an error or a stale cache takes work away")
	errBrokeW10   = errors.New("W10: one stuck vreplica delays another")
	errUneven     = errors.New("R49: a calm pool has not evened out its load")
	errNotStopped = errors.New("W2: a process works on a vreplica that is not desired")
)

// ghost records what actually happens.
type ghost struct {
	fence   map[called]fence
	born    map[types.UID]birth
	moved   map[contract.Unit]int64 // the last decision that changed the owner
	dropped map[contract.Unit]int64 // the last decision in which it had no owner
	held    map[task]int64          // the last decision that made an incarnation its owner
	worked  map[task]int64          // the epoch with which an incarnation last worked
	acks    map[holding]acked
	gone    map[types.UID]bool
	owner   map[contract.Unit]string
	deleted map[types.UID]bool
	renewed map[string]int // when an incarnation has last renewed its Lease

	restored [kinds]int // positions in the logs just after the last restore
	lost     int        // late writes that were computed from objects from before the last restore
	disorder bool       // what agents do need not agree with the stored state, because of a restore
}

// fence is the state of a vreplica in a target system: the highest epoch and whose it is.
type fence struct {
	epoch       int64
	incarnation string
	uid         types.UID
}

// called identifies a vreplica in a target system, which does not know UIDs.
type called struct {
	name  int
	index int32
}

func (g *ghost) called(u contract.Unit) called { return called{g.born[u.UID].name, u.Index} }

// birth is the name of a resource and the order of its creation.
type birth struct{ name, order int }

type task struct {
	unit        contract.Unit
	incarnation string
}

type holding struct {
	uid         types.UID
	incarnation string
}

// acked is the last acknowledgement of a resource by an incarnation.
type acked struct {
	decision int64
	works    map[int32]bool
}

func (g *ghost) reset() {
	if g.fence == nil {
		*g = ghost{
			fence: map[called]fence{}, born: map[types.UID]birth{}, moved: map[contract.Unit]int64{}, dropped: map[contract.Unit]int64{}, held: map[task]int64{},
			worked: map[task]int64{}, acks: map[holding]acked{}, gone: map[types.UID]bool{}, owner: map[contract.Unit]string{}, deleted: map[types.UID]bool{},
			renewed: map[string]int{},
		}
	}
	g.restored, g.lost, g.disorder = [kinds]int{}, 0, false
	clear(g.fence)
	clear(g.born)
	clear(g.moved)
	clear(g.dropped)
	clear(g.held)
	clear(g.worked)
	clear(g.acks)
	clear(g.gone)
	clear(g.owner)
	clear(g.deleted)
	clear(g.renewed)
}

// epochs returns the highest epoch of each vreplica.
func (g *ghost) epochs() map[called]int64 {
	epochs := map[called]int64{}
	for u, f := range g.fence {
		epochs[u] = f.epoch
	}
	return epochs
}

// starts records that a process starts a worker.
func (g *ghost) starts(s *simulation, p *process, u contract.Unit, epoch int64) {
	if s.settings.overlap {
		return // with overlap, the former owner may start late
	}
	f := g.fence[g.called(u)]
	if p.isLate() && epoch < f.epoch {
		return // the target system refuses it
	}
	defer g.checkAlone(s, p, u)
	if g.born[f.uid].order > g.born[u.UID].order && epoch < f.epoch {
		return // the resource is deleted, and the target system refuses this epoch
	}
	if epoch < f.epoch || epoch == f.epoch && (f.incarnation != p.incarnation || f.uid != u.UID) {
		g.breaks(s.world, errBrokeW1, "%s starts %s with epoch %d after epoch %d of %s", p, unitText(u), epoch, f.epoch, f.incarnation)
	}
	g.fence[g.called(u)] = fence{epoch, p.incarnation, u.UID}
}

// checkAlone checks that no other process works on the same vreplica. It excludes processes that
// are late if the target system refuses their lower epoch.
func (g *ghost) checkAlone(s *simulation, p *process, u contract.Unit) {
	for _, other := range s.processes {
		if other == p || !other.alive {
			continue
		}
		if w, runs := other.running[u]; runs && (!other.isLate() || w.Epoch >= p.running[u].Epoch) {
			g.breaks(s.world, errBrokeW1, "%s and %s work on %s", p, other, unitText(u))
		}
	}
}

// decides records a stored decision and the number of vreplicas that it is for.
func (g *ghost) decides(uid types.UID, wanted int32, next placement.Status) {
	owners := map[int32]string{}
	for _, share := range next.Placement {
		set, _ := schedule.ParseSet(share.Indexes)
		for _, index := range set {
			owners[index] = share.Incarnation
		}
	}
	for index := range int32(maxWanted) {
		u := contract.Unit{UID: uid, Index: index}
		if index >= wanted {
			g.dropped[u] = next.Decision
		}
		if owners[index] != "" {
			g.held[task{u, owners[index]}] = next.Decision
		}
		if g.owner[u] != owners[index] {
			g.owner[u], g.moved[u] = owners[index], next.Decision
		}
	}
}

// writesContract checks that a contract takes away only what may be taken from its incarnation.
func (g *ghost) writesContract(s *simulation, name int, before, after *contract.Contract) {
	if before.Incarnation != after.Incarnation {
		return
	}
	for i := range before.Entries {
		e := &before.Entries[i]
		for index, epoch := range e.Replicas {
			if _, lists := after.Entry(e.UID).Lists(index); lists || g.deleted[e.UID] {
				continue
			}
			u := contract.Unit{UID: e.UID, Index: index}
			if g.owner[u] == before.Incarnation && g.moved[u] <= epoch {
				g.breaks(s.world, errBrokeW9, "the contract of %s loses %s, which was never moved", podName(name), unitText(u))
			}
			g.checkGoesOn(s, before.Incarnation, u)
		}
	}
}

// checkGoesOn checks that, with overlap, another incarnation works on a vreplica that an
// incarnation loses. It excludes vreplicas that were not desired in the meantime, because they are
// not lost by a move, and incarnations that are over, which have nothing to lose.
func (g *ghost) checkGoesOn(s *simulation, former string, u contract.Unit) {
	owner := g.owner[u]
	if g.dropped[u] > g.held[task{u, former}] {
		return
	}
	if !s.settings.overlap || owner == "" || owner == former || g.worked[task{u, former}] == 0 {
		return
	}
	for name := range pods {
		c := s.world.contract(name)
		if c == nil || c.contract.Incarnation == former {
			continue
		}
		epoch, lists := c.contract.Entry(u.UID).Lists(u.Index)
		if lists && g.worked[task{u, c.contract.Incarnation}] == epoch {
			return
		}
	}
	// An incarnation that has worked on it since also counts: it may have ended, or its contract
	// may be deleted.
	for t, epoch := range g.worked {
		if t.unit == u && t.incarnation != former && epoch > g.worked[task{u, former}] {
			return
		}
	}
	if s.isOver(former) {
		return
	}
	g.breaks(s.world, errBrokeMove, "%s loses %s, and no other incarnation has worked on it", former, unitText(u))
}

// isOver reports whether an incarnation can never work again, whatever its contract lists: no
// process has it, and no Lease names it, so that no restarted process adopts it.
func (s *simulation) isOver(incarnation string) bool {
	for _, p := range s.processes {
		if p.incarnation == incarnation {
			return false
		}
	}
	for name := range pods {
		if le := s.world.lease(name); le != nil && le.holder == incarnation {
			return false
		}
	}
	return true
}

// acknowledges records a stored acknowledgement.
func (g *ghost) acknowledges(p *process, a *contract.Ack) {
	for i := range p.contract.Entries {
		e := &p.contract.Entries[i]
		works := map[int32]bool{}
		for index := range e.Replicas {
			w, runs := p.running[contract.Unit{UID: e.UID, Index: index}]
			works[index] = runs && w.Working && !w.stopping
		}
		g.acks[holding{e.UID, a.Incarnation}] = acked{e.Decision, works}
	}
}

// checkReady checks a condition Ready that is written.
func (g *ghost) checkReady(s *simulation, r *resource) {
	if g.disorder {
		return
	}
	count := int32(0)
	for _, share := range r.status.Placement {
		a := g.acks[holding{r.uid, share.Incarnation}]
		set, _ := schedule.ParseSet(share.Indexes)
		for _, index := range set {
			works, ok := a.works[index]
			if a.decision < share.Since || !ok {
				s.world.breaks(errBrokeW3, "%s is ready, and %s has not acknowledged vreplica %d of decision %d", r.uid, share.PodName, index, share.Since)
			}
			if !works && g.worked[task{contract.Unit{UID: r.uid, Index: index}, share.Incarnation}] == 0 {
				s.world.breaks(errBrokeW3, "%s is ready, and %s has never worked on vreplica %d", r.uid, share.PodName, index)
			}
		}
		count += int32(len(set))
	}
	if count < r.wanted {
		s.world.breaks(errBrokeW3, "%s is ready with %d of %d vreplicas", r.uid, count, r.wanted)
	}
	for _, p := range s.processes {
		if !p.alive || p.isLate() {
			continue
		}
		for u := range p.running {
			if owner, isOwned := g.owner[u]; u.UID == r.uid && isOwned && owner != p.incarnation && p.incarnation != "" && !p.isLost() {
				s.world.breaks(errBrokeW3, "%s is ready, and %s still works on vreplica %d", r.uid, p, u.Index)
			}
		}
	}
}
