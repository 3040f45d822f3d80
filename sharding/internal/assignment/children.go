package assignment

import (
	"context"
	"errors"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/daemon/signal"
)

// children moves the children of main objects before the main objects themselves. Pending moves are
// batched: one list per resource finds the children of all of them. It lists the children of all
// shards, because policies place the ones that no shard creates by the table of that time.
type children struct {
	of *assigner

	mu      sync.Mutex
	waiting map[types.UID]move
	wake    signal.Signal
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
	return &children{of: of, waiting: map[types.UID]move{}, wake: signal.New()}
}

// add requests that the children of an object be moved. The object is enqueued afterwards, even on
// failure.
func (c *children) add(m move) {
	c.mu.Lock()
	c.waiting[m.main.UID] = m
	c.mu.Unlock()
	c.wake.Send()
}

// run moves children until ctx ends.
func (c *children) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		c.move(ctx, c.take())
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
	return b
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
	for _, r := range b {
		key := keyFor(r.main)
		now := c.of.now()
		if r.err != nil {
			c.of.handleError(ctx, r.of, key, r.err)
			if !errors.Is(r.err, errConflict) {
				r.of.changeChildren(r.main, func(c childrenMove) childrenMove { return c.failed(r.to, now) })
			}
			r.of.queue.AddRateLimited(key)
			continue
		}
		if r.after != "" {
			r.of.forgetRelease(key, r.after)
			continue
		}
		r.of.changeChildren(r.main, func(c childrenMove) childrenMove { return c.done(r.to, r.versions, now) })
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

// moveAll moves the children of a batch that belong to one resource. It lists them from etcd, so
// that it does not miss any that the shard created before it released the main object.
func (c *children) moveAll(ctx context.Context, of *tracker, b batch) error {
	v := c.of.current()
	limit := make(chan struct{}, c.of.Concurrency)
	var writes sync.WaitGroup
	defer writes.Wait()
	return of.api.list(ctx, of.childSelector(v, b), func(child *metav1.PartialObjectMetadata) error {
		owner := metav1.GetControllerOf(child)
		if owner == nil || b[owner.UID] == nil {
			return nil
		}
		if child.Labels[of.keys.shard] == "" && (!v.isLabelled(of.resource) || !v.selects(of.mapping, child)) {
			return nil // a cluster-scoped object can have children in namespaces outside the ring
		}
		limit <- struct{}{}
		writes.Go(func() {
			defer func() { <-limit }()
			b[owner.UID].take(ctx, of, child)
		})
		return nil
	})
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

// take moves one child.
func (r *result) take(ctx context.Context, of *tracker, child *metav1.PartialObjectMetadata) {
	after := child
	if child.Labels[of.keys.shard] != r.to {
		var err error
		after, err = of.write(ctx, child, change{labels: map[string]*string{of.keys.shard: &r.to}})
		if apierrors.IsNotFound(err) {
			return
		}
		if err != nil {
			r.fail(err)
			return
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
