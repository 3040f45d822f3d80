package assignment

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/daemon/signal"
)

// children moves the children of main objects before the main objects themselves. Pending moves are
// batched. It finds the children of all shards, because policies place the ones that no shard creates
// by the table of that time.
//
// It must not miss a child that the shard created before it released the main object. A list that
// begins afterwards contains it. A view that was opened earlier shows it at the latest when it shows a
// write of an object of that resource that was sent afterwards, because a watch shows changes in their
// order. So a batch first moves the children that the view shows, which must be written anyway. When
// the view shows the last of these writes, it shows all children. If there was none to write, the
// children are listed again, and the watch goes on. If the view does not get there, it is opened again.
type children struct {
	of *assigner
	// views are the open views, by tracker. Only run uses them.
	views map[*tracker]*childView

	mu      sync.Mutex
	waiting map[types.UID]move
	// moving is the batch that is being moved.
	moving batch
	wake   signal.Signal
}

// move is a main object whose children must move.
type move struct {
	of   *tracker
	main *metav1.PartialObjectMetadata
	to   string
	// after is the shard that has released the object, if the object itself has already moved, and ""
	// otherwise.
	after string
}

// batch is a set of moves, by the UIDs of the main objects.
type batch map[types.UID]*result

// result is the outcome of a move.
type result struct {
	move

	mu       sync.Mutex
	versions map[string]string
	err      error
}

func newChildren(of *assigner) *children {
	return &children{of: of, views: map[*tracker]*childView{}, waiting: map[types.UID]move{}, wake: signal.New()}
}

// add requests that the children of an object be moved. The object is enqueued afterwards, even on
// failure. A repeated request for the same version has no effect: it would find no child to write.
func (c *children) add(m move) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.moving[m.main.UID]; r != nil && r.of == m.of && r.to == m.to && r.after == m.after && r.main.ResourceVersion == m.main.ResourceVersion {
		return
	}
	c.waiting[m.main.UID] = m
	c.wake.Send()
}

// run moves children until ctx ends.
func (c *children) run(ctx context.Context) {
	for {
		var idle <-chan time.Time
		if len(c.views) > 0 {
			idle = time.After(keepViews)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			c.move(ctx, c.take())
		case <-idle:
		}
		c.closeViews(c.of.now().Add(-keepViews))
	}
}

// closeViews closes the views that have ended, and those that no batch has used since a time.
func (c *children) closeViews(since time.Time) {
	for of, v := range c.views {
		if v.hasEnded() || !v.used.After(since) {
			c.closeView(of)
		}
	}
}

func (c *children) closeView(of *tracker) {
	if v := c.views[of]; v != nil {
		v.stop()
		delete(c.views, of)
	}
}

// take removes and returns the pending moves.
func (c *children) take() batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := batch{}
	for uid, m := range c.waiting {
		b[uid] = &result{move: m, versions: map[string]string{}}
	}
	clear(c.waiting)
	c.moving = b
	return b
}

// end allows new requests for a batch.
func (c *children) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving = nil
}

// move moves the children of a batch and enqueues the main objects.
func (c *children) move(ctx context.Context, b batch) {
	done := map[*tracker]bool{}
	for _, r := range b {
		all, err := c.of.controlledBy(r.of)
		if err != nil {
			r.fail(err)
		}
		for _, of := range all {
			if done[of] {
				continue
			}
			done[of] = true
			if err := c.moveAll(ctx, of, b); err != nil {
				b.fail(of, err)
			}
		}
	}
	c.end()
	for _, r := range b {
		key := keyFor(r.main)
		if r.err != nil {
			c.of.handleError(ctx, r.of, key, r.err)
			if !errors.Is(r.err, errConflict) {
				r.of.changeChildren(r.main, childrenMove.failed)
			}
			r.of.queue.AddRateLimited(key)
			continue
		}
		if r.after != "" {
			r.of.forgetRelease(key, r.after)
			continue
		}
		if !c.of.late.mayArrive(r.main.UID, c.of.now()) { // otherwise the result may not last
			r.of.changeChildren(r.main, func(c childrenMove) childrenMove { return c.done(r.to, r.versions) })
		}
		r.of.queue.Add(key)
	}
}

// fail records an error for all moves that may have children of a resource.
func (b batch) fail(of *tracker, err error) {
	for _, r := range b {
		if slices.Contains(r.of.main.ControlledResources, of.resource) {
			r.fail(err)
		}
	}
}

// moveAll moves the children of a batch that belong to one resource.
func (c *children) moveAll(ctx context.Context, of *tracker, b batch) error {
	selector := of.childSelector(c.of.current(), b)
	v := c.views[of]
	isRecent := false
	if v != nil && v.isOpen(selector) {
		var err error
		if isRecent, err = c.catchUp(ctx, of, v, selector, b); err != nil {
			return err
		}
	}
	if !isRecent {
		c.closeView(of)
		var err error
		if v, err = of.openView(ctx, selector); err != nil {
			return err
		}
		c.views[of] = v
	}
	c.write(ctx, of, v, b, true)
	v.used = c.of.now()
	return nil
}

// catchUp moves the children that a view shows, and reports whether the view then shows all of them.
func (c *children) catchUp(ctx context.Context, of *tracker, v *childView, selector string, b batch) (isRecent bool, err error) {
	last := c.write(ctx, of, v, b, false)
	if last == "" && v.selector != selector {
		return false, nil // it shows more than is needed, so a list takes longer
	}
	if last == "" {
		_, err := of.list(ctx, v)
		return err == nil && !v.hasEnded(), err
	}
	isDue := func() bool { return v.hasReached(last) || v.hasEnded() } // an API server ends a watch that is slow
	return of.api.await(ctx, isDue) && !v.hasEnded(), nil
}

// write moves the children that a view shows of the main objects of a batch. It returns the version of
// the last write, or "" if there was none. The argument isRecent is unset if the view may be behind.
func (c *children) write(ctx context.Context, of *tracker, v *childView, b batch, isRecent bool) (last string) {
	current := c.of.current()
	limit := make(chan struct{}, c.of.Concurrency)
	var mu sync.Mutex
	var writes sync.WaitGroup
	for _, child := range v.of(b) {
		if child.Labels[of.keys.shard] == "" && (!current.isLabelled(of.resource) || !current.selects(of.mapping, child)) {
			continue // a cluster-scoped object can have children in namespaces outside the ring
		}
		r := b[metav1.GetControllerOfNoCopy(child).UID]
		limit <- struct{}{}
		writes.Go(func() {
			defer func() { <-limit }()
			written, err := r.take(ctx, of, child)
			if err != nil && (isRecent || !errors.Is(err, errConflict)) {
				r.fail(err)
			}
			if written == nil {
				return
			}
			v.wrote(of.strip(written))
			mu.Lock()
			defer mu.Unlock()
			if isLater(written.ResourceVersion, last) {
				last = written.ResourceVersion
			}
		})
	}
	writes.Wait()
	return last
}

// childSelector returns a selector that matches at least all children of a batch. Without a policy,
// or if a policy was skipped, it also matches objects without a label: the shard may have created
// them just before it released their main object.
func (t *tracker) childSelector(v *view, b batch) string {
	if v.isUnderPolicy() && !t.hasBare(b) {
		return t.keys.shard
	}
	return ""
}

// hasBare reports whether a child of a batch may have no label.
func (t *tracker) hasBare(b batch) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	bare := t.watches.bare
	if bare == nil {
		return false
	}
	return !bare.synced() || slices.ContainsFunc(bare.list(), func(m *metav1.PartialObjectMetadata) bool {
		ref := metav1.GetControllerOf(m)
		return ref != nil && b[ref.UID] != nil
	})
}

// take moves one child. It returns what it has written, or nil if it has not changed the child.
func (r *result) take(ctx context.Context, of *tracker, child *metav1.PartialObjectMetadata) (written *metav1.PartialObjectMetadata, err error) {
	after := child
	if child.Labels[of.keys.shard] != r.to {
		after, err = of.write(ctx, child, change{labels: map[string]*string{of.keys.shard: &r.to}})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			of.of.late.failed(r.main.UID, err, of.of.now())
			return nil, err
		}
		if after.Labels[of.keys.shard] == r.to { // otherwise, admission has reverted the change, and no version was stored
			written = after
		}
		of.of.metrics.followed(of)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := of.resource.Resource
	if of.resource.Group != "" {
		name += "." + of.resource.Group
	}
	if isLater(after.ResourceVersion, r.versions[name]) {
		r.versions[name] = after.ResourceVersion
	}
	return written, nil
}

func (r *result) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err == nil || errors.Is(r.err, errConflict):
		r.err = err
	case !errors.Is(err, errConflict): // a lost race must not hide another error
		r.err = errors.Join(r.err, err)
	}
}
