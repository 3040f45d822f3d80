package controller

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

func TestOrdinalsOfAStatefulSet(t *testing.T) {
	t.Parallel()
	p := &pass{loop: newLoop(nil, Pool{StatefulSet: "w"}, nil)}
	p.set = &version[*workload]{parsed: parseWorkload(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), Ordinals: &appsv1.StatefulSetOrdinals{Start: 2}}})}
	for name, want := range map[string]struct{ returns, isSurplus bool }{
		"w-1": {false, true}, "w-2": {true, false}, "w-4": {true, false}, "w-5": {false, true}, "w-2147483647": {false, true},
		"w-02": {}, "w-x": {}, "w-99999999999": {}, "w--1": {}, "other-2": {}, "w": {}, "": {},
	} {
		assert.Equal(t, want.returns, p.returns(name), name)
		assert.Equal(t, want.isSurplus, p.isSurplus(name), name)
	}
	p.set = nil // it does not exist
	assert.False(t, p.returns("w-2"))
	assert.False(t, p.isSurplus("w-9"))
	assert.Equal(t, workload{0, 1}, *parseWorkload(&appsv1.StatefulSet{}))
}

// TestPodWithoutALeaseKeepsItsCapacity: otherwise its work would have to fit into that of the pool.
func TestPodWithoutALeaseKeepsItsCapacity(t *testing.T) {
	t.Parallel()
	l := newLoop(nil, Pool{Capacity: 50}, nil)
	r := &resource{status: placement.Status{Placeable: placement.Placeable{Placement: []placement.Placement{{PodName: "w-0", Incarnation: "u/1"}}}}}
	pods := func(members map[string]*version[*member], resources ...*version[*resource]) []schedule.Pod {
		p := &pass{loop: l, now: time.Now(), members: members, resources: resources}
		p.schedulePods()
		return p.pods
	}
	pods(map[string]*version[*member]{"w-0": {at: time.Now(), parsed: &member{holder: "u/1", duration: time.Minute, capacity: 100}}})
	assert.Equal(t, []schedule.Pod{{Name: "w-0", Capacity: 100, State: schedule.Closed}}, pods(nil, &version[*resource]{parsed: r}))
	assert.Empty(t, pods(nil))
	assert.Empty(t, l.capacities)
}

// TestMissingStatefulSetIsLogged once each time.
func TestMissingStatefulSetIsLogged(t *testing.T) {
	t.Parallel()
	var logs []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { logs = append(logs, args) }, funcr.Options{}))
	l := newLoop(nil, Pool{StatefulSet: "w"}, nil)
	set := &version[*workload]{parsed: &workload{0, 2}}
	for _, now := range []*version[*workload]{nil, nil, set, nil, set} {
		(&pass{loop: l, set: now}).noteStatefulSet(ctx)
	}
	require.Len(t, logs, 2)
	assert.Contains(t, logs[0], `"statefulSet"="w"`)
	(&pass{loop: newLoop(nil, Pool{}, nil)}).noteStatefulSet(ctx)
	assert.Len(t, logs, 2)
}

// TestPatienceCountsFromTheFirstSign of death, and not from the takeover.
func TestPatienceCountsFromTheFirstSign(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	l := newLoop(nil, Pool{StatefulSet: "w", Patience: 30 * time.Second}, nil)
	share := []placement.Placement{{PodName: "w-1", Incarnation: "u/1", Indexes: "0"}}
	free := &version[*member]{parsed: &member{}}
	state := func(after time.Duration, m *member) (schedule.State, time.Duration) {
		p := &pass{loop: l, now: begin.Add(after), holders: map[string]string{}, lostPods: map[string]time.Time{}, set: &version[*workload]{parsed: &workload{0, 2}}}
		if free.parsed = m; m.holder != "" {
			p.holders[m.holder] = "w-1"
		}
		free.at = p.now
		p.noteLosses(share)
		return p.stateOf("w-1", free), p.due
	}
	held := &member{holder: "u/1", duration: time.Minute}
	now, _ := state(0, held)
	assert.Equal(t, schedule.Open, now)
	now, due := state(time.Second, &member{ended: []string{"u/1"}})
	assert.Equal(t, schedule.Closed, now)
	assert.Equal(t, 30*time.Second, due)
	now, due = state(21*time.Second, &member{ended: []string{"u/1"}})
	assert.Equal(t, schedule.Closed, now)
	assert.Equal(t, 10*time.Second, due)
	now, _ = state(22*time.Second, &member{unschedulable: true})
	assert.Equal(t, schedule.Ended, now, "a user has decided")
	now, _ = state(31*time.Second, &member{ended: []string{"u/1"}})
	assert.Equal(t, schedule.Ended, now)
	now, _ = state(32*time.Second, held)
	assert.Equal(t, schedule.Open, now)
	now, _ = state(60*time.Second, &member{})
	assert.Equal(t, schedule.Closed, now, "it counts from the next sign")
	l.losses["u/1"] = begin.Add(29 * time.Second) // its last renewal before a takeover
	now, due = state(61*time.Second, &member{})
	assert.Equal(t, schedule.Ended, now)
	assert.Zero(t, due)
}
