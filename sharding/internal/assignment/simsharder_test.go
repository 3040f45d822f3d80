package assignment

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ring"
)

// sharder is a process with the real assigner. It acts while it is the leader.
type sharder struct {
	*simulation

	name string
	// leadsUntil is when the process is not the leader any more unless it renews its Lease, and isLost
	// is set once it has not renewed it in time. It sends nothing then.
	leadsUntil time.Time
	isLeader   bool
	isLost     bool
	isFrozen   bool
	assigner   *assigner
	trackers   [2]*tracker // of main objects and of children
	queues     [2]*queue
	watches    []*simulatedWatch
	streams    []*stream
	// sightings are what the process has seen of the Leases.
	sightings [shardCount]sighting
	// busy counts the answers of the API server for which the process waits. isReading is set while it
	// reads a Lease or checks the fence, for all objects that need the answer, and isMoving while it
	// moves children.
	busy                int
	isReading, isMoving bool
}

// sighting is since when a Lease has been as it is.
type sighting struct {
	lease

	since time.Time
}

// restart replaces the process.
func (s *sharder) restart() {
	*s = sharder{simulation: s.simulation, name: s.name}
	c := &Controller{
		Leases: leaseReader{s}, Fenced: s.fenced, Dialect: ring.Dialect{Prefix: v1alpha1.DefaultPrefix}, Recorder: noEvents{}, Metadata: getter{},
		SyncPeriod: 10 * time.Second, Concurrency: 1, metrics: s.metrics, clock: func() time.Time { return s.world.now },
	}
	a := &assigner{
		Controller: c, name: "website", keys: keys{shard: shardKey, drain: drainKey, children: childrenKey}, dirty: make(chan struct{}, 1), resyncs: newResyncs(),
		ctx: logf.IntoContext(context.Background(), logr.Discard()), trackers: map[v1alpha1.GroupResource]*tracker{}, failing: map[moving]error{},
	}
	a.children = newChildren(a)
	if s.world.now.After(begin) {
		a.settled = s.world.now.Add(arriveWithin)
	}
	s.assigner = a
	main := &s.scene.ring(s.settings).Spec.Resources[0]
	s.trackers[0], s.queues[0] = s.newTracker(&s.scene.main, main), s.newQueue(false)
	a.trackers[secrets] = s.trackers[0]
	if s.settings.children {
		s.trackers[1], s.queues[1] = s.newTracker(&s.scene.child, nil), s.newQueue(true)
		a.trackers[configMaps] = s.trackers[1]
	}
	for i, t := range s.tracked() {
		t.queue.ShutDown()
		t.queue = s.queues[i]
	}
	for i := range s.sightings {
		s.sightings[i].since = s.world.now
	}
}

func (s *sharder) tracked() []*tracker {
	if s.settings.children {
		return s.trackers[:]
	}
	return s.trackers[:1]
}

func (s *sharder) newTracker(k *kind, main *v1alpha1.Resource) *tracker {
	t := newTracker(s.assigner, k.resource, main, k.mapping)
	t.ctx, t.stop = s.assigner.ctx, func() {}
	t.api = &simulatedAPI{sharder: s, isChild: main == nil}
	return t
}

// The times of the Lease of the leader.
const (
	leaderDuration = 6 * time.Second
	leaderDeadline = 4 * time.Second
)

// lead renews or acquires the Lease of the leader, or gives up.
func (s *sharder) lead() {
	now, w := s.world.now, s.world
	if s.isLost && s.busy == 0 {
		s.restart()
	}
	switch {
	case s.isLeader && !s.isFrozen:
		s.leadsUntil, w.leadUntil = now.Add(leaderDeadline), now.Add(leaderDuration)
	case s.isLeader && now.After(s.leadsUntil):
		s.isLost = true
		if s.busy == 0 {
			s.restart()
		}
	case !s.isLeader && !s.isFrozen && now.After(w.leadUntil):
		s.restart()
		w.record("%s leads", s.name)
		s.isLeader = true
		s.lead()
	}
}

// step performs one of the actions of the process. While it waits for an answer, its watches still
// show changes.
func (s *sharder) step() {
	if !s.isLeader || s.isFrozen || s.isLost {
		return
	}
	choice := s.choices.Next(18)
	switch {
	case choice < 4:
		s.deliverAll(choice == 0)
	case choice < 6:
		s.deliver(s.choices.Next(max(len(s.watches)+len(s.streams), 1)), choice == 5)
	case choice < 11:
		s.process(choice)
	case choice < 14:
		s.moveChildren()
	case choice < 15:
		s.look()
	case s.busy > 0:
	case choice < 17:
		for i := range shardCount {
			s.watchLease(i)
		}
		s.look()
	case s.assigner.resyncs.due || s.choices.Next(4) == 0:
		s.resync()
	}
}

// actOften performs all actions of the process, but seldom lets the views of children show changes.
func (s *sharder) actOften() {
	if !s.isLeader || s.isFrozen || s.isLost {
		return
	}
	for i := 0; i < shardCount && s.busy == 0; i++ {
		s.watchLease(i)
	}
	s.look()
	if s.busy == 0 && s.assigner.resyncs.due {
		s.resync()
	}
	s.deliverAll(s.choices.Next(8) == 7)
	for n := range 4 {
		s.process(n)
	}
	s.moveChildren()
}

// look replaces the view by the current one.
func (s *sharder) look() {
	joined := 0
	for i := range s.sightings {
		if s.sightings[i].isHeld {
			joined |= 1 << i
		}
	}
	v := s.scene.view(s.settings, s.world.table, joined)
	a := s.assigner
	a.mu.Lock()
	former := a.view
	a.view = v
	a.mu.Unlock()
	if former != v {
		s.world.record("%s sees the shards %v", s.name, v.liveNames())
	}
	a.follow(s.tracked(), former, v, false)
}

// watchLease reads the Lease of a shard, takes it if it has been unchanged for too long, and writes
// the table.
func (s *sharder) watchLease(i int) {
	l, known := s.world.leases[i], &s.sightings[i]
	if *l != known.lease {
		*known = sighting{*l, s.world.now}
	}
	patience := takeAfter
	if s.mutant.takesEarly {
		patience = time.Second
	}
	if l.isHeld && s.world.now.Sub(known.since) >= patience {
		s.wait()
		if l.version == known.version && !s.isLost {
			s.world.record("%s takes the Lease of %s", s.name, shardName(i))
			l.isHeld = false
			l.version++
			*known = sighting{*l, s.world.now}
		}
	}
	s.writeTable()
}

// writeTable writes the table of the shards whose Leases are held.
func (s *sharder) writeTable() {
	table, version := 0, s.world.tableVersion
	for i := range s.sightings {
		if s.sightings[i].isHeld {
			table |= 1 << i
		}
	}
	table = s.world.withoutLeaving(table)
	s.wait()
	if !s.isLost && version == s.world.tableVersion && table != s.world.table {
		s.world.record("%s writes a table", s.name)
		s.world.table = table
		s.world.tableVersion++
	}
}

// process processes one of the objects in the queues.
func (s *sharder) process(n int) {
	if s.assigner.view == nil || s.isReading {
		return
	}
	q := s.queues[0]
	if s.settings.children && n%2 == 1 {
		q = s.queues[1]
	}
	if !q.take(n / 2) {
		return
	}
	t := s.tracked()[q.index()]
	s.misremember(t)
	t.processNext(t.of.ctx)
	s.misremember(t)
}

// misremember changes what a mutant knows of objects.
func (s *sharder) misremember(t *tracker) {
	if s.mutant.awaits != nil {
		for uid := range s.assigner.late.all {
			s.assigner.late.change(uid, s.mutant.awaits)
		}
	}
	if s.mutant.knows == nil {
		return
	}
	for _, key := range slices.Collect(maps.Keys(t.objects)) {
		t.change(key, s.mutant.knows)
	}
}

// moveChildren moves the children of one batch, unless it is doing so.
func (s *sharder) moveChildren() {
	if s.isMoving {
		return
	}
	s.isMoving = true
	a := s.assigner
	if !s.isSettling && s.choices.Next(32) == 31 {
		a.children.closeViews(s.world.now)
	}
	a.children.move(a.ctx, a.children.take())
	s.isMoving = false
}

func (s *sharder) resync() {
	if s.assigner.view != nil && !s.mutant.neverResyncs {
		s.world.record("%s begins a resync", s.name)
		s.assigner.resync()
	}
}

// deliver lets a watch show the next change, or list all objects again.
func (s *sharder) deliver(n int, relists bool) {
	if n >= len(s.watches) {
		if n -= len(s.watches); n < len(s.streams) {
			s.streams[n].deliver(relists)
		}
		return
	}
	w := s.watches[n]
	if !w.isSynced || relists {
		w.list()
		return
	}
	for _, of := range s.world.order {
		if w.next(of) && s.choices.Next(2) == 0 {
			return
		}
	}
}

// deliverAll lets the watches show all changes, and the views of children, too, or not.
func (s *sharder) deliverAll(ofViews bool) {
	for _, w := range slices.Clone(s.watches) {
		if !w.isSynced {
			w.list()
		}
		for _, of := range s.world.order {
			for w.next(of) {
			}
		}
	}
	for _, w := range slices.Clone(s.streams) {
		for ofViews && w.next() {
		}
	}
}

// simulatedWatch is a watch of the objects that match a selector.
type simulatedWatch struct {
	*following

	of       *sharder
	isChild  bool
	selector string
	strip    func(*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata
	handle   func(m *metav1.PartialObjectMetadata, exists bool)
	done     func()
	isSynced bool
	seen     map[id]int
}

// list lists all objects.
func (w *simulatedWatch) list() {
	for _, of := range w.of.world.order {
		if of.isChild != w.isChild {
			continue
		}
		versions := w.of.world.objects[of].versions
		if w.seen[of] = len(versions); !w.isSynced && w.of.choices.Happens(w.of.settings.stale) {
			w.seen[of] = max(1, len(versions)-w.of.choices.Next(4)) // an API server can be behind
		}
		w.show(of, versions[w.seen[of]-1])
	}
	if !w.isSynced {
		w.isSynced = true
		w.done()
	}
}

// next shows the next version of an object, and reports whether there was one.
func (w *simulatedWatch) next(of id) bool {
	versions := w.of.world.objects[of].versions
	if of.isChild != w.isChild || w.seen[of] >= len(versions) {
		return false
	}
	m := versions[w.seen[of]]
	w.seen[of]++
	w.show(of, m)
	return true
}

func (w *simulatedWatch) show(of id, m *metav1.PartialObjectMetadata) {
	known := w.get(types.NamespacedName{Namespace: "n", Name: of.name})
	switch {
	case w.of.world.matches(w.selector, m):
		if known != nil && known.ResourceVersion == m.ResourceVersion {
			return
		}
		m = w.strip(m)
		_ = w.stores[0].Add(m)
		w.handle(m, true)
	case known != nil:
		_ = w.stores[0].Delete(known)
		w.handle(known, false)
	}
}

// simulatedAPI is the API server as a process sees it.
type simulatedAPI struct {
	*sharder

	isChild bool
}

func (a *simulatedAPI) get(_ context.Context, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	a.wait()
	if a.isLost || a.choices.Happens(a.settings.refused) {
		return nil, errRefused
	}
	m := a.world.get(id{a.isChild, key.Name})
	if m == nil {
		return nil, errGone
	}
	return m, nil
}

func (a *simulatedAPI) patch(ctx context.Context, m *metav1.PartialObjectMetadata, known []string, to change) (after *metav1.PartialObjectMetadata, err error) {
	a.wait()
	deadline := a.world.now.Add(writeTimeout)
	if limit, ok := ctx.Deadline(); ok && !a.mutant.ignoresDeadlines {
		if a.world.now.After(limit) {
			return nil, context.DeadlineExceeded
		}
		deadline = earlier(deadline, limit)
	}
	if a.isLost || a.choices.Happens(a.settings.refused) {
		return nil, errRefused
	}
	err = a.send(deadline, func() error {
		var err error
		before := a.world.get(id{a.isChild, m.Name})
		after, err = a.world.patch(id{a.isChild, m.Name}, m, known, to, a.mutant)
		if err == nil {
			a.world.record("%s writes %s", a.name, describe(after))
			if !a.isChild {
				a.world.checkVersions(after, to)
				a.checkTaken(before, to)
			}
		}
		return err
	})
	return after, err
}

// checkTaken checks a write that takes an object from its shard.
func (s *sharder) checkTaken(m *metav1.PartialObjectMetadata, to change) {
	shard, isWritten := to.labels[shardKey]
	if !isWritten || shard != nil && *shard == m.Labels[shardKey] {
		return
	}
	for _, p := range s.shards {
		if s.world.isFenced && p.owns(m) && m.Labels[drainKey] != "" && p.lease().isHeld {
			s.world.forced[m.UID] = true
		}
		at, isWorking := p.work[m.Name]
		switch {
		case !isWorking || !p.owns(m) || at.uid != m.UID:
		case s.world.isFenced && m.Labels[drainKey] != "":
			delete(p.work, m.Name) // the fence refuses the rest of the passage
		case !s.world.now.After(p.until):
			s.world.breaks(errS5, "%s takes %s", s.name, describe(m))
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (a *simulatedAPI) list(_ context.Context, selector string, each func(*metav1.PartialObjectMetadata) error) (string, error) {
	a.wait()
	if a.isLost || a.choices.Happens(a.settings.refused) {
		return "", errRefused
	}
	all := slices.DeleteFunc(a.world.all(a.isChild), func(m *metav1.PartialObjectMetadata) bool { return !a.world.matches(selector, m) })
	for _, m := range all {
		if err := each(m); err != nil {
			return "", err
		}
	}
	return strconv.Itoa(a.world.rv), nil
}

func (a *simulatedAPI) readAll(ctx context.Context, each func(*metav1.PartialObjectMetadata)) error {
	_, err := a.list(ctx, "", func(m *metav1.PartialObjectMetadata) error {
		each(m)
		return nil
	})
	return err
}

func (a *simulatedAPI) watchFrom(ctx context.Context, selector, version string, handle func(*metav1.PartialObjectMetadata, bool), ended func()) {
	w := &stream{of: a.sharder, ctx: ctx, isChild: a.isChild, selector: selector, handle: handle, ended: ended, shown: map[id]bool{}}
	for ; w.at < len(a.world.changes) && !isLater(a.world.changes[w.at].object.ResourceVersion, version); w.at++ {
		c := a.world.changes[w.at]
		w.shown[c.of] = c.exists && a.world.matches(selector, c.object)
	}
	a.streams = append(a.streams, w)
}

// await gives up now and then, like a process that waits for a watch that is too far behind.
func (a *simulatedAPI) await(_ context.Context, condition func() bool) bool {
	for range 4 {
		if condition() || a.mutant.trustsViews {
			return true
		}
		a.wait()
		for _, w := range slices.Clone(a.streams) {
			w.deliver(false)
		}
	}
	return condition()
}

// stream is a watch of the objects that match a selector, which shows changes in their order.
type stream struct {
	of       *sharder
	ctx      context.Context //nolint:containedctx // as for a request
	isChild  bool
	selector string
	handle   func(m *metav1.PartialObjectMetadata, exists bool)
	ended    func()
	// at is the number of changes that were shown, and shown the objects that matched then.
	at    int
	shown map[id]bool
}

// deliver shows some of the next changes, or ends the watch.
func (w *stream) deliver(ends bool) {
	if ends {
		w.of.streams = slices.DeleteFunc(w.of.streams, func(other *stream) bool { return other == w })
		w.ended()
		return
	}
	for w.next() && w.of.choices.Next(2) == 0 {
	}
}

// next shows the next change, and reports whether there was one.
func (w *stream) next() bool {
	if w.ctx.Err() != nil {
		w.deliver(true)
		return false
	}
	for w.at < len(w.of.world.changes) {
		c := w.of.world.changes[w.at]
		w.at++
		if c.of.isChild != w.isChild {
			continue
		}
		matched, matches := w.shown[c.of], c.exists && w.of.world.matches(w.selector, c.object)
		if w.shown[c.of] = matches; matched || matches {
			w.handle(c.object, matches)
			return true
		}
	}
	return false
}

func (a *simulatedAPI) follow(_ context.Context, _ []string, selector string, strip func(*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata, handle func(*metav1.PartialObjectMetadata, bool), synced func()) *following {
	w := &simulatedWatch{of: a.sharder, isChild: a.isChild, selector: selector, strip: strip, handle: handle, done: synced, seen: map[id]int{}}
	s := a.sharder
	w.following = &following{stores: []cache.Store{cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)}, synced: func() bool { return w.isSynced }, stop: func() {
		s.watches = slices.DeleteFunc(s.watches, func(other *simulatedWatch) bool { return other == w })
	}}
	s.watches = append(s.watches, w)
	return w.following
}

// wait lets others act while the process waits for an answer.
func (s *sharder) wait() {
	s.busy++
	s.interleave()
	s.busy--
}

// fenced reports whether the API server refuses a dry run.
func (s *sharder) fenced(context.Context, *v1alpha1.ClusterRing, string) (bool, error) {
	s.isReading = true
	defer func() { s.isReading = false }()
	s.wait()
	return s.world.isFenced || s.mutant.forcesUnfenced, nil
}

// leaseReader reads Leases for a process.
type leaseReader struct{ of *sharder }

func (r leaseReader) Leases(string) coordinationv1client.LeaseInterface { return oneLease{of: r.of} }

type oneLease struct {
	coordinationv1client.LeaseInterface

	of *sharder
}

func (l oneLease) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.of.isReading = true
	defer func() { l.of.isReading = false }()
	l.of.wait()
	holder := ""
	if l.of.world.leases[slices.Index(shardNames, name)].isHeld && !l.of.mutant.ignoresLeases {
		holder = name
	}
	of := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.DefaultPrefix.RingLabel(): "website"}}}
	of.Spec.HolderIdentity = &holder
	l.of.wait()
	return of, nil
}

// queue is a work queue from which the simulation chooses.
type queue struct {
	workqueue.TypedRateLimitingInterface[types.NamespacedName]

	of        *sharder
	isOfChild bool
	items     []item
	// taken are the objects that are being processed.
	taken []types.NamespacedName
}

// item is an object in a queue, which is due at a time.
type item struct {
	key types.NamespacedName
	due time.Time
}

func (s *sharder) newQueue(isOfChild bool) *queue { return &queue{of: s, isOfChild: isOfChild} }

func (q *queue) index() int {
	if q.isOfChild {
		return 1
	}
	return 0
}

// take chooses the nth object that is due, and reports whether there is one.
func (q *queue) take(n int) bool {
	due := slices.DeleteFunc(slices.Clone(q.items), func(i item) bool { return i.due.After(q.of.world.now) || slices.Contains(q.taken, i.key) })
	if len(due) == 0 {
		return false
	}
	key := due[n%len(due)].key
	q.items = slices.DeleteFunc(q.items, func(i item) bool { return i.key == key && !i.due.After(q.of.world.now) })
	q.taken = append(q.taken, key)
	return true
}

// AddAfter adds an object that is due later. An object that is in the queue twice is due twice.
func (q *queue) AddAfter(key types.NamespacedName, after time.Duration) {
	due := q.of.world.now.Add(after)
	if !slices.ContainsFunc(q.items, func(i item) bool { return i.key == key && !i.due.After(due) && after == 0 }) {
		q.items = append(q.items, item{key, due})
		slices.SortStableFunc(q.items, func(a, b item) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.key.Name, b.key.Name)) })
	}
}

func (q *queue) Add(key types.NamespacedName)            { q.AddAfter(key, 0) }
func (q *queue) AddRateLimited(key types.NamespacedName) { q.AddAfter(key, retryPeriod) }
func (q *queue) Forget(types.NamespacedName)             {}

// Done ends the processing of an object.
func (q *queue) Done(key types.NamespacedName) {
	q.taken = slices.DeleteFunc(q.taken, func(other types.NamespacedName) bool { return other == key })
}

// Get returns the object that was taken.
func (q *queue) Get() (types.NamespacedName, bool) { return q.taken[len(q.taken)-1], false }

// noEvents discards events.
type noEvents struct{}

func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
