package simulation

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// story is a schedule that detects a mutant and that random choices hardly ever produce. It is
// minimal: without any one of its steps, the mutant breaks no promise.
type story struct {
	breaks error
	steps  []step
}

// stories contains the schedules for the mutants that need one.
var stories = map[string]story{
	"decide: since does not move":      {errBrokeW1, stalledGrant},
	"release: the decision is ignored": {errBrokeW1, stalledGrant},

	"release: by the number without the digest":               {errBrokeW1, lostContract},
	"release: by the acknowledgement of an earlier ConfigMap": {errBrokeW1, lostContract},

	// A pod is replaced while its process still works, and its Lease is deleted, so that the new
	// process can join at once. It acknowledges the contract that the old process would have to
	// acknowledge.
	"release: by the contract of another incarnation": {errBrokeW1, []step{
		acts(pod0),
		decides(leader1),
		builds(leader1, pod0),
		acts(pod0),
		deletesOnPod0(leaseKind),
		isReplaced,
		acts(newPod0),
		decides(leader1),
		builds(leader1, pod0),
		acts(newPod0),
		releases(leader1),
		builds(leader1, pod0),
		acts(newPod0),
	}},

	// The first leader does not see that the second one has moved the vreplica from pod 0 to pod 1.
	// Then the contract of pod 0 is deleted, which is the only object that would refuse a write
	// from an old cache.
	"build: creates a contract with entries": {errBrokeW1, []step{
		acts(pod0),
		acts(pod1),
		decides(leader1),
		lags(leader1, resourceKind),
		leavesOrReturns(pod0),
		decides(leader2),
		builds(leader2, pod0),
		acts(pod0),
		releases(leader2),
		builds(leader2, pod1),
		acts(pod1),
		deletesOnPod0(contractKind),
		builds(leader1, pod0),
		acts(pod0),
	}},

	// The first leader does not see that the vreplica has moved from pod 0 to pod 1. It sees that
	// the contract of pod 0 has no entry, as it had none before.
	"build: an entry is made from a cached decision": {errBrokeW1, []step{
		acts(pod0),
		acts(pod1),
		decides(leader2),
		looks(leader1),
		lags(leader1, resourceKind),
		leavesOrReturns(pod0),
		decides(leader2),
		builds(leader2, pod0),
		acts(pod0),
		releases(leader2),
		builds(leader2, pod0),
		builds(leader2, pod1),
		acts(pod1),
		builds(leader1, pod0),
		acts(pod0),
	}},

	// The second leader sees the contract of pod 0 but not yet the resource of its entry.
	"build: removes on a cached 404": {errBrokeW9, []step{
		lags(leader2, resourceKind),
		acts(pod0),
		decides(leader1),
		builds(leader1, pod0),
		builds(leader2, pod0),
	}},

	// Pod 0 is cut off until its Lease is taken over and its work has moved. When it returns, its
	// contract still exists.
	"apply: the incarnation has no run": {errBrokeW1, []step{
		acts(pod0),
		acts(pod1),
		decides(leader1),
		builds(leader1, pod0),
		isCutOff(pod0),
		timePasses(leader1),
		decides(leader1),
		builds(leader1, pod1),
		acts(pod1),
		isCutOff(pod0),
		acts(pod0),
		acts(pod0),
	}},

	// The Lease of pod 0 is deleted. Its process recreates the Lease and crashes while that write
	// is in flight for longer than it takes until the incarnation counts as ended. The vreplica
	// moves to pod 1. Then the write arrives, and the restarted process adopts the incarnation,
	// whose contract has not been rewritten since.
	"apply: makes a deleted Lease again": {errBrokeW1, []step{
		acts(pod0),
		acts(pod1),
		decides(leader1),
		builds(leader1, pod0),
		deletesOnPod0(leaseKind),
		renewsLate(pod0),
		crashes(pod0),
		decides(leader1),
		timePasses(leader1),
		decides(leader1),
		builds(leader1, pod1),
		acts(pod1),
		lateWritesArrive,
		acts(pod0),
		acts(pod0),
	}},

	// Pod 1 has acknowledged that it may do nothing while pod 0 releases the vreplica. Now pod 0
	// has released it, and the contract that grants it to pod 1 is not written yet.
	"ready: ignores a missing index": {errBrokeW3, []step{
		acts(pod0),
		acts(pod1),
		decides(leader1),
		leavesOrReturns(pod0),
		decides(leader1),
		builds(leader1, pod1),
		acts(pod1),
		builds(leader1, pod0),
		acts(pod0),
		releases(leader1),
		reports(leader1),
	}},
}

// lostContract: pod 0 has acknowledged generation 1 and works. Its contract is deleted. The second
// leader recreates it for the decision that moves the vreplica to pod 1. It has not seen the
// acknowledgement yet, so the new contract also has generation 1. Pod 0 does not even follow it.
// Then the leader sees the acknowledgement, which refers to the deleted contract.
var lostContract = []step{
	acts(pod0),
	acts(pod1),
	decides(leader1),
	builds(leader1, pod0),
	looks(leader2),
	lags(leader2, leaseKind),
	acts(pod0),
	deletesOnPod0(contractKind),
	leavesOrReturns(pod0),
	decides(leader2),
	builds(leader2, pod0),
	looks(leader2),
	releases(leader2),
	builds(leader2, pod1),
	acts(pod1),
}

// stalledGrant: the vreplica moves from pod 0 to pod 1. The first leader computes the contract that
// grants it to pod 1, and stalls. The second leader moves it back to pod 0. If pod 1 did not first
// have to acknowledge a rewritten contract, the late write would succeed.
var stalledGrant = []step{
	acts(pod0),
	acts(pod1),
	decides(leader1),
	leavesOrReturns(pod0),
	decides(leader1),
	builds(leader1, pod1),
	acts(pod1),
	builds(leader1, pod0),
	acts(pod0),
	releases(leader1),
	stalls(leader1, pod1),
	leavesOrReturns(pod0),
	leavesOrReturns(pod1),
	decides(leader2),
	releases(leader2),
	builds(leader2, pod0),
	acts(pod0),
	wakesUp,
	acts(pod1),
}

// Each story is minimal: the mutant breaks the promise and needs every step for that. The real
// rules keep all promises, even after everything has calmed down. -v prints the stories.
func TestEveryStoryFindsItsMutant(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(stories)) {
		t.Run(name, func(t *testing.T) {
			tale := stories[name]
			tale.check(t, name, small)
		})
	}
}

func (tale *story) check(t *testing.T, name string, narrow func(*settings)) {
	t.Helper()
	m, ok := mutants[name]
	require.True(t, ok)
	s, err := playWith(narrow, &m, tale.steps)
	trace := strings.Join(s.world.trace, "\n")
	require.ErrorIs(t, err, tale.breaks, trace)
	t.Logf("%v\n%s", err, trace)
	for at := range tale.steps {
		s, err := playWith(narrow, &m, without(tale.steps, at))
		assert.NoError(t, err, "step %d is unnecessary:\n%s", at, strings.Join(s.world.trace, "\n"))
	}
	s, err = playWith(narrow, &mutant{}, tale.steps)
	require.NoError(t, err, strings.Join(s.world.trace, "\n"))
	s.settle()
	assert.NoError(t, s.world.broken, strings.Join(s.world.trace, "\n"))
}
