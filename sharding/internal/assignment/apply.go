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

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// confirmAfter is the delay before checking a move that the watch has not shown.
const confirmAfter = 10 * time.Second

// process performs the next step for one object. It returns done = false if its children have not moved
// yet, so that a failure to move them stays known.
func (t *tracker) process(ctx context.Context, key types.NamespacedName) (done bool, err error) {
	v := t.of.current()
	m, s := t.next(key, v)
	ctx, cancel, holds, err := t.confirm(ctx, v, m, s.premise)
	if err != nil {
		return false, err
	}
	defer cancel()
	if !holds { // the cache is behind, and will show that soon
		if s.premise == isFenced {
			t.waitForFence(v, key, m)
		}
		t.queue.AddAfter(key, retryPeriod)
		return true, nil
	}
	if s.premise == isGone {
		t.countLeft(m) // the drain watch may have shown it before the orphan watch does
	}
	return s.do != moveChildren && s.do != awaitWrites, t.handleConflict(key, t.apply(ctx, v, key, m, s))
}

// next returns the next step for an object, and the newest known version of the object.
func (t *tracker) next(key types.NamespacedName, v *view) (m *metav1.PartialObjectMetadata, s step) {
	now := t.situation(key, v)
	t.change(key, func(o object) object {
		if m = t.findLocked(key); m != nil {
			now.settled = t.of.settledFor(m.UID, now.now)
		}
		s, o = t.kind.next(m, o, now)
		return o
	})
	return m, s
}

// situation returns the situation of an object in a view, except for the writes to its children.
func (t *tracker) situation(key types.NamespacedName, v *view) situation {
	isFull := t.of.moves.isFull(t, key, int(v.ring.Spec.Handover.MaxConcurrentMoves))
	return situation{view: v, now: t.of.now(), isFull: isFull}
}

// confirm reports whether the premise of a step holds. The returned context ends when the step must
// not rely on it any more.
func (t *tracker) confirm(ctx context.Context, v *view, m *metav1.PartialObjectMetadata, p premise) (context.Context, context.CancelFunc, bool, error) {
	var r reading
	var err error
	switch p {
	case none:
		return ctx, func() {}, true, nil
	case isGone:
		r, err = t.of.isGone(ctx, v, m.Labels[t.keys.shard])
	case isFenced:
		r, err = t.of.isFenced(ctx, v, m.Labels[t.keys.shard])
	case isOutside:
		r, err = t.of.isOutside(ctx, v, namespaceOf(t.mapping, m))
	}
	if err != nil {
		return nil, nil, false, err
	}
	ctx, cancel := context.WithDeadline(ctx, r.until())
	return ctx, cancel, r.holds, nil
}

// apply performs a step.
func (t *tracker) apply(ctx context.Context, v *view, key types.NamespacedName, m *metav1.PartialObjectMetadata, s step) error {
	switch s.do {
	case rest:
		t.forgetFound(key)
	case wait, awaitWrites:
		if s.after > 0 {
			t.queue.AddAfter(key, s.after)
		}
	case catchUp: // the watch or the next resync provides a newer version
		if t.forgetFound(key) {
			t.of.resyncs.markMoved()
		}
	case end:
		t.settle(key)
		return errors.Join(t.followUp(ctx, key), t.confirmMove(ctx, key))
	case leave:
		return t.leave(ctx, m)
	case follow:
		return t.follow(ctx, v, m)
	case assign:
		return t.assign(ctx, m, s)
	case startDrain:
		return t.startDrain(ctx, v, m, s.to)
	case undrain:
		return t.writeAndForget(ctx, m, change{labels: map[string]*string{t.keys.drain: nil}})
	case park:
		return t.park(ctx, m, s)
	case moveChildren:
		t.of.children.add(move{of: t, main: m, to: s.to})
	case awaitMove:
		t.of.moves.await(t, key)
	case reportLate:
		t.reportLate(v, key, place.WhyForceWaits(*t.main))
	}
	return nil
}

// reportLate reports that a shard has not released an object in time, and why the object is not
// taken from it.
func (t *tracker) reportLate(v *view, key types.NamespacedName, why string) {
	t.of.event(corev1.EventTypeWarning, "DrainTimeout", "the shard of %s %s has not released it in time", t.mapping.GroupVersionKind.Kind, key)
	if v.ring.Spec.Handover.OnTimeout == v1alpha1.Force {
		t.of.event(corev1.EventTypeWarning, "ForceWaits", "%s %s stays at its shard in spite of onTimeout Force, because %s", t.mapping.GroupVersionKind.Kind, key, why)
	}
	t.of.requestReport()
}

// waitForFence reports, once, an object that would be taken from its shard if a live check showed
// that the fence refuses the shard's writes.
func (t *tracker) waitForFence(v *view, key types.NamespacedName, m *metav1.PartialObjectMetadata) {
	isNew := false
	t.change(key, func(o object) object {
		if d := &o.life.drain; o.life.uid == m.UID && !d.since.IsZero() && !d.isLate {
			isNew, d.isLate = true, true
		}
		return o
	})
	if isNew {
		t.reportLate(v, key, fmt.Sprintf("a check does not show that the API server refuses the writes of its shard: see condition %s, and whether pod %s has a service account of the ring", place.FenceInstalled, m.Labels[t.keys.shard]))
	}
}

// leave removes the sharding metadata of an object.
func (t *tracker) leave(ctx context.Context, m *metav1.PartialObjectMetadata) error {
	if err := unlabel(ctx, t.api, t.keys, m); err != nil {
		return err
	}
	t.forgetFound(keyFor(m))
	return nil
}

// confirmMove ends a move that completed before the watch could show it.
func (t *tracker) confirmMove(ctx context.Context, key types.NamespacedName) error {
	if !t.of.moves.isActive(t, key) {
		return nil
	}
	m, err := t.api.get(ctx, key)
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

// assign assigns an object to a shard.
func (t *tracker) assign(ctx context.Context, m *metav1.PartialObjectMetadata, s step) error {
	to := change{labels: map[string]*string{t.keys.shard: &s.to, t.keys.drain: nil}}
	// If it arrived late, in another hand-over to the same shard, the children would not have moved.
	to.isOfVersion = len(t.main.ControlledResources) > 0 && m.Labels[t.keys.shard] == "" && m.Labels[t.keys.drain] != ""
	if len(s.versions) > 0 {
		text, err := json.Marshal(s.versions)
		if err != nil {
			return fmt.Errorf("encoding the versions of children: %w", err)
		}
		to.annotations = map[string]*string{t.keys.children: new(string(text))}
	}
	err := t.writeAndForget(ctx, m, to)
	if len(to.annotations) > 0 && hasNoRoom(err) { // otherwise the object would never be reconciled
		logf.FromContext(ctx).Info("Omitted the children annotation, because the object's annotations are full", "resource", t.mapping.Resource.String(), "object", keyFor(m))
		to.annotations = nil
		err = t.writeAndForget(ctx, m, to)
	}
	if err != nil {
		return err
	}
	t.of.moves.end(t, keyFor(m)) // an object of this name may have been deleted in its hand-over
	t.changeChildren(m, func(childrenMove) childrenMove { return childrenMove{} })
	if s.why == "" {
		t.of.metrics.assigned(t)
		return nil
	}
	t.of.metrics.moved(t, s.why)
	t.reportForced(m, s)
	return nil
}

// startDrain asks the shard of an object to release it, or sets the target of a parked object.
func (t *tracker) startDrain(ctx context.Context, v *view, m *metav1.PartialObjectMetadata, to string) error {
	key := keyFor(m)
	if !t.of.moves.reserve(t, key, int(v.ring.Spec.Handover.MaxConcurrentMoves)) {
		return nil // it is enqueued when another move ends
	}
	if err := t.writeAndForget(ctx, m, change{labels: map[string]*string{t.keys.drain: &to}}); err != nil {
		if !t.isDraining(key) { // if the write was stored after all, the watch shows the hand-over
			t.of.moves.end(t, key)
		}
		return err
	}
	if m.Labels[t.keys.shard] != "" {
		t.of.metrics.drains.WithLabelValues(t.of.name, t.resource.Group, t.resource.Resource).Inc()
	}
	t.queue.AddAfter(key, confirmAfter)
	return nil
}

// park takes an object from its shard, which is dead or late, without assigning it, so that its
// children can move.
func (t *tracker) park(ctx context.Context, m *metav1.PartialObjectMetadata, s step) error {
	if err := t.writeAndForget(ctx, m, change{labels: map[string]*string{t.keys.shard: nil, t.keys.drain: &s.to}}); err != nil {
		return err
	}
	t.reportForced(m, s)
	return nil
}

// reportForced reports a step that has taken an object from a live shard.
func (t *tracker) reportForced(m *metav1.PartialObjectMetadata, s step) {
	if s.premise != isFenced {
		return
	}
	t.of.event(corev1.EventTypeWarning, "Forced", "%s %s was taken from shard %s, which had not released it in time, and goes to shard %s", t.mapping.GroupVersionKind.Kind, keyFor(m), m.Labels[t.keys.shard], s.to)
}

// follow assigns a child to the shard of the object that controls it. If that object's shard is
// gone, the object moves first, together with its children.
func (t *tracker) follow(ctx context.Context, v *view, m *metav1.PartialObjectMetadata) error {
	key, ref := keyFor(m), metav1.GetControllerOf(m)
	main := t.of.mainOf(t.resource, ref)
	if main == nil {
		t.forgetFound(key) // its controller does not belong to the ring
		return nil
	}
	if main.isParked(types.NamespacedName{Namespace: m.Namespace, Name: ref.Name}) { // it moves its children, and must not wait for this
		t.queue.AddAfter(key, childPeriod)
		return nil
	}
	t.of.late.begin(ref.UID)
	defer t.of.late.end(ref.UID)
	controller, err := main.api.get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: ref.Name})
	if apierrors.IsNotFound(err) || err == nil && controller.UID != ref.UID {
		t.forgetFound(key) // its controller is gone, so it will be deleted
		return nil
	}
	if err != nil {
		return err
	}
	_, hasDrain := m.Labels[t.keys.drain]
	to, isMoving := nextOfChild(m.Labels[t.keys.shard], hasDrain, controller.Labels[t.keys.shard], v)
	switch {
	case isMoving:
		t.queue.AddAfter(key, childPeriod)
		return nil
	case to == "":
		t.forgetFound(key)
		return nil
	}
	if err := t.writeAndForget(ctx, m, change{labels: map[string]*string{t.keys.shard: &to, t.keys.drain: nil}}); err != nil {
		t.of.late.failed(ref.UID, err, t.of.now())
		return err
	}
	t.of.metrics.followed(t)
	return nil
}

// writeAndForget changes an object that a resync may have found.
func (t *tracker) writeAndForget(ctx context.Context, m *metav1.PartialObjectMetadata, to change) error {
	_, err := t.write(ctx, m, to)
	if err == nil {
		t.forgetFound(keyFor(m))
	}
	return err
}

// write changes an object, on the condition that its sharding labels are as they were read.
func (t *tracker) write(ctx context.Context, m *metav1.PartialObjectMetadata, to change) (*metav1.PartialObjectMetadata, error) {
	key := keyFor(m)
	if t.known(key).found != nil {
		t.of.resyncs.markMoved()
	}
	labels := []string{t.keys.shard, t.keys.drain}
	if t.keyLabel != "" {
		labels = append(labels, t.keyLabel) // it determines where the object belongs
	}
	after, err := t.api.patch(ctx, m, labels, to)
	if err != nil {
		return nil, err
	}
	t.change(key, func(o object) object {
		if t.findLocked(key) != nil {
			o.latest = after.ResourceVersion
		}
		return o
	})
	return after, nil
}

// isLater reports whether a resourceVersion is later than another one, which may be "".
func isLater(version, other string) bool {
	if other == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order > 0
}
