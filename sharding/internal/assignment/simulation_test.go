package assignment

import (
	"context"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/test/schedules"
)

var errGone = apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, "")

var shardNames = []string{shardName(0), shardName(1), shardName(2)} //nolint:gochecknoglobals // a constant

func mainName(i int) string { return "m" + strconv.Itoa(i) }

// settings are drawn at the start of a run. They determine the size of the ring and the frequency of
// faults, in 64.
type settings struct {
	children, policy bool
	// forces is set if the ring has onTimeout Force.
	forces          bool
	mains, maxMoves int
	refused, stale  int
	lost            int
	late            int
	kills, freezes  int
	settles         bool
	// leaves is set if shards often get or lose all of their slots while they live, and create and
	// delete many children, so that a view of children often lacks some of them. Little else happens.
	leaves bool
}

func (s *settings) draw(c *schedules.Choices) {
	s.children, s.policy = c.Next(4) != 3, c.Next(2) == 0
	s.forces, s.leaves = c.Also(4) == 3, false
	s.mains, s.maxMoves = []int{1, 1, 2, 3}[c.Next(4)], 1+c.Next(3)
	s.refused, s.lost, s.late = []int{0, 4, 12}[c.Next(3)], []int{0, 4, 12}[c.Next(3)], []int{0, 4, 12}[c.Next(3)]
	s.kills, s.freezes = []int{0, 1, 4}[c.Next(3)], []int{0, 8, 24}[c.Next(3)]
	s.settles, s.stale = c.Next(4) == 3, []int{0, 0, 16}[c.Next(3)]
	if c.Also(8) == 7 {
		s.leave()
	}
}

// leave makes moves of children frequent, and faults rare.
func (s *settings) leave() {
	s.leaves, s.children, s.kills, s.freezes, s.stale = true, true, 0, 0, 0
	s.refused, s.lost, s.late = min(s.refused, 4), min(s.lost, 4), min(s.late, 4)
}

// simulation has all actors. It is reused for consecutive runs.
type simulation struct {
	mutant   mutant
	settings settings
	choices  schedules.Choices
	world    *world
	scene    *ringScene
	metrics  metrics
	sharders [2]*sharder
	shards   [shardCount]*shard
	// passages is the number of passages that have begun, and depth how many processes wait for an
	// answer.
	passages, depth int
	isSettling      bool
}

func newSimulation(m mutant) *simulation {
	s := &simulation{mutant: m, world: &world{}, scene: newRingScene(), metrics: newMetrics()}
	for i := range s.sharders {
		s.sharders[i] = &sharder{simulation: s, name: "S" + strconv.Itoa(i+1)}
	}
	for i := range s.shards {
		s.shards[i] = &shard{simulation: s, index: i}
	}
	return s
}

// Run plays the choices, then lets everything settle, and returns the promise that was broken, if
// any.
func (s *simulation) Run(bytes []byte, traced bool) error {
	s.reset(bytes, traced)
	for !s.choices.IsSpent() && s.world.broken == nil {
		s.step()
	}
	if s.world.broken == nil && (s.settings.settles || s.mutant.settles) {
		s.settle()
	}
	return s.world.broken
}

// Trace returns the trace of the last run.
func (s *simulation) Trace() []string { return s.world.trace }

// End does nothing: a simulation holds no resources.
func (s *simulation) End() {}

func (s *simulation) reset(bytes []byte, traced bool) {
	s.choices, s.passages, s.depth, s.isSettling = schedules.NewChoices(bytes), 0, 0, false
	s.settings.draw(&s.choices)
	if s.mutant.narrow != nil {
		s.mutant.narrow(&s.settings)
	}
	s.world.reset(traced)
	for _, p := range s.sharders {
		p.restart()
	}
	for _, p := range s.shards {
		p.restart()
		p.keepLease()
		p.isAtWork = true
	}
	s.world.table = 1 + s.choices.Next(1<<shardCount-1)
	s.world.record("%+v", s.settings)
	for i := range s.settings.mains {
		s.create(mainName(i))
	}
	s.sharders[0].isLeader = true
	s.sharders[0].lead()
	s.sharders[0].look()
	s.sharders[0].deliverAll(true)
}

// step lets one actor act.
func (s *simulation) step() {
	if s.settings.leaves {
		s.stepOfMove()
		return
	}
	switch who := s.choices.Next(32); {
	case who < 12:
		s.leading().step()
	case who < 27:
		s.shards[who%shardCount].step()
	case who < 29:
		s.passTime()
	case who < 30:
		s.act(s.choices.Next(s.settings.mains))
	case who < 31:
		if n := len(s.world.late); n > 0 {
			s.world.arrive(s.choices.Next(n))
		}
	case s.choices.Happens(8 * s.settings.kills):
		s.kill(s.choices.Next(shardCount + len(s.sharders)))
	}
}

// stepOfMove lets one actor do all that it can do for moves at once, so that many main objects move with
// their children in one run, while the shards create and delete others.
func (s *simulation) stepOfMove() {
	switch who := s.choices.Next(16); {
	case who < 6:
		s.leading().actOften()
	case who < 13:
		s.shards[who%shardCount].actOften(mainName(s.choices.Next(s.settings.mains)))
	case who < 14:
		s.passTime()
	case who < 15:
		s.world.leave(s.choices.Next(shardCount))
	default:
		if n := len(s.world.late); n > 0 {
			s.world.arrive(s.choices.Next(n))
		}
	}
}

// lead lets the leader renew its Lease, and then others take it.
func (s *simulation) lead() {
	for _, leads := range []bool{true, false} {
		for _, p := range s.sharders {
			if p.isLeader == leads {
				p.lead()
			}
		}
	}
}

// leading returns the process that is the leader, or one that is not.
func (s *simulation) leading() *sharder {
	for _, p := range s.sharders {
		if p.isLeader && !p.isLost {
			return p
		}
	}
	return s.sharders[0]
}

// passTime lets seconds pass, or so many that Leases end.
func (s *simulation) passTime() {
	seconds := []int{1, 1, 1, 2, 3, 8, 12, 31}[s.choices.Next(8)]
	s.world.now = s.world.now.Add(time.Duration(seconds) * time.Second)
	s.world.isFenced = s.world.isFenced || s.settings.forces && s.choices.Also(4) == 0
	frozen := -1
	if s.choices.Happens(s.settings.freezes) {
		frozen = s.choices.Next(shardCount + len(s.sharders))
	}
	for i, p := range s.sharders {
		p.isFrozen = shardCount+i == frozen
	}
	s.lead()
	for i, p := range s.shards {
		if i != frozen && !p.isDown {
			p.until = s.world.now // it has renewed its Lease all the time
			p.keepLease()
		}
	}
}

// kill replaces one of the processes.
func (s *simulation) kill(n int) {
	if n < shardCount {
		s.shards[n].kill()
		return
	}
	if p := s.sharders[n-shardCount]; p.busy == 0 {
		s.world.record("%s is killed", p.name)
		p.restart()
	}
}

// act lets a user create or delete an object.
func (s *simulation) act(n int) {
	m := s.world.get(id{false, mainName(n)})
	if m == nil {
		s.create(mainName(n))
		return
	}
	if s.choices.Next(4) == 0 {
		s.world.record("a user deletes %s", describe(m))
		s.world.remove(m)
	}
}

func (s *simulation) create(name string) {
	at := ""
	if s.settings.policy {
		at = s.place(name, s.world.table)
	}
	s.world.create(id{false, name}, at, nil)
	s.world.record("a user creates %s", describe(s.world.get(id{false, name})))
}

// place returns the shard to which a table assigns a main object.
func (s *simulation) place(name string, table int) string {
	if table == 0 {
		return ""
	}
	return s.scene.view(s.settings, table, 0).table.Of(place.Key(*s.scene.main.main, nil, place.Main(schema.GroupKind{Kind: "Secret"}, "n", name))).Now
}

// interleave lets others act while a process waits for an answer.
func (s *simulation) interleave() {
	if s.isSettling || s.depth >= 3 {
		return
	}
	s.depth++
	defer func() { s.depth-- }()
	steps := s.choices.Next(16)
	switch {
	case s.settings.leaves:
		steps -= 14
	case steps < 15:
		steps = steps/2 - 3
	}
	for range steps {
		s.step()
	}
}

// send sends a write, whose request or answer can be late or lost. It returns the error that the
// caller sees.
func (s *simulation) send(deadline time.Time, arrive func() error) error {
	deadline = earlier(deadline, s.world.now.Add(arriveWithin))
	switch {
	case s.choices.Happens(s.settings.late):
		s.world.late = append(s.world.late, lateWrite{deadline, func() { _ = arrive() }})
		return context.DeadlineExceeded
	case s.choices.Happens(s.settings.lost):
		s.world.record("the next answer is lost")
		_ = arrive()
		return context.DeadlineExceeded
	}
	return arrive()
}

// settle lets the processes work without faults until every object is where it belongs.
func (s *simulation) settle() {
	const rounds, calm = 60, 12
	s.isSettling = true
	s.settings.refused, s.settings.lost, s.settings.late = 0, 0, 0
	s.world.late = nil
	s.world.record("everything settles")
	since := 0
	for round := 0; round < rounds && s.world.broken == nil; round++ {
		before := s.world.writes
		s.world.now = s.world.now.Add(3 * time.Second)
		s.settleOnce(round)
		switch {
		case s.world.writes != before || s.misplaced() != "":
			since = round
		case round-since >= calm:
			s.checkMemory()
			return
		}
	}
	if s.world.broken == nil {
		s.world.breaks(errS3, "%s", s.misplaced())
	}
}

// checkMemory checks what the leader remembers of objects at rest.
func (s *simulation) checkMemory() {
	p := s.leading()
	for _, t := range p.tracked() {
		for key, o := range t.objects {
			s.world.breaks(errS6, "%s remembers of %s: %+v", p.name, key.Name, o)
		}
	}
	p.assigner.late.forget(s.world.now)
	for uid, w := range p.assigner.late.all {
		s.world.breaks(errS6, "%s remembers late writes to the children of %s: %+v", p.name, uid, w)
	}
	if n := p.assigner.moves.count() + len(p.assigner.moves.waiting); n > 0 {
		s.world.breaks(errS6, "%s counts %d moves", p.name, n)
	}
}

func (s *simulation) settleOnce(round int) {
	for _, p := range s.shards {
		p.isDown = false
		p.keepLease()
	}
	for _, p := range s.sharders {
		p.isFrozen = false
	}
	s.lead()
	leader := s.leading()
	for i := range shardCount {
		leader.watchLease(i)
	}
	leader.look()
	leader.deliverAll(true)
	if leader.assigner.resyncs.due || round%8 == 7 {
		leader.resync()
	}
	for range 8 {
		for n := range 4 {
			leader.process(n)
		}
		leader.moveChildren()
	}
	for _, p := range s.shards {
		for i := range s.settings.mains {
			p.observe(mainName(i))
			p.act(mainName(i))
			p.finish(mainName(i))
			p.acknowledge(mainName(i))
			p.start(mainName(i))
		}
	}
}

// misplaced describes an object that is not where it belongs, or "".
func (s *simulation) misplaced() string {
	for _, m := range s.world.all(false) {
		at := m.Labels[shardKey]
		if _, isDrained := m.Labels[drainKey]; isDrained || at != s.place(m.Name, s.world.table) {
			return describe(m) + " belongs to " + s.place(m.Name, s.world.table)
		}
		for _, child := range s.world.childrenOf(m.UID) {
			if child.Labels[shardKey] != at {
				return describe(child) + " is a child of " + describe(m)
			}
		}
	}
	return ""
}

// ringScene has the views of a ring of Secrets, which control ConfigMaps.
type ringScene struct {
	scene

	views map[viewKey]*view
}

type viewKey struct {
	settings      settings
	table, joined int
}

func newRingScene() *ringScene { return &ringScene{scene: *newScene(), views: map[viewKey]*view{}} }

// ring returns a ring without a table.
func (s *ringScene) ring(of settings) *v1alpha1.ClusterRing {
	r := &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: "website", Generation: 1}}
	main := v1alpha1.Resource{GroupResource: secrets}
	if of.children {
		main.ControlledResources = []v1alpha1.GroupResource{configMaps}
	}
	r.Spec.Resources = []v1alpha1.Resource{main}
	r.Spec.Handover.MaxConcurrentMoves = int32(of.maxMoves)
	r.Spec.Handover.DrainTimeout = &metav1.Duration{Duration: time.Minute}
	if of.forces { // the status can be out of date; see world.isFenced
		r.Spec.Fence, r.Spec.Handover.OnTimeout, r.Spec.Handover.DrainTimeout.Duration = v1alpha1.FenceDeny, v1alpha1.Force, 5*time.Second
		r.Status.Conditions = []metav1.Condition{{Type: place.FenceInstalled, Status: metav1.ConditionTrue, Reason: place.FenceWorks, ObservedGeneration: 1}}
	}
	r.Status.LabelledResources = []v1alpha1.GroupResource{secrets, configMaps}
	if of.policy {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: conditionAdmission, Status: metav1.ConditionTrue, Reason: policyInstalled})
	}
	return r
}

// view returns the view of a ring with the shards in the table, and others that have joined.
func (s *ringScene) view(of settings, table, joined int) *view {
	key := viewKey{settings{children: of.children, policy: of.policy, forces: of.forces, maxMoves: of.maxMoves}, table, joined}
	v := s.views[key]
	if v != nil {
		return v
	}
	r := s.ring(of)
	if table != 0 {
		r.Status.Table = viewOf(nil, names(table)).ring.Status.Table
		r.Status.Table.Generation = int64(table)
	}
	v = newView(r, names(joined), place.Selection{})
	s.views[key] = v
	return v
}

// names returns the shards in a set.
func names(set int) (all []string) {
	for i, name := range shardNames {
		if set&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return all
}
