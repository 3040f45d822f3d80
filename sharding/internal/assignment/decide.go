package assignment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/internal/handover"
	"nodekeeper.dev/sharding/internal/place"
)

// confirmAfter is the delay before checking a move that the watch has not shown.
const confirmAfter = 10 * time.Second

// process performs the next action on one object, if any. It returns done = false if another
// goroutine continues with the object and enqueues it again.
func (t *tracker) process(ctx context.Context, key types.NamespacedName) (done bool, err error) {
	v, m := t.of.current(), t.find(key)
	if m == nil {
		if err := t.followUp(ctx, key); err != nil {
			return false, err
		}
		return true, t.confirmMove(ctx, key)
	}
	if !v.isLabelled(t.resource) {
		return true, nil
	}
	if t.isBehind(m) { // the watch or the next resync provides a newer version
		if t.forgetFound(key) {
			t.of.resyncs.markMoved()
		}
		return true, nil
	}
	if !v.selects(t.mapping, m) {
		return true, t.handleConflict(key, t.leave(ctx, v, m))
	}
	if shard := m.Labels[t.keys.shard]; shard != "" && !v.live[shard] {
		r, err := t.of.isGone(ctx, v, shard)
		if err != nil {
			return false, err
		}
		if !r.holds { // the shard has joined, and the table will contain it soon
			t.queue.AddAfter(key, retryPeriod)
			return true, nil
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.until())
		defer cancel()
	}
	if t.main == nil {
		return true, t.handleConflict(key, t.processChild(ctx, v, m))
	}
	done, err = t.processMain(ctx, v, m)
	return done, t.handleConflict(key, err)
}

// isBehind reports whether the known version of an object is older than the last write by this
// process.
func (t *tracker) isBehind(m *metav1.PartialObjectMetadata) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	version := t.written[keyFor(m)]
	return version != "" && isNewer(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}, m)
}

// leave removes the sharding metadata of an object whose namespace does not belong to the ring. The
// view may lack namespaces that have just joined the ring, so a live read must confirm that.
func (t *tracker) leave(ctx context.Context, v *view, m *metav1.PartialObjectMetadata) error {
	if m.Labels[t.keys.shard]+m.Labels[t.keys.drain] != "" {
		r, err := t.of.isOutside(ctx, v, namespaceOf(t.mapping, m))
		if err != nil {
			return err
		}
		if !r.holds {
			t.queue.AddAfter(keyFor(m), retryPeriod)
			return nil
		}
		ctx, cancel := context.WithDeadline(ctx, r.until())
		defer cancel()
		if err := unlabel(ctx, t.client.Namespace(m.Namespace), t.keys, m); err != nil {
			return err
		}
	}
	t.forgetFound(keyFor(m))
	return nil
}

// confirmMove ends a move that completed before the watch could show it.
func (t *tracker) confirmMove(ctx context.Context, key types.NamespacedName) error {
	if !t.of.moves.isActive(t, key) {
		return nil
	}
	m, err := t.get(ctx, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && m.Labels[t.keys.drain] != "" {
		t.queue.AddAfter(key, confirmAfter)
		return nil
	}
	t.of.moves.end(t, key)
	t.of.requestReport()
	return nil
}

// handleConflict counts a lost race. It returns nil if the object will be found again in its new
// state: a resync result that is out of date is discarded.
func (t *tracker) handleConflict(key types.NamespacedName, err error) error {
	if err == nil || !errors.Is(err, errConflict) && !apierrors.IsNotFound(err) {
		return err
	}
	t.of.metrics.conflicts.WithLabelValues(t.of.name).Inc()
	if t.forgetFound(key) || apierrors.IsNotFound(err) {
		return nil // the next resync finds it if necessary
	}
	return err // the watch may be behind
}

// processMain performs the next action on a main object.
func (t *tracker) processMain(ctx context.Context, v *view, m *metav1.PartialObjectMetadata) (done bool, err error) {
	if v.live[m.Labels[t.keys.shard]] {
		t.forgetChildren(m.UID) // the shard can create more children
	}
	d := t.decide(v, m)
	if to, ok := m.Labels[t.keys.drain]; ok && to == "" && d.Action == handover.Keep {
		d.Action = handover.Undrain // another client has set an empty drain label
	}
	switch d.Action {
	case handover.Keep:
	case handover.Assign:
		return true, t.assign(ctx, m, d)
	case handover.Drain:
		return true, t.drain(ctx, v, m, d)
	case handover.Undrain:
		if _, err := t.write(ctx, m, change{labels: map[string]*string{t.keys.drain: nil}}); err != nil {
			return true, err
		}
	case handover.MoveChildren:
		t.of.children.add(move{of: t, main: m, from: t.childrenAt(m, d.Shard), to: d.Shard})
		return false, nil
	case handover.Wait:
		t.await(m, d)
		return true, nil
	}
	t.forgetFound(keyFor(m))
	return true, nil
}

// childrenAt returns the shard that has the children of an object that moves to another shard. It
// returns "" if that is unknown, because another process may have begun to move them or some may
// already have moved elsewhere.
func (t *tracker) childrenAt(m *metav1.PartialObjectMetadata, to string) string {
	from := t.shardOf(m)
	t.mu.Lock()
	before := t.attempted[m.UID]
	now := attempt{to: to, scattered: before.scattered || before.to != "" && before.to != to}
	t.attempted[m.UID] = now
	t.mu.Unlock()
	if now.scattered || !t.of.hasSeenLive(from) {
		return ""
	}
	return from
}

// setMoved records that the children of an object are at a shard, up to these versions. It keeps
// later versions from an earlier attempt, which may have moved all the children there were.
func (t *tracker) setMoved(uid types.UID, to string, versions map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.moved[uid]; before.to == to {
		for resource, version := range before.versions {
			if isLater(version, versions[resource]) {
				versions[resource] = version
			}
		}
	}
	t.moved[uid] = moved{to: to, versions: versions}
}

// setScattered records that moving the children of an object has failed. It is unknown which of
// them have moved, because a response may have been lost.
func (t *tracker) setScattered(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.attempted[uid]
	before.scattered = true
	t.attempted[uid] = before
}

// forgetChildren discards the record of where the children of an object went.
func (t *tracker) forgetChildren(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.moved, uid)
	delete(t.attempted, uid)
}

// decide returns the decision about a main object.
func (t *tracker) decide(v *view, m *metav1.PartialObjectMetadata) handover.Decision {
	key := keyFor(m)
	t.mu.Lock()
	d, before := t.drained[key], t.moved[m.UID]
	t.mu.Unlock()
	o := handover.Object{Shard: m.Labels[t.keys.shard], Drain: m.Labels[t.keys.drain], ChildrenMoved: len(t.main.ControlledResources) == 0}
	if o.Drain != "" && d.uid == m.UID && d.to == o.Drain {
		o.DrainedFor = time.Since(d.since)
	}
	spec := v.ring.Spec.Handover
	rules := handover.Ring{
		Live: func(name string) bool { return v.live[name] }, Silent: func(name string) bool { return v.table.Silent[name] },
		Force: spec.OnTimeout == "Force", IsFull: t.of.moves.isFull(t, key, int(spec.MaxConcurrentMoves)),
	}
	if spec.DrainTimeout != nil {
		rules.DrainTimeout = spec.DrainTimeout.Duration
	}
	belongs := v.table.Of(place.Key(*t.main, m.Labels, place.Main(t.mapping.GroupVersionKind.GroupKind(), m.Namespace, m.Name)))
	decision := handover.Decide(o, belongs, rules)
	if decision.Action == handover.MoveChildren && before.to == decision.Shard {
		o.ChildrenMoved = true
		return handover.Decide(o, belongs, rules)
	}
	return decision
}

// assign assigns an object to a shard.
func (t *tracker) assign(ctx context.Context, m *metav1.PartialObjectMetadata, d handover.Decision) error {
	to := change{labels: map[string]*string{t.keys.shard: &d.Shard, t.keys.drain: nil}}
	t.mu.Lock()
	versions := t.moved[m.UID].versions
	t.mu.Unlock()
	if len(versions) > 0 {
		text, err := json.Marshal(versions)
		if err != nil {
			return fmt.Errorf("encoding the versions of children: %w", err)
		}
		to.annotations = map[string]*string{t.keys.children: new(string(text))}
	}
	_, err := t.write(ctx, m, to)
	if len(to.annotations) > 0 && hasNoRoom(err) { // otherwise the object would never be reconciled
		logf.FromContext(ctx).Info("Omitted the children annotation, because the object's annotations are full", "resource", t.mapping.Resource.String(), "object", keyFor(m))
		to.annotations = nil
		_, err = t.write(ctx, m, to)
	}
	if err != nil {
		return err
	}
	t.forgetChildren(m.UID)
	t.forgetFound(keyFor(m))
	if d.Why == "" {
		t.of.metrics.assigned(t)
		return nil
	}
	t.of.metrics.moved(t, d.Why)
	if d.Why == handover.Forced {
		t.of.event(corev1.EventTypeWarning, "Forced", "%s %s was assigned to shard %s although shard %s had not released it", t.mapping.GroupVersionKind.Kind, keyFor(m), d.Shard, m.Labels[t.keys.shard])
	}
	return nil
}

// drain asks the shard of an object to release it, or sets the target of a parked object.
func (t *tracker) drain(ctx context.Context, v *view, m *metav1.PartialObjectMetadata, d handover.Decision) error {
	key := keyFor(m)
	if !t.of.moves.reserve(t, key, int(v.ring.Spec.Handover.MaxConcurrentMoves)) {
		return nil // it is enqueued when another move ends
	}
	if _, err := t.write(ctx, m, change{labels: map[string]*string{t.keys.drain: &d.Shard}}); err != nil {
		if !t.isDraining(key) { // if the write was stored after all, the watch shows the hand-over
			t.of.moves.end(t, key)
		}
		return err
	}
	t.of.metrics.drains.WithLabelValues(t.of.name, t.resource.Group, t.resource.Resource).Inc()
	t.forgetFound(key)
	t.queue.AddAfter(key, confirmAfter)
	return nil
}

// isDraining reports whether the watch shows an object in a hand-over.
func (t *tracker) isDraining(key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drains == nil {
		return false
	}
	_, exists, err := t.drains.store.GetByKey(storeKey(key))
	return err == nil && exists
}

// await requeues an object for its drain timeout, queues it for a free move, or reports that its
// shard is late.
func (t *tracker) await(m *metav1.PartialObjectMetadata, d handover.Decision) {
	key := keyFor(m)
	if d.After > 0 {
		t.queue.AddAfter(key, d.After)
		return
	}
	if !d.IsLate {
		t.of.moves.await(t, key) // the maximum number of objects is moving
		return
	}
	t.mu.Lock()
	at, ok := t.drained[key]
	isNew := ok && at.uid == m.UID && !at.late // it may have been released meanwhile
	if isNew {
		at.late = true
		t.drained[key] = at
	}
	t.mu.Unlock()
	if isNew {
		t.of.event(corev1.EventTypeWarning, "DrainTimeout", "the shard of %s %s has not released it in time", t.mapping.GroupVersionKind.Kind, key)
		t.of.requestReport()
	}
}

// processChild assigns a child to the shard of the object that controls it. If that object's shard
// is gone, the object moves first, together with its children.
func (t *tracker) processChild(ctx context.Context, v *view, m *metav1.PartialObjectMetadata) error {
	key := keyFor(m)
	ref := metav1.GetControllerOf(m)
	main := t.of.mainOf(t.resource, ref)
	if main == nil {
		t.forgetFound(key) // its controller does not belong to the ring
		return nil
	}
	owner, err := main.get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: ref.Name})
	if apierrors.IsNotFound(err) || err == nil && owner.UID != ref.UID {
		t.forgetFound(key) // its controller is gone, so it will be deleted
		return nil
	}
	if err != nil {
		return err
	}
	shard, to := m.Labels[t.keys.shard], owner.Labels[t.keys.shard]
	_, hasDrain := m.Labels[t.keys.drain] // left from when its resource was a main resource
	switch {
	case to == shard && to != "" && !hasDrain:
		t.forgetFound(key)
		return nil
	case to == "" || !v.live[to]: // the controller has no live shard, so it is moving or waiting as well
		t.queue.AddAfter(key, childPeriod)
		return nil
	}
	if _, err := t.write(ctx, m, change{labels: map[string]*string{t.keys.shard: &to, t.keys.drain: nil}}); err != nil {
		return err
	}
	t.forgetFound(key)
	t.of.metrics.followed(t)
	return nil
}

// get reads the metadata of an object from the API server.
func (t *tracker) get(ctx context.Context, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if t.isClusterScoped() {
		key.Namespace = ""
	}
	return t.client.Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}) //nolint:wrapcheck // callers check the kind of error
}

// write changes an object, on the condition that its sharding labels are as they were read.
func (t *tracker) write(ctx context.Context, m *metav1.PartialObjectMetadata, to change) (*metav1.PartialObjectMetadata, error) {
	t.mu.Lock()
	_, wasFound := t.found[keyFor(m)]
	t.mu.Unlock()
	if wasFound {
		t.of.resyncs.markMoved()
	}
	known := []string{t.keys.shard, t.keys.drain}
	if t.keyLabel != "" {
		known = append(known, t.keyLabel) // it determines where the object belongs
	}
	after, err := write(ctx, t.client.Namespace(m.Namespace), m, known, to)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.written[keyFor(m)] = after.ResourceVersion
	t.mu.Unlock()
	t.forgetWrite(keyFor(m))
	return after, nil
}

// shardOf returns the shard of an object, or the shard that has released it, or "" if that is
// unknown.
func (t *tracker) shardOf(m *metav1.PartialObjectMetadata) string {
	if shard := m.Labels[t.keys.shard]; shard != "" {
		return shard
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.former[m.UID]
}

// isNewer reports whether an object is a later version than another one, which may be nil.
func isNewer(m, other *metav1.PartialObjectMetadata) bool {
	if other == nil {
		return true
	}
	return isLater(m.ResourceVersion, other.ResourceVersion)
}

// isLater reports whether a resourceVersion is later than another one, which may be "".
func isLater(version, other string) bool {
	if other == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order > 0
}
