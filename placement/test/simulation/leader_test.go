package simulation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// leader is one controller. It uses its caches and performs one write at a time.
type leader struct {
	*simulation
	name string
	rate int

	cache
	own [kinds][pods]int // index of its own last write, which overlays the cache, plus 1

	pending func() // the computed write that is sent next

	seen     [pods]contract.Versions
	ended    map[string]bool
	sighting [pods]sighting
	unnamed  map[string]int // since when no Lease names an incarnation, by the local clock
	losses   map[string]int // since when an owner shows a sign of death, by the local clock

	turn  int
	since [pods]int        // the turn in which the present version of the contract, by another writer, was first observed
	cm    [pods]*configMap // that version, or the one that the leader itself has written
	fresh [resources]freshDecision

	leaseless [pods]int // since when a pod has no Lease, by the local clock

	decided [resources]bool // the leader has processed the placements of the resource

	idle sight // what the leader saw when it last had nothing to write

	rewound  bool                    // pending was computed from objects from before the last restore
	versions [pods][]observedVersion // for a mutant
}

// observedVersion is a version of a contract that a leader has observed.
type observedVersion struct {
	of         types.UID
	generation int64
	digest     string
}

// freshDecision is a decision that was read live or written.
type freshDecision struct {
	turn int
	uid  types.UID
	rv   int
}

// sighting records when a Lease was last seen to change.
type sighting struct {
	rv, at int
}

func (l *leader) clock() int { return l.world.now * l.rate / 10 }

// restart starts a new process, whose caches may be older than those of the previous one.
func (l *leader) restart(behind int) {
	*l = leader{simulation: l.simulation, name: l.name, rate: l.rate, ended: map[string]bool{}, unnamed: map[string]int{}, losses: map[string]int{}}
	for k := range l.world.log {
		l.sync(l.world, kind(k), max(l.world.ghost.restored[k], len(l.world.log[k])-behind))
	}
}

// get returns an object from the cache, overlaid with the leader's own writes.
func (l *leader) get(k kind, key int) any {
	at := max(l.cached[k][key], l.own[k][key])
	if at == 0 {
		return nil
	}
	return l.world.log[k][at-1].object
}

func (l *leader) resource(name int) *resource {
	r, _ := l.get(resourceKind, name).(*resource)
	return r
}

func (l *leader) lease(name int) *lease {
	le, _ := l.get(leaseKind, name).(*lease)
	return le
}

func (l *leader) pod(name int) *pod {
	p, _ := l.get(podKind, name).(*pod)
	return p
}

// contract returns a contract and records its version.
func (l *leader) contract(name int) *configMap {
	c, _ := l.get(contractKind, name).(*configMap)
	if c == nil {
		l.cm[name] = nil
		return nil
	}
	if l.cm[name] != c {
		l.cm[name], l.since[name] = c, l.turn
		if l.mutant.keepsVersions {
			l.versions[name] = append(l.versions[name], observedVersion{c.uid, c.contract.Generation, c.digest})
		}
		l.seen[name] = l.seen[name].With(c.uid, c.contract.Generation, c.digest)
	}
	return c
}

// wrote overlays the cache with a write by the leader.
func (l *leader) wrote(k kind, key int) { l.own[k][key] = len(l.world.log[k]) }

// send defers a write to the next turn. It may then arrive late, or its response may be lost.
func (l *leader) send(write func() (answered func())) {
	l.rewound = l.isBehindRestore()
	l.pending = func() { l.transmit(write) }
}

func (l *leader) transmit(write func() (answered func())) {
	switch {
	case l.choices.Happens(l.settings.lateWrites):
		l.world.record("%s: a write is under way for long", l.name)
		lost := map[bool]int{true: 1}[l.rewound]
		l.world.ghost.lost += lost
		l.world.late = append(l.world.late, func() { l.world.ghost.lost -= lost; write() })
	case l.choices.Happens(l.settings.lostAnswers):
		l.world.record("%s: the answer is lost", l.name)
		write()
	default:
		if answered := write(); answered != nil {
			answered()
		}
	}
}

// next takes one turn: it sends the pending write or computes a new one.
func (l *leader) next() {
	l.turn++
	if write := l.pending; write != nil {
		l.pending = nil
		write()
		l.rewound = false
		return
	}
	switch l.choices.Next(3) {
	case 0:
		l.sync(l.world, kind(l.choices.Next(int(kinds))), 1+l.choices.Next(8))
	case 1:
		if !l.settings.stale {
			l.syncAll(l.world)
		}
	}
	switch task := l.choices.Next(12); {
	case task < 3:
		l.decide(l.choices.Next(l.settings.resources))
	case task < 5:
		l.release(l.choices.Next(l.settings.resources))
	case task < 10:
		name := l.choices.Next(l.settings.pods)
		if task < 9 {
			l.build(name)
		} else {
			l.watch(name)
		}
		if l.pending == nil {
			l.clean(name)
		}
	default:
		l.report(l.choices.Next(l.settings.resources))
	}
}

// everything performs all pending work, one write after the other.
func (l *leader) everything() {
	l.turn++
	do := func() {
		if write := l.pending; write != nil {
			l.pending = nil
			write()
			l.rewound = false
		}
	}
	l.syncAll(l.world)
	before := l.world.writes
	for name := range pods {
		l.watch(name)
		do()
		l.clean(name)
		do()
	}
	now, ok := l.sees()
	if ok && now == l.idle {
		return
	}
	defer func() {
		if l.idle = (sight{}); ok && l.world.writes == before {
			l.idle = now
		}
	}()
	for name := range resources {
		l.release(name)
		do()
		l.decide(name)
		do()
	}
	for name := range pods {
		l.syncAll(l.world)
		l.build(name)
		do()
	}
	for name := range resources {
		l.report(name)
		do()
	}
}

// sight is all that the work of a leader depends on, except for the renewals of Leases.
type sight struct {
	position [leaseKind]int
	changed  int // position in the log of pods
	lease    [pods]leaseSight
	runs     bool // not the zero value
}

// leaseSight is what a leader knows from a Lease.
type leaseSight struct {
	exists, fresh                      bool
	holder, ended, incarnation, digest string
	generation                         int64
}

// sees returns what the leader sees. It returns false if that does not fit into a sight. If a leader
// sees the same as when it last had nothing to write, it has nothing to write.
func (l *leader) sees() (s sight, ok bool) {
	s = sight{position: [leaseKind]int(l.position[:leaseKind]), changed: l.position[podKind], runs: true}
	for name := range pods {
		le := l.lease(name)
		if le == nil {
			continue
		}
		if len(le.ack.Stopping)+len(le.ack.Failing) > 0 {
			return sight{}, false
		}
		s.lease[name] = leaseSight{
			exists: true, fresh: l.clock()-l.sighting[name].at < leaseDuration, holder: le.holder, ended: le.ended,
			incarnation: le.ack.Incarnation, digest: le.ack.Digest, generation: le.ack.Generation,
		}
	}
	return s, len(l.unnamed)+len(l.losses) == 0
}

// watch checks a Lease for an ended incarnation and for a takeover.
func (l *leader) watch(name int) {
	le := l.lease(name)
	if le == nil {
		return
	}
	if le.ended != "" {
		l.ended[le.ended] = true
	}
	if s := l.sighting[name]; s.rv != le.rv {
		l.sighting[name] = sighting{le.rv, l.clock()}
		return
	}
	last := l.sighting[name].at
	if le.holder == "" || l.clock()-last < 2*leaseDuration {
		return
	}
	l.send(func() func() {
		next := le.free()
		if l.world.putLease(name, le, next) == nil {
			return nil
		}
		l.world.record("%s takes over the Lease of %s", l.name, le.holder)
		l.world.writes++
		return func() { l.wrote(leaseKind, name); l.ended[le.holder], l.losses[le.holder] = true, last }
	})
}

// hasEnded reports whether an incarnation is known to have ended. An incarnation that no Lease has
// named for 2D, confirmed by a live read, counts as ended.
//
// As long as a Lease names an incarnation, it has not ended, whatever the leader remembers: after a
// restore of etcd, a process may adopt an incarnation that had ended.
func (l *leader) hasEnded(name int, incarnation string) bool {
	pd, le := l.pod(name), l.lease(name)
	if l.mutant.missingIsEnded && (pd == nil || !strings.HasPrefix(incarnation, pd.uid+"/")) {
		return true
	}
	remembers := l.mutant.remembersEnds && l.ended[incarnation]
	if le != nil && le.holder == incarnation && !remembers {
		delete(l.unnamed, incarnation)
		delete(l.ended, incarnation)
		return false
	}
	if l.ended[incarnation] {
		return true
	}
	if le != nil && le.proves(incarnation) {
		l.ended[incarnation] = true
		return true
	}
	since, ok := l.unnamed[incarnation]
	if !ok {
		l.unnamed[incarnation] = l.clock()
		return false
	}
	if l.clock()-since < 2*leaseDuration {
		return false
	}
	if live := l.world.lease(name); live != nil && live.holder == incarnation {
		return false
	}
	l.ended[incarnation] = true
	return true
}

// endedOf returns hasEnded for the incarnations of a decision.
func (l *leader) endedOf(r *resource) func(string) bool {
	return func(incarnation string) bool {
		name, ok := podOf(r, incarnation)
		if !ok {
			name, ok = l.podThatHas(incarnation)
		}
		return ok && l.hasEnded(name, incarnation) || !ok && l.ended[incarnation]
	}
}

// podThatHas returns the pod whose Lease names an incarnation.
func (l *leader) podThatHas(incarnation string) (int, bool) {
	for name := range pods {
		if le := l.lease(name); le != nil && le.holder == incarnation {
			return name, true
		}
	}
	return 0, false
}

func podOf(r *resource, incarnation string) (int, bool) {
	for _, shares := range [][]placement.Placement{r.status.Placement, r.status.Releasing} {
		for i := range shares {
			if shares[i].Incarnation == incarnation {
				return int(shares[i].PodName[1] - '0'), true
			}
		}
	}
	return 0, false
}

// view returns the leader's knowledge of a pod.
func (l *leader) view(name int) *contract.View {
	v := &contract.View{}
	if c := l.contract(name); c != nil {
		v.ConfigMap, v.Contract, v.Digest, v.Seen = c.uid, c.contract, c.digest, l.seen[name]
	}
	if le := l.lease(name); le != nil {
		v.Ack = le.ack
	}
	l.mutateSeen(name, v)
	return v
}

// mutateSeen makes an acknowledgement known, for mutants.
func (l *leader) mutateSeen(name int, v *contract.View) {
	if l.mutant.anyConfigMap {
		for _, e := range l.world.log[contractKind][:l.position[contractKind]] {
			if c, _ := e.object.(*configMap); e.key == name && c != nil && c.contract.Generation == v.Ack.Generation && c.digest == v.Ack.Digest {
				v.Seen = v.Seen.With(v.ConfigMap, v.Ack.Generation, v.Ack.Digest)
			}
		}
	}
	if slices.Contains(l.versions[name], observedVersion{v.ConfigMap, v.Ack.Generation, v.Ack.Digest}) {
		v.Seen = v.Seen.With(v.ConfigMap, v.Ack.Generation, v.Ack.Digest)
	}
}

func (l *leader) viewOf(r *resource) func(string) (*contract.View, bool) {
	return func(incarnation string) (*contract.View, bool) {
		name, ok := podOf(r, incarnation)
		if !ok {
			return nil, false
		}
		return l.view(name), true
	}
}

// floor returns what the next decision about a resource must exceed.
func (l *leader) floor(r *resource) contract.Floor {
	f := contract.Floor{Contracts: l.highest(r.uid), Time: time.UnixMilli(l.world.wall)}
	if l.mutant.noTime {
		f.Time = time.Time{}
	}
	if l.mutant.goesBack {
		f.Contracts = min(f.Contracts, r.status.Decision)
	}
	return f
}

// highest returns the highest decision and epoch in any contract for a resource.
func (l *leader) highest(uid types.UID) (highest int64) {
	for name := range pods {
		if c := l.contract(name); c != nil {
			if e := c.contract.Entry(uid); e != nil {
				highest = max(highest, e.Highest())
			}
		}
	}
	return highest
}

// pool returns the input for scheduling.
func (l *leader) pool() []schedule.Pod {
	lost := l.noteLosses()
	list := make([]schedule.Pod, 0, pods)
	for name := range pods {
		list = append(list, schedule.Pod{Name: podName(name), Ordinal: int32(name), State: l.stateOf(name, lost[name])})
	}
	return list
}

// decide schedules the whole pool and decides about one resource.
func (l *leader) decide(name int) {
	r := l.resource(name)
	if r == nil {
		return
	}
	ended := l.endedOf(r)
	list := l.pool()
	now, items, present := schedule.Assignment{}, []schedule.Item{}, map[string]schedule.Set{}
	for other := range resources {
		o := l.resource(other)
		if o == nil {
			continue
		}
		items = append(items, schedule.Item{Key: string(o.uid), Replicas: o.wanted})
		now[string(o.uid)] = map[string]int32{}
		for i := range o.status.Placement {
			set, _ := o.status.Placement[i].Set()
			set = set.Below(o.wanted)
			now[string(o.uid)][o.status.Placement[i].PodName] += int32(len(set))
			if other == name {
				present[o.status.Placement[i].PodName] = append(present[o.status.Placement[i].PodName], set...)
			}
		}
	}
	if l.mutant.startsEmpty && !l.decided[name] {
		delete(now, string(r.uid))
		present = nil
	}
	l.decided[name] = true
	policy := schedule.Policy{Capacity: l.settings.capacity}
	if l.mutant.overcommits {
		policy.Capacity = 0
	}
	next, moves := l.schedule(policy, list, items, now)
	var want []contract.Share
	for pod, set := range schedule.Number(r.wanted, present, next[string(r.uid)]) {
		want = append(want, contract.Share{Pod: pod, Incarnation: l.incarnationFor(r, pod, list), Indexes: set})
	}
	status, changed, err := contract.Decide(r.status, want, ended, l.floor(r))
	if err != nil {
		panic(err)
	}
	if !changed && r.status.ObservedGeneration == r.generation {
		return
	}
	if changed && l.mutant.decide != nil {
		status = l.mutant.decide(r, status)
	}
	status.ObservedGeneration = r.generation
	early := ""
	if !slices.ContainsFunc(moves, func(m schedule.Move) bool { return m.Item == string(r.uid) }) {
		early = l.movesTooEarly(r, &status, now)
	}
	l.putStatus(r, status, changed, "decides", early)
}

// schedule schedules the whole pool and, if nothing is on its way, evens out the load. It returns
// the moves that do so.
func (l *leader) schedule(policy schedule.Policy, list []schedule.Pod, items []schedule.Item, now schedule.Assignment) (schedule.Assignment, []schedule.Move) {
	next, pending := schedule.Schedule(policy, list, items, now)
	if len(pending) > 0 || !l.isCalm(list) || l.mutant.evensNothing {
		return next, nil
	}
	return schedule.Rebalance(policy, list, items, next, l.settings.rebalance)
}

// isCalm reports whether no pod is lost or leaves, and nothing is released.
func (l *leader) isCalm(list []schedule.Pod) bool {
	for i := range list {
		if list[i].State == schedule.Closed || list[i].State == schedule.Leaving {
			return false
		}
	}
	for name := range resources {
		if r := l.resource(name); r != nil && len(r.status.Releasing) > 0 {
			return false
		}
	}
	return true
}

// incarnationFor returns the incarnation that gets the share of a pod: its present one if the pod
// is open.
func (l *leader) incarnationFor(r *resource, pod string, list []schedule.Pod) string {
	name := int(pod[1] - '0')
	if le := l.lease(name); le != nil && le.holder != "" && list[name].State != schedule.Closed {
		return le.holder
	}
	for i := range r.status.Placement {
		if r.status.Placement[i].PodName == pod {
			return r.status.Placement[i].Incarnation
		}
	}
	return ""
}

func (l *leader) putStatus(r *resource, status placement.Status, isDecision bool, what, early string) {
	name := r.name
	l.send(func() func() {
		stored := l.world.putStatus(r, status, isDecision && l.mutant.decidesBlindly)
		if stored == nil {
			l.world.record("%s: conflict at %s", l.name, r.uid)
			return nil
		}
		l.world.record("%s %s %s: %s", l.name, what, r.uid, statusText(&status))
		if isDecision {
			l.world.ghost.decides(r.uid, r.wanted, status)
		}
		if early != "" {
			l.world.ghost.breaks(l.world, errBrokeW6, "%s %s", l.name, early)
		}
		turn := l.turn
		return func() {
			l.wrote(resourceKind, name)
			l.fresh[name] = freshDecision{turn, stored.uid, stored.rv}
		}
	})
}

func statusText(s *placement.Status) string {
	var b strings.Builder
	for _, p := range s.Placement {
		b.WriteString(p.Incarnation + " owns " + p.Indexes + ", ")
	}
	for _, p := range s.Releasing {
		b.WriteString(p.Incarnation + " releases " + p.Indexes + ", ")
	}
	return cmp.Or(strings.TrimSuffix(b.String(), ", "), "no owners") + " (decision " + number(s.Decision) + ")"
}
