package assignment

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// world is the API server: it stores the objects of a ring, the Leases of its shards and its table,
// and has the journal of what the shards did.
type world struct {
	now     time.Time
	rv      int
	objects map[id]*stored
	order   []id // the objects in the order of their creation
	changes []changed
	leases  []*lease
	// table is the set of shards in the table, as bits, and tableVersion its resourceVersion.
	table, tableVersion int
	// leaving is the set of shards that get no slots.
	leaving int
	// leadUntil is when the Lease of the leading sharder ends.
	leadUntil time.Time
	// isFenced is set if the API server refuses writes of shards to objects without their label, and
	// never cleared.
	isFenced bool
	// forced are the objects that were taken from a shard while it held its Lease.
	forced map[types.UID]bool
	// late are writes that have not arrived yet.
	late   []lateWrite
	writes int

	journal map[types.UID]*entry
	// creators are the shards that have created children.
	creators map[types.UID]int
	// moved are the objects that the sharder has written.
	moved  map[types.UID]bool
	tracks bool
	trace  []string
	broken error

	selectors map[string]labels.Selector
}

// id identifies an object: a main object, or a child.
type id struct {
	isChild bool
	name    string
}

// stored has all versions of an object. A nil version is a deletion.
type stored struct {
	versions []*metav1.PartialObjectMetadata
}

func (o *stored) current() *metav1.PartialObjectMetadata { return o.versions[len(o.versions)-1] }

// changed is a change of an object: its new version or, if it was deleted, the last one, with the
// resourceVersion of the deletion.
type changed struct {
	of     id
	object *metav1.PartialObjectMetadata
	exists bool
}

// lease is the Lease of a shard.
type lease struct {
	isHeld bool
	// epoch counts the processes that acquired it, and version its writes.
	epoch, version int
}

// lateWrite is a write whose request or answer is delayed. It arrives before its deadline or never.
type lateWrite struct {
	deadline time.Time
	arrive   func()
}

// entry is what the journal has about an object: the last passage that acted on it.
type entry struct{ passage, shard int }

// The keys of the sharding metadata in the simulation.
const (
	shardKey    = "shard"
	drainKey    = "drain"
	childrenKey = "children"
)

// begin is the time at which every run begins. It is so far away that the timers of contexts, which
// use the real clock, never end.
var begin = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

func (w *world) reset(tracks bool) {
	selectors := w.selectors
	if selectors == nil {
		selectors = map[string]labels.Selector{}
	}
	*w = world{now: begin, rv: 10, objects: map[id]*stored{}, journal: map[types.UID]*entry{}, forced: map[types.UID]bool{}, creators: map[types.UID]int{}, moved: map[types.UID]bool{}, tracks: tracks, selectors: selectors}
	for range shardCount {
		w.leases = append(w.leases, &lease{})
	}
}

func (w *world) record(format string, args ...any) {
	if w.tracks {
		w.trace = append(w.trace, fmt.Sprintf("%4ds  ", int(w.now.Sub(begin).Seconds()))+fmt.Sprintf(format, args...))
	}
}

// breaks records that a promise is broken. The first one counts.
func (w *world) breaks(promise error, format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("%w: %s", promise, fmt.Sprintf(format, args...))
		w.record("BROKEN: %v", w.broken)
	}
}

// leave lets all shards leave but one, and writes the table.
func (w *world) leave(shard int) {
	w.leaving = 1<<shardCount - 1 - 1<<shard
	table := 0
	for i, l := range w.leases {
		if l.isHeld {
			table |= 1 << i
		}
	}
	w.table = w.withoutLeaving(table)
	w.tableVersion++
	w.record("the table has the shards %v", names(w.table))
}

// withoutLeaving returns the shards of a set that get slots.
func (w *world) withoutLeaving(table int) int {
	if table&^w.leaving == 0 {
		return table
	}
	return table &^ w.leaving
}

// get returns the current version of an object, or nil.
func (w *world) get(of id) *metav1.PartialObjectMetadata {
	if o := w.objects[of]; o != nil {
		return o.current()
	}
	return nil
}

// all returns the current versions of all main objects or of all children.
func (w *world) all(isChild bool) (all []*metav1.PartialObjectMetadata) {
	for _, of := range w.order {
		if m := w.get(of); m != nil && of.isChild == isChild {
			all = append(all, m)
		}
	}
	return all
}

// childrenOf returns the children of a main object.
func (w *world) childrenOf(uid types.UID) (all []*metav1.PartialObjectMetadata) {
	for _, m := range w.all(true) {
		if m.OwnerReferences[0].UID == uid {
			all = append(all, m)
		}
	}
	return all
}

func (w *world) nextVersion() string {
	w.rv++
	return strconv.Itoa(w.rv)
}

// store stores a version of an object, or its deletion.
func (w *world) store(of id, m *metav1.PartialObjectMetadata) {
	o := w.objects[of]
	if o == nil {
		o = &stored{}
		w.objects[of] = o
		w.order = append(w.order, of)
	}
	change := changed{of, m, m != nil}
	if m == nil {
		change.object = o.current().DeepCopy()
	}
	change.object.ResourceVersion = w.nextVersion()
	o.versions = append(o.versions, m)
	w.changes = append(w.changes, change)
	w.writes++
}

// create creates an object, which a policy has assigned to a shard, or not.
func (w *world) create(of id, shard string, owner *metav1.PartialObjectMetadata) {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: of.name, UID: types.UID("u" + strconv.Itoa(w.rv)), Labels: map[string]string{}}}
	if shard != "" {
		m.Labels[shardKey] = shard
	}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID, Controller: new(true)}}
	}
	w.store(of, m)
}

// remove deletes a main object and its children.
func (w *world) remove(m *metav1.PartialObjectMetadata) {
	for _, child := range w.childrenOf(m.UID) {
		w.store(id{true, child.Name}, nil)
	}
	w.store(id{false, m.Name}, nil)
}

// patch changes an object if it still has the UID and the labels that were read. It returns the error
// that the client returns.
func (w *world) patch(of id, m *metav1.PartialObjectMetadata, known []string, to change, by mutant) (*metav1.PartialObjectMetadata, error) {
	now := w.get(of)
	if now == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, of.name)
	}
	if now.UID != m.UID || !by.patchesBlindly && !maps.Equal(only(m.Labels, known...), only(now.Labels, known...)) {
		return nil, errConflict
	}
	if to.isOfVersion && now.ResourceVersion != m.ResourceVersion {
		return nil, errConflict
	}
	after := now.DeepCopy()
	after.Labels = edited(after.Labels, to.labels)
	if len(to.annotations) > 0 {
		after.Annotations = edited(after.Annotations, to.annotations)
	}
	w.store(of, after)
	w.moved[after.UID] = true
	return after, nil
}

func edited(entries map[string]string, changes map[string]*string) map[string]string {
	after := maps.Clone(entries)
	if after == nil {
		after = map[string]string{}
	}
	for key, value := range changes {
		if value == nil {
			delete(after, key)
		} else {
			after[key] = *value
		}
	}
	return after
}

// arrive lets one of the late writes arrive.
func (w *world) arrive(at int) {
	write := w.late[at]
	w.late = slices.Delete(w.late, at, at+1)
	if !w.now.Before(write.deadline) {
		return
	}
	w.record("a late write arrives")
	write.arrive()
}

// matches reports whether a version of an object matches a selector.
func (w *world) matches(selector string, m *metav1.PartialObjectMetadata) bool {
	if m == nil {
		return false
	}
	parsed := w.selectors[selector]
	if parsed == nil {
		var err error
		if parsed, err = labels.Parse(selector); err != nil {
			panic(err)
		}
		w.selectors[selector] = parsed
	}
	return parsed.Matches(labels.Set(m.Labels))
}

// act records that a shard acts on an object in one of its passages.
func (w *world) act(uid types.UID, name string, passage, shard int) {
	last := w.journal[uid]
	if last == nil {
		last = &entry{}
		w.journal[uid] = last
	}
	if passage < last.passage && shard != last.shard {
		w.breaks(errS1, "%s acts on %s, on which %s has begun to act meanwhile", shardName(shard), name, shardName(last.shard))
	}
	if passage > last.passage {
		last.passage, last.shard = passage, shard
	}
}

// checkChildren checks the children of an object on which a shard begins to act.
func (w *world) checkChildren(m *metav1.PartialObjectMetadata, shard int) {
	for _, child := range w.childrenOf(m.UID) {
		if w.isPlaced(child) {
			continue // the policy may have another table, and the sharder may not know of the child
		}
		if at := child.Labels[shardKey]; at != shardName(shard) && (at != "" || w.creators[child.UID] != shard) {
			w.breaks(errS2, "%s begins to act on %s without its child %s, which is at %q", shardName(shard), m.Name, child.Name, at)
		}
	}
}

// isPlaced reports whether a child is where a policy has placed it, and no shard has created it.
func (w *world) isPlaced(child *metav1.PartialObjectMetadata) bool {
	_, isOfShard := w.creators[child.UID]
	return !isOfShard && !w.moved[child.UID]
}

// checkVersions checks the annotation of an object that was assigned to a shard.
func (w *world) checkVersions(m *metav1.PartialObjectMetadata, by change) {
	shard := m.Labels[shardKey]
	if by.labels[shardKey] == nil {
		return
	}
	var versions map[string]string
	if text, ok := m.Annotations[childrenKey]; ok {
		if err := json.Unmarshal([]byte(text), &versions); err != nil {
			panic(err)
		}
	}
	for _, child := range w.childrenOf(m.UID) {
		if !w.isPlaced(child) && child.Labels[shardKey] == shard && isLater(child.ResourceVersion, versions[configMaps.Resource]) {
			w.breaks(errS4, "%s is assigned with %v, but %s has version %s", m.Name, versions, child.Name, child.ResourceVersion)
		}
	}
}

// The promises.
var (
	errS1 = errors.New("S1: while a shard acts on an object, no other one does")
	// Those that it has created itself are an exception, while no policy assigns them.
	errS2 = errors.New("S2: a shard that begins to act on an object has all of its children")
	errS3 = errors.New("S3: in the end, every object is where the table places it, and nothing is written any more")
	errS4 = errors.New("S4: an object is assigned with the last versions of the children that have moved before it")
	errS6 = errors.New("S6: nothing is remembered of objects at rest")
	errS5 = errors.New("S5: no object is taken from a shard that acts on it, unless a fence refuses its writes")
)

var errRefused = errors.New("the API server is not reachable")

// describe returns the state of an object for the trace.
func describe(m *metav1.PartialObjectMetadata) string {
	if m == nil {
		return "deleted"
	}
	text := fmt.Sprintf("%s(%s) at %q", m.Name, m.UID, m.Labels[shardKey])
	if to, ok := m.Labels[drainKey]; ok {
		text += fmt.Sprintf(", drained to %q", to)
	}
	return text
}
