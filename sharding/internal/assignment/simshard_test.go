package assignment

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	shardCount = 3
	// renewDeadline is how long a shard acts after it has sent its last successful renewal, and
	// takeAfter how long a Lease must be unchanged before the sharder takes it: R and 2D.
	renewDeadline = 10 * time.Second
	takeAfter     = 30 * time.Second
	// returnMin and returnMax are the times of package shard.
	returnMin, returnMax = 3 * time.Second, 15 * time.Second
)

func shardName(i int) string { return "web-" + strconv.Itoa(i) }

// shard is a model of a process with package shard.
type shard struct {
	*simulation

	index int
	// epoch is the one of the Lease that this process holds, or 0. It counts as held until a time, by
	// its last renewal. since is when it was acquired, at this resourceVersion.
	epoch        int
	until, since time.Time
	sinceVersion int
	isAtWork     bool
	// isDown is set while there is no process.
	isDown bool
	// seen is the number of versions of each main object that the cache of the process has seen, and
	// sent the last version that it released.
	seen map[string]int
	sent map[string]string
	work map[string]passage
}

// passage is the time in which a shard reconciles an object.
type passage struct {
	uid    types.UID
	number int
}

func (s *shard) name() string { return shardName(s.index) }

func (s *shard) lease() *lease { return s.world.leases[s.index] }

// restart replaces the process: it dies with all that it was doing.
func (s *shard) restart() {
	*s = shard{simulation: s.simulation, index: s.index, seen: map[string]int{}, sent: map[string]string{}, work: map[string]passage{}}
}

// kill kills the process or, if it is at rest, ends it in order. Another one starts at once or later.
func (s *shard) kill() {
	isDown, isAtRest, l := s.isDown, len(s.work) == 0, s.lease()
	s.restart()
	switch {
	case isDown:
		s.world.record("%s starts", s.name())
		return
	case isAtRest && s.choices.Next(2) == 0:
		s.world.record("%s ends", s.name())
		l.isHeld = false
		l.version++
	default:
		s.world.record("%s is killed", s.name())
	}
	s.isDown = s.choices.Next(2) == 0
}

// step performs one of the actions of the process on an object.
func (s *shard) step() {
	name := mainName(s.choices.Next(s.settings.mains))
	if s.isDown {
		return
	}
	what := s.choices.Next(8)
	_, isWorking := s.work[name]
	m := s.cached(name)
	switch {
	case what < 3 || m == nil:
		s.observe(name)
	case what == 4 && !isWorking:
		s.start(name)
	case what == 3 || m.Labels[drainKey] != "" && !isWorking:
		s.acknowledge(name)
	case !isWorking:
		s.start(name)
	case what < 7:
		s.act(name)
	default:
		s.finish(name)
	}
}

// actOften performs several actions on an object.
func (s *shard) actOften(name string) {
	s.observe(name)
	if s.cached(name) == nil {
		return
	}
	s.start(name)
	for range s.choices.Next(3) {
		s.act(name)
	}
	if s.choices.Next(2) == 0 {
		s.finish(name)
		s.acknowledge(name)
	}
}

// holds reports whether the process may act. Without its Lease it stops.
func (s *shard) holds() bool {
	if s.epoch != 0 && s.world.now.After(s.until) && !s.mutant.actsPastLease {
		s.world.record("%s loses its Lease", s.name())
		s.restart()
	}
	return s.epoch != 0
}

// keepLease renews or acquires the Lease, and begins to act if it may.
func (s *shard) keepLease() {
	l, sent := s.lease(), s.world.now
	switch {
	case s.holds():
		if !l.isHeld || l.epoch != s.epoch {
			s.world.record("%s finds its Lease taken", s.name())
			s.restart()
			return
		}
	case !l.isHeld || s.epoch == 0: // free, or of a predecessor, which is dead
		l.isHeld = true
		l.epoch++
		s.epoch, s.since, s.sinceVersion = l.epoch, sent, s.world.rv
		s.world.record("%s acquires its Lease", s.name())
	}
	l.version++
	s.until = sent.Add(renewDeadline)
	if waited := sent.Sub(s.since); s.mutant.returnsAtOnce || waited >= returnMax || waited >= returnMin && !s.hasObjects() {
		s.isAtWork = true
	}
}

func (s *shard) hasObjects() bool {
	return slices.ContainsFunc(s.world.all(false), s.owns)
}

// observe lets the cache see the next version of an object, or the last one.
func (s *shard) observe(name string) {
	o := s.world.objects[id{false, name}]
	if o == nil {
		return
	}
	s.seen[name] = min(s.seen[name]+1, len(o.versions))
	if s.choices.Next(4) > 0 {
		s.seen[name] = len(o.versions)
	}
}

// cached returns the version of an object in the cache, or nil.
func (s *shard) cached(name string) *metav1.PartialObjectMetadata {
	if n := s.seen[name]; n > 0 {
		return s.world.objects[id{false, name}].versions[n-1]
	}
	return nil
}

func (s *shard) owns(m *metav1.PartialObjectMetadata) bool {
	return m != nil && m.Labels[shardKey] == s.name()
}

// canWrite reports whether the work of the shard on an object has an effect. If the object was
// taken by force, its former shard may not know that yet. The fence then accepts writes
// only from the shard that owns the stored object of this name, even if the object was created
// again. An object that was created again without a shard accepts all writes until it is assigned,
// as the page on fences states.
func (s *shard) canWrite(name string, uid types.UID) bool {
	if !s.world.forced[uid] {
		return true
	}
	return s.owns(s.world.get(id{false, name}))
}

// start begins a passage.
func (s *shard) start(name string) {
	m := s.cached(name)
	if _, isWorking := s.work[name]; !s.holds() || !s.isAtWork || isWorking || !s.owns(m) {
		return
	}
	if m.Labels[drainKey] != "" && !s.mutant.startsWhileDrained || s.sent[name] != "" && !isLater(m.ResourceVersion, s.sent[name]) && !s.mutant.forgetsSent {
		return
	}
	if !isLater(m.ResourceVersion, strconv.Itoa(s.sinceVersion)) && !s.mutant.trustsOldCache {
		if live := s.world.get(id{false, name}); live == nil || live.UID != m.UID || !s.owns(live) || live.Labels[drainKey] != "" {
			return
		}
	}
	if !s.canWrite(name, m.UID) {
		return // the cache does not show yet that the object was taken
	}
	for _, other := range s.shards {
		if p, isWorking := other.work[name]; isWorking && p.uid == m.UID && other.canWrite(name, p.uid) && !s.world.now.After(other.until) {
			s.world.breaks(errS1, "%s begins to act on %s, on which %s acts", s.name(), name, other.name())
		}
	}
	s.passages++
	s.work[name] = passage{m.UID, s.passages}
	s.world.record("%s begins to act on %s", s.name(), describe(m))
	if s.settings.children {
		s.world.checkChildren(m, s.index)
	}
}

// act acts on an object, and creates a child now and then.
func (s *shard) act(name string) {
	p, isWorking := s.work[name]
	if !isWorking || !s.holds() {
		return
	}
	if s.canWrite(name, p.uid) {
		s.world.act(p.uid, name, p.number, s.index)
	}
	main := s.world.get(id{false, name})
	if !s.settings.children || main == nil || main.UID != p.uid || s.choices.Next(3) > 0 {
		return
	}
	child := id{true, name + "-" + strconv.Itoa(s.choices.Next(2))}
	if m := s.world.get(child); m != nil {
		if s.settings.leaves && !s.isSettling {
			s.world.record("%s deletes %s", s.name(), child.name)
			s.world.store(child, nil)
		}
		return
	}
	if s.settings.policy && s.choices.Also(4) == 3 {
		s.world.create(child, s.place(name, s.world.table), main)
		s.world.record("a policy places %s, which no shard creates", describe(s.world.get(child)))
		return
	}
	at := s.name()
	if !s.settings.policy {
		at = ""
	}
	s.world.record("%s creates %s", s.name(), child.name)
	s.world.create(child, at, main)
	s.world.creators[s.world.get(child).UID] = s.index
}

func (s *shard) finish(name string) {
	if _, isWorking := s.work[name]; isWorking {
		s.world.record("%s has acted on %s", s.name(), name)
		delete(s.work, name)
	}
}

// acknowledge releases an object that is drained.
func (s *shard) acknowledge(name string) {
	m := s.cached(name)
	_, isWorking := s.work[name]
	if !s.holds() || !s.owns(m) || m.Labels[drainKey] == "" || isWorking && !s.mutant.acknowledgesEarly {
		return
	}
	to := change{labels: map[string]*string{shardKey: nil}}
	if !s.settings.children {
		to.labels = map[string]*string{shardKey: new(m.Labels[drainKey]), drainKey: nil}
	}
	s.sent[name] = m.ResourceVersion
	s.world.record("%s acknowledges %s", s.name(), describe(m))
	_ = s.send(s.until, func() error {
		if now := s.world.get(id{false, name}); now == nil || now.ResourceVersion != m.ResourceVersion && !s.mutant.releasesAnyVersion {
			return errConflict
		}
		_, err := s.world.patch(id{false, name}, m, nil, to, mutant{})
		return err
	})
}
