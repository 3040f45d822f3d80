package simulation

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/schedule"
	"nodekeeper.dev/test/schedules"
)

// settings are drawn at the start of a run. They determine the size of the system and the frequency
// of faults.
type settings struct {
	overlap     bool
	patience    int // of a pool with a StatefulSet, in seconds; without, 0
	capacity    int32
	rebalance   int // how many vreplicas a decision moves to even out the load
	lateWrites  int // in 64
	lostAnswers int
	slowWorkers int
	stuck       int
	faults      int // frequency of faults of pods, contracts and Leases
	restarts    int
	restores    int
	rolls       int
	scales      int
	collects    int // how often the garbage collector acts
	owners      ownership
	settles     bool
	keeps       bool // agents go on when they cannot renew their Leases in time

	// The following are changed only by narrow settings.
	pods, resources int
	churn           int   // how often pods leave the pool and the author changes something
	among           []int // the faults to draw from; nil: all
	stale           bool  // the caches of a leader advance one kind at a time
	returns         bool  // a process that releases its Lease always returns
}

func (s *settings) draw(c *schedules.Choices) {
	s.overlap = c.Next(4) == 3
	s.patience = []int{0, 0, patience}[c.Next(3)]
	s.capacity = []int32{10, 10, 2, 3}[c.Next(4)]
	s.rolls = []int{0, 0, 0, 6}[c.Also(4)]
	s.owners = []ownership{unowned, unowned, unowned, unowned, unowned, unowned, ownedByPods, ownedByObjects}[c.Also(8)]
	if s.collects = 0; s.owners != unowned {
		s.collects = 6
	}
	s.lateWrites = []int{0, 4, 12}[c.Next(3)]
	s.scales = []int{0, 0, 0, 0, 0, 4}[c.Also(6)]
	s.rebalance = []int{0, 0, 1, 10}[c.Also(4)]
	s.lostAnswers = []int{0, 4, 12}[c.Next(3)]
	s.slowWorkers = []int{0, 16, 40}[c.Next(3)]
	s.stuck = []int{0, 0, 4}[c.Next(3)]
	s.faults = []int{0, 2, 6, 14}[c.Next(4)]
	s.restores = []int{0, 0, 0, 0, 0, 0, 1, 3}[c.Also(8)]
	s.restarts = []int{0, 1, 3}[c.Next(3)]
	s.settles = c.Next(4) != 3
	s.pods, s.resources, s.churn, s.among = pods, resources, []int{0, 0, 4, 10}[c.Next(4)], nil
	s.stale, s.returns = c.Next(4) == 3, false
	s.keeps = c.Also(8) == 7
}

// simulation contains all actors. It is reused for consecutive runs.
type simulation struct {
	mutant    mutant
	settings  settings
	choices   schedules.Choices
	world     *world
	leaders   [2]*leader
	processes []*process
	rolling   roll
	garbage   collector
	count     counts // of all runs
}

// counts are how often actors have done something.
type counts struct {
	rolled, forced, killed int // pods, by rolls
	calmly                 int // pods, by rolls after all was calm
	removed, returned      int // pods, by other numbers of replicas

	collected     [kinds]int // by the garbage collector
	cleaned       [kinds]int // by leaders
	held, refused int        // of these, Leases that were held; deletions of another object
}

func newSimulation(m mutant) *simulation {
	s := &simulation{mutant: m, world: &world{}}
	for i := range s.leaders {
		s.leaders[i] = &leader{simulation: s, name: "L" + string(rune('1'+i))}
	}
	return s
}

// run plays the choices, then lets everything calm down, and returns the promise that was broken,
// if any.
func (s *simulation) run(bytes []byte, tracks bool) error {
	s.reset(bytes, tracks)
	for !s.choices.IsSpent() && s.world.broken == nil {
		s.step()
	}
	if s.world.broken == nil && (s.settings.settles || s.mutant.settles) {
		s.settle()
	}
	return s.world.broken
}

func (s *simulation) reset(bytes []byte, tracks bool) {
	s.choices = schedules.NewChoices(bytes)
	s.settings.draw(&s.choices)
	if s.mutant.narrow != nil {
		s.settings.restores, s.settings.rolls, s.settings.scales, s.settings.owners, s.settings.collects = 0, 0, 0, unowned, 0
		s.settings.rebalance = 0
		s.mutant.narrow(&s.settings)
	}
	s.world.reset(tracks)
	s.world.record("overlap %v, capacity %d, keeps %v", s.settings.overlap, s.settings.capacity, s.settings.keeps)
	s.processes, s.rolling, s.garbage = s.processes[:0], roll{}, collector{simulation: s}
	for name := range s.settings.pods {
		s.newPod(name)
	}
	for _, l := range s.leaders {
		l.rate = []int{10, 7, 13}[s.choices.Next(3)]
		l.restart(0)
	}
	for name := range s.settings.resources {
		s.create(name, int32(1+s.choices.Next(3)))
	}
}

func (s *simulation) newPod(name int) {
	p := &process{
		simulation: s, name: name, uid: s.world.nextUID("p"), alive: true, running: map[contract.Unit]*worker{},
		rate: []int{10, 7, 13}[s.choices.Next(3)],
	}
	s.processes = append(s.processes, p)
	next := pod{uid: p.uid}
	if former := s.world.pod(name); former != nil {
		next.leaving, next.removed = former.leaving, former.removed
	}
	s.world.store(podKind, name, &next)
}

func (s *simulation) create(name int, wanted int32) {
	r := &resource{name: name, uid: types.UID(s.world.nextUID("q")), rv: s.world.nextRV(), generation: 1, wanted: wanted}
	if first := s.world.resource(0); s.settings.owners == ownedByObjects && name > 0 && first != nil {
		r.owner = first.uid
	}
	s.world.ghost.born[r.uid] = birth{name, s.world.uids}
	s.world.record("the author creates %s with %d", r.uid, wanted)
	s.world.store(resourceKind, name, r)
}

// step lets one actor take a turn.
func (s *simulation) step() {
	switch who := s.choices.Next(32); {
	case who < 13:
		s.leaders[who%2].next()
	case who < 26:
		s.processes[s.choices.Next(len(s.processes))].next()
	case who < 29:
		s.passTime(1 + s.choices.Next(4))
	case who < 30:
		s.author()
	case who < 31:
		if n := len(s.world.late); n > 0 {
			at := s.choices.Next(n)
			write := s.world.late[at]
			s.world.late = append(s.world.late[:at], s.world.late[at+1:]...)
			s.world.record("a late write arrives")
			write()
		}
	default:
		if s.choices.Happens(4 * s.settings.restarts) {
			l := s.leaders[s.choices.Next(2)]
			s.world.record("%s restarts", l.name)
			l.restart(s.choices.Next(8))
		}
	}
	if s.choices.Happens(s.settings.churn) {
		if s.choices.Next(2) == 0 {
			s.author()
		} else {
			s.leave(s.choices.Next(s.settings.pods))
		}
	}
	if s.choices.Happens(s.settings.faults) {
		s.fault()
	}
	if s.choices.Happens(s.settings.rolls) {
		s.roll()
	}
	if s.choices.Happens(s.settings.scales) {
		s.scale(1 + s.choices.Next(s.settings.pods))
	}
	if s.choices.Happens(s.settings.collects) {
		s.garbage.next()
	}
	if s.choices.Happens(s.settings.restores) {
		s.restore(s.choices.Next(len(s.world.undo) + 1))
	}
	s.checkRestored()
}

func (s *simulation) passTime(seconds int) {
	for range seconds {
		s.world.now++
		s.world.wall = max(s.world.wall, int64(s.world.now)*1000)
		for _, p := range s.processes {
			p.tick()
		}
	}
}

// author changes the desired state.
func (s *simulation) author() {
	name := s.choices.Next(s.settings.resources)
	r := s.world.resource(name)
	switch {
	case r == nil:
		s.create(name, int32(1+s.choices.Next(3)))
	case s.choices.Next(6) == 5:
		s.world.record("the author deletes %s", r.uid)
		s.world.ghost.deleted[r.uid] = true
		s.world.store(resourceKind, name, nil)
	default:
		next := *r
		next.wanted, next.generation, next.rv = int32(s.choices.Next(maxWanted+1)), r.generation+1, s.world.nextRV()
		s.world.record("the author wants %d of %s", next.wanted, next.uid)
		s.world.store(resourceKind, name, &next)
	}
}

// fault causes a fault.
func (s *simulation) fault() {
	p := s.processes[s.choices.Next(len(s.processes))]
	what := s.choices.Next(10)
	if among := s.settings.among; among != nil {
		what = among[s.choices.Next(len(among))]
	}
	switch what {
	case 0, 1:
		if p.alive {
			p.crash()
		}
	case 2:
		if p.alive && !p.frozen {
			s.world.record("%s freezes", p)
			p.frozen = true
		}
	case 3, 4:
		p.thaw()
	case 5:
		p.cut = !p.cut
		s.world.record("%s is cut off: %v", p, p.cut)
	case 6:
		s.replace(p)
	case 7:
		if c := s.world.contract(p.name); c != nil {
			s.world.record("the contract of %s is deleted", podName(p.name))
			s.world.store(contractKind, p.name, nil)
		}
	case 8:
		if le := s.world.lease(p.name); le != nil {
			s.world.record("the Lease of %s is deleted", podName(p.name))
			s.world.store(leaseKind, p.name, nil)
		}
	case 9:
		if p.alive && !p.leaves {
			p.leaves, p.returns = true, s.settings.returns || s.choices.Also(3) == 2
			s.world.record("%s %s", p, map[bool]string{false: "is terminating", true: "releases its Lease, and returns"}[p.returns])
		}
	}
}

// leave makes a pod leave the pool or return to it.
func (s *simulation) leave(name int) {
	next := *s.world.pod(name)
	if next.removed {
		return
	}
	next.leaving = !next.leaving
	s.world.record("%s leaves the pool: %v", podName(name), next.leaving)
	s.world.store(podKind, name, &next)
}

// replace replaces a pod by a new one of the same name. The old process may still run on an
// unreachable node.
func (s *simulation) replace(p *process) {
	pd := s.world.pod(p.name)
	if pd.uid != p.uid || pd.removed || len(s.processes) >= 2*pods {
		return
	}
	if s.choices.Next(2) == 0 || !p.alive {
		s.world.record("%s is gone", p)
		p.crash()
		p.alive = false
	}
	s.newPod(p.name)
	s.world.record("%s is replaced by %s", p, s.processes[len(s.processes)-1])
}

// thaw resumes a frozen process. Workers past their deadline end within the time that they have,
// unless the agent keeps them.
func (p *process) thaw() {
	if !p.frozen {
		return
	}
	p.frozen = false
	p.world.record("%s thaws", p)
	if p.incarnation == "" {
		return
	}
	if p.isLost() {
		p.thawing, p.renewed = true, p.clock()-renewDeadline
		p.cancel()
	}
	for u, w := range p.running {
		switch f := p.world.ghost.fence[p.world.ghost.called(u)]; {
		case p.settings.overlap:
		case !p.isLate():
			p.world.ghost.checkAlone(p.simulation, p, u)
		case f.incarnation != p.incarnation && f.epoch <= w.Epoch:
			p.world.ghost.breaks(p.world, errBrokeW1, "%s acts late with epoch %d, which is not below %d of %s", p, w.Epoch, f.epoch, f.incarnation)
		}
	}
}

const (
	maxRounds = 220
	quiet     = 2*leaseDuration + 18 // by the slowest clock, with a margin
)

// settle runs without further faults until no actor has anything left to do.
func (s *simulation) settle() {
	s.world.record("--- from here on nothing goes wrong")
	for _, p := range s.processes {
		p.cut = false
		p.thaw()
		if pd := s.world.pod(p.name); pd.uid != p.uid && p.alive {
			s.world.record("%s is gone", p)
			p.crash()
			p.alive = false
		}
	}
	for _, p := range s.processes {
		if p.alive && p.leaves && p.killedAt == 0 {
			p.leaves, p.returns = false, false
		}
	}
	for len(s.world.late) > 0 && s.world.broken == nil {
		write := s.world.late[0]
		s.world.late = s.world.late[1:]
		write()
	}
	s.calmDown()
	if s.world.broken == nil {
		s.checkWork()
		s.checkStill()
	}
	if s.world.broken == nil && s.settings.rolls > 0 && s.settings.patience > 0 {
		s.rollCalmly()
	}
}

// calmDown runs until no actor has anything left to do.
func (s *simulation) calmDown() {
	last := 0
	for round := 0; s.world.broken == nil && round-last < 12; round++ {
		before := s.world.writes
		s.remakeEnded()
		s.round(round - last)
		s.checkRestored()
		if s.world.writes != before {
			last = round
		}
		if round > maxRounds {
			s.world.breaks(errBrokeW2, "the system does not come to rest")
		}
	}
}

// round gives every actor a turn. The longer nothing has happened, the faster time advances.
func (s *simulation) round(idle int) {
	s.passTime(1)
	for range 2 {
		for _, p := range s.processes {
			p.next()
			p.next()
		}
		if idle > 2 {
			s.passTime(2)
		}
	}
	for _, l := range s.leaders {
		l.everything()
	}
	if s.settings.owners != unowned {
		s.garbage.everything()
	}
}

// checkWork checks that everything is worked on, now that all is calm.
func (s *simulation) checkWork() {
	loads := map[string]int32{}
	stuck := map[contract.Unit]bool{}
	works := map[contract.Unit]int{}
	hasStuck := map[types.UID]bool{}
	for _, p := range s.processes {
		for u, w := range p.running {
			if w.neverEnds && w.stopping || w.neverRuns {
				stuck[u], hasStuck[u.UID] = true, true
			}
			if r := s.byUID(u.UID); (r == nil || u.Index >= r.wanted) && !stuck[u] {
				s.world.breaks(errNotStopped, "%s works on %s", p, unitText(u))
			}
			if w.Working && !w.stopping {
				works[u]++
			}
			if works[u] > 1 && !s.settings.overlap {
				s.world.breaks(errBrokeW1, "more than one process works on %s when all is calm", unitText(u))
			}
		}
	}
	room := s.room()
	for name := range resources {
		r := s.world.resource(name)
		if r == nil {
			continue
		}
		for i := range r.status.Placement {
			loads[r.status.Placement[i].PodName] += r.status.Placement[i].VReplicas
		}
		for index := range r.wanted {
			u := contract.Unit{UID: r.uid, Index: index}
			if works[u] == 0 && !stuck[u] && room {
				s.world.breaks(map[bool]error{true: errBrokeW10, false: errBrokeW2}[len(stuck) > 0], "%s", unitText(u))
			}
		}
		isReady := meta.IsStatusConditionTrue(r.status.Conditions, ready.Ready)
		for index := range r.wanted {
			if u := (contract.Unit{UID: r.uid, Index: index}); isReady && works[u] == 0 && !stuck[u] {
				s.world.breaks(errBrokeW3, "%s is ready, and no process works on vreplica %d when all is calm", r.uid, index)
			}
		}
		if room && !hasStuck[r.uid] && s.world.broken == nil && !isReady {
			s.world.breaks(errBrokeW2, "%s is not ready: %v", r.uid, r.status.Conditions)
		}
	}
	for pod, load := range loads {
		if load > s.settings.capacity {
			s.world.breaks(errBrokeW4, "%s has %d", pod, load)
		}
	}
	if s.settings.rebalance > 0 && room && len(stuck) == 0 && s.world.broken == nil {
		s.checkEven(loads)
	}
}

// checkEven checks that no open pod has two vreplicas more than another one, unless a pod leaves.
func (s *simulation) checkEven(loads map[string]int32) {
	list := s.leaders[0].pool()
	if !s.leaders[0].isCalm(list) {
		return
	}
	for _, from := range list {
		for _, to := range list {
			if from.State == schedule.Open && to.State == schedule.Open && loads[from.Name] > loads[to.Name]+1 {
				s.world.breaks(errUneven, "%s has %d, and %s has %d", from.Name, loads[from.Name], to.Name, loads[to.Name])
			}
		}
	}
}

// room reports whether all desired vreplicas fit.
func (s *simulation) room() bool {
	var wanted, capacity int32
	for name := range s.settings.pods {
		if !s.world.pod(name).leaving {
			capacity += s.settings.capacity
		}
	}
	for name := range resources {
		if r := s.world.resource(name); r != nil {
			wanted += r.wanted
		}
	}
	return wanted <= capacity
}

func (s *simulation) byUID(uid types.UID) *resource {
	for name := range resources {
		if r := s.world.resource(name); r != nil && r.uid == uid {
			return r
		}
	}
	return nil
}

// checkStill checks that neither time nor a new leader changes anything.
func (s *simulation) checkStill() {
	if s.world.broken != nil {
		return
	}
	before := s.world.writes
	for i := range 5 {
		s.round(i)
	}
	if s.world.writes != before {
		s.world.breaks(errBrokeW5, "%d writes", s.world.writes-before)
		return
	}
	owners := s.owners()
	s.world.record("--- both leaders restart")
	for _, l := range s.leaders {
		l.restart(0)
	}
	for i := range 5 {
		s.round(i)
	}
	if after := s.owners(); after != owners {
		s.world.breaks(errBrokeW6, "%s, before: %s", after, owners)
	}
}

// ownerPods returns the pods that own each vreplica.
func (s *simulation) ownerPods() string {
	var b strings.Builder
	for name := range resources {
		if r := s.world.resource(name); r != nil {
			for index := range r.wanted {
				b.WriteString(unitText(contract.Unit{UID: r.uid, Index: index}) + " on " + ownerPod(&r.status, index) + "; ")
			}
		}
	}
	return b.String()
}

func (s *simulation) owners() string {
	var b strings.Builder
	for name := range resources {
		if r := s.world.resource(name); r != nil {
			status := placement.Status{Placeable: r.status.Placeable}
			b.WriteString(string(r.uid) + ": " + statusText(&status) + "; ")
		}
	}
	return b.String()
}
