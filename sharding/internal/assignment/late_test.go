package assignment

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/sharding/internal/place"
)

func TestLateWritesAreAwaited(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := &lateWrites{}
	assert.Zero(t, l.settled("u", now))

	l.begin("u")
	l.begin("u")
	l.end("u")
	assert.Equal(t, now.Add(answerPeriod), l.settled("u", now), "one of two has its answer")
	assert.False(t, l.mayArrive("u", now), "it may not be sent at all")
	l.failed("u", context.DeadlineExceeded, now)
	l.end("u")
	assert.Equal(t, now.Add(arriveWithin), l.settled("u", now))
	assert.True(t, l.mayArrive("u", now))
	assert.False(t, l.mayArrive("other", now))
	l.forget(now)
	assert.NotEmpty(t, l.all)
	l.forget(now.Add(arriveWithin))
	assert.Empty(t, l.all)

	none := schema.GroupResource{}
	for _, err := range []error{
		errConflict, apierrors.NewNotFound(none, ""), apierrors.NewForbidden(none, "", nil), apierrors.NewInvalid(schema.GroupKind{}, "", nil), apierrors.NewBadRequest(""),
	} {
		l.failed("u", err, now)
		assert.Empty(t, l.all, "the API server has answered: %v", err)
	}
	l.failed("u", errors.New("connection reset"), now)
	l.begin("u")
	l.forget(now.Add(arriveWithin))
	assert.Len(t, l.all, 1, "another write is being sent")
}

// handoverToChild is a simulation of a main object at web-0 with a child that a policy has placed at web-1.
// The sharder is about to let the child follow, and the table to move the main object to web-1, where
// the child is already.
type handoverToChild struct{ *simulation }

func newHandoverToChild() handoverToChild {
	s := handoverToChild{newSimulation(mutant{})}
	s.reset(nil, false)
	s.world.create(id{true, "m0-0"}, "web-1", s.main())
	s.world.leave(0)
	for i := range shardCount {
		s.sharders[0].watchLease(i)
	}
	s.sharders[0].look()
	s.sharders[0].deliverAll(true)
	s.sharders[0].resync()
	return s
}

func (s handoverToChild) main() *metav1.PartialObjectMetadata { return s.world.get(id{false, "m0"}) }

func (s handoverToChild) child() *metav1.PartialObjectMetadata { return s.world.get(id{true, "m0-0"}) }

// follow lets the sharder process the child.
func (s handoverToChild) follow() { s.sharders[0].process(1) }

// release lets the sharder begin to hand the main object over to a shard, and its shard release it.
func (s handoverToChild) release(to int) {
	p := s.sharders[0]
	s.world.leave(to)
	p.look()
	p.resync()
	p.deliverAll(true)
	p.process(0)
	for _, shard := range s.shards {
		shard.seen["m0"] = len(s.world.objects[id{false, "m0"}].versions)
		shard.acknowledge("m0")
	}
}

// handOver lets the sharder hand the main object over to a shard, as far as it can now.
func (s handoverToChild) handOver(to int) {
	s.release(to)
	for range 3 {
		s.sharders[0].deliverAll(true)
		s.sharders[0].process(0)
		s.sharders[0].moveChildren()
	}
}

// A write that makes a child follow arrives after the main object has moved on. No version of the child
// is in between, so its resourceVersion would not show that either.
func TestHandoverWaitsForALateWriteToAChild(t *testing.T) {
	t.Parallel()
	s := newHandoverToChild()
	s.settings.late = 64
	s.follow()
	s.settings.late = 0
	require.Len(t, s.world.late, 1)
	s.handOver(1)
	require.Equal(t, parked("web-1"), s.main().Labels)

	s.world.now = s.world.now.Add(arriveWithin - time.Second)
	s.handOver(1)
	assert.Equal(t, parked("web-1"), s.main().Labels)
	s.world.arrive(0)
	require.Equal(t, at("web-0"), s.child().Labels)

	s.world.now = s.world.now.Add(time.Second)
	s.handOver(1)
	assert.Equal(t, at("web-1"), s.main().Labels)
	assert.Equal(t, at("web-1"), s.child().Labels)
}

// slowAPI calls a function after it has read an object, before the caller gets the answer.
type slowAPI struct {
	api

	meanwhile func()
}

func (a slowAPI) get(ctx context.Context, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	m, err := a.api.get(ctx, key)
	a.meanwhile()
	return m, err
}

// The main object is read for a child, and moves before the answer comes.
func TestHandoverWaitsForAWriteToAChildThatIsBeingSent(t *testing.T) {
	t.Parallel()
	s := newHandoverToChild()
	main := s.sharders[0].trackers[0]
	fast := main.api
	main.api = slowAPI{fast, func() {
		main.api = fast
		s.handOver(1)
		assert.Equal(t, parked("web-1"), s.main().Labels)
	}}
	s.follow()
	require.Equal(t, at("web-0"), s.child().Labels, "the write has arrived")

	s.world.now = s.world.now.Add(time.Second)
	s.handOver(1)
	assert.Equal(t, at("web-1"), s.main().Labels)
	assert.Equal(t, at("web-1"), s.child().Labels)
}

// lateAPI lets the first assignment of a main object be late.
type lateAPI struct {
	api

	of     *handoverToChild
	isLate bool
}

func (a *lateAPI) patch(ctx context.Context, m *metav1.PartialObjectMetadata, known []string, to change) (*metav1.PartialObjectMetadata, error) {
	if to.labels[shardKey] != nil && !a.isLate {
		a.of.settings.late, a.isLate = 64, true
	}
	defer func() { a.of.settings.late = 0 }()
	return a.api.patch(ctx, m, known, to)
}

// The write that ends a hand-over arrives in the next one to the same shard, before the children have
// moved.
func TestLateAssignmentDoesNotEndTheNextHandover(t *testing.T) {
	t.Parallel()
	s := newHandoverToChild()
	s.follow()
	main := s.sharders[0].trackers[0]
	main.api = &lateAPI{api: main.api, of: &s}
	s.handOver(1)
	require.Equal(t, parked("web-1"), s.main().Labels)
	require.Len(t, s.world.late, 1)
	for _, to := range []int{1, 0} {
		s.world.now = s.world.now.Add(time.Second)
		s.handOver(to)
		require.Equal(t, at(shardName(to)), s.main().Labels)
		require.Equal(t, at(shardName(to)), s.child().Labels)
	}
	s.release(1)
	require.Equal(t, parked("web-1"), s.main().Labels)
	s.world.arrive(0)
	assert.Equal(t, parked("web-1"), s.main().Labels)
	s.handOver(1)
	assert.Equal(t, at("web-1"), s.main().Labels)
	assert.Equal(t, at("web-1"), s.child().Labels)
}

// Many children that are read one after the other would keep a parked object from moving its children.
func TestChildOfAParkedObjectIsNotRead(t *testing.T) {
	t.Parallel()
	s := newHandoverToChild()
	p := s.sharders[0]
	requests := &countingAPI{api: p.trackers[0].api}
	p.trackers[0].api = requests
	follow := func() {
		require.NoError(t, p.trackers[1].follow(t.Context(), p.assigner.current(), s.child()))
	}
	follow()
	assert.Equal(t, 1, requests.gets)
	s.release(1)
	require.Equal(t, parked("web-1"), s.main().Labels)
	p.deliverAll(true)
	before := requests.gets
	follow()
	assert.Equal(t, before, requests.gets)
	assert.Empty(t, p.assigner.late.all)
}

// The labels of an object whose namespace leaves the ring in a hand-over are removed. That looks as if
// its shard had released it, and no watch shows it any more.
func TestObjectThatHasLeftTheRingIsForgotten(t *testing.T) {
	t.Parallel()
	s := newHandoverToChild()
	p := s.sharders[0]
	of, key := p.trackers[0], keyFor(s.main())
	of.change(key, func(o object) object {
		o.released = release{s.main().UID, "web-1"}
		return o
	})
	left := *p.assigner.current()
	left.selection = place.Only("others")
	p.assigner.view = &left
	require.NoError(t, of.followUp(t.Context(), key))
	assert.Zero(t, of.known(key).released)
	assert.Empty(t, p.assigner.children.waiting)
}
