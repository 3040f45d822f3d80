package simulation

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// story is a schedule that a mutant does not survive, and that random choices hardly ever make. It is shrunk: without any
// one of its steps, the mutant breaks no promise.
type story struct {
	breaks error
	steps  []step
}

// stories has the schedules for the mutants that need one.
var stories = map[string]story{
	"decide: since does not move":      {errBrokeW1, stalledGrant},
	"release: the decision is ignored": {errBrokeW1, stalledGrant},

	"release: by the number without the digest":               {errBrokeW1, lostContract},
	"release: by the acknowledgement of an earlier ConfigMap": {errBrokeW1, lostContract},

	// A pod is replaced while its process still works, and somebody deletes its Lease, so the new process may join at
	// once. It acknowledges the contract that the old one would have to acknowledge.
	"release: by the contract of another incarnation": {errBrokeW1, []step{
		acts(pod0),
		decides(leader1),
		builds(leader1, pod0),
		acts(pod0),
		somebodyDeletes(leaseKind),
		isReplaced(pod0),
		acts(newPod0),
		decides(leader1),
		builds(leader1, pod0),
		acts(newPod0),
		releases(leader1),
		builds(leader1, pod0),
		acts(newPod0),
	}},

	// The first leader does not see that the second one has moved the vreplica from pod 0 to pod 1. Then the contract
	// of pod 0 is lost, and with it the only object that would refuse a write from an old cache.
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
		somebodyDeletes(contractKind),
		builds(leader1, pod0),
		acts(pod0),
	}},

	// The second leader sees the contract of pod 0, and not yet the resource that it has an entry of.
	"build: removes on a cached 404": {errBrokeW9, []step{
		lags(leader2, resourceKind),
		acts(pod0),
		decides(leader1),
		builds(leader1, pod0),
		builds(leader2, pod0),
	}},

	// Pod 0 is cut off until its Lease is taken over and its work has moved. When it is back, its contract is still there.
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

	// Somebody deletes the Lease of pod 0. Its process makes the Lease again, and crashes while that write is under way for
	// longer than it takes until the incarnation counts as ended. The vreplica goes away, and comes back on pod 1.
	// Then the write arrives, and the restarted process adopts the incarnation, whose contract nobody has written since.
	"apply: makes a deleted Lease again": {errBrokeW1, []step{
		acts(pod0),
		acts(pod1),
		decides(leader1),
		builds(leader1, pod0),
		somebodyDeletes(leaseKind),
		renewsLate(pod0),
		crashes(pod0),
		wants(0),
		decides(leader1),
		timePasses(leader1),
		releases(leader1),
		wants(1),
		decides(leader1),
		builds(leader1, pod1),
		acts(pod1),
		lateWritesArrive,
		acts(pod0),
		acts(pod0),
	}},

	// Pod 1 has acknowledged what it may do while pod 0 releases the vreplica: nothing. Now pod 0 has released it, and
	// the contract that grants it to pod 1 is still to be written.
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

// lostContract: pod 0 has acknowledged generation 1, and works. Its contract is lost. The second leader makes a new one, for
// the decision that moves the vreplica to pod 1, and has not yet seen the acknowledgement, so it is generation 1
// again. Pod 0 does not even follow it. Then the leader sees the acknowledgement, which is of the lost contract.
var lostContract = []step{
	acts(pod0),
	acts(pod1),
	decides(leader1),
	builds(leader1, pod0),
	looks(leader2),
	lags(leader2, leaseKind),
	acts(pod0),
	somebodyDeletes(contractKind),
	leavesOrReturns(pod0),
	decides(leader2),
	builds(leader2, pod0),
	looks(leader2),
	releases(leader2),
	builds(leader2, pod1),
	acts(pod1),
}

// stalledGrant: the vreplica moves from pod 0 to pod 1. The first leader computes the contract that grants it to pod 1, and
// stalls. The second one gives it back to pod 0. Had nobody to write and acknowledge the contract of pod 1 for that, the
// late write would succeed.
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

// TestEveryStoryFindsItsMutant: the mutant breaks the promise, needs each step for it, and the real rules keep all promises,
// also when everything calms down after that. -v prints the stories.
func TestEveryStoryFindsItsMutant(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(stories)) {
		t.Run(name, func(t *testing.T) {
			tale := stories[name]
			m, isKnown := mutants[name]
			require.True(t, isKnown)
			s, err := play(&m, tale.steps)
			trace := strings.Join(s.world.trace, "\n")
			require.ErrorIs(t, err, tale.breaks, trace)
			t.Logf("%v\n%s", err, trace)
			for at := range tale.steps {
				s, err := play(&m, without(tale.steps, at))
				assert.NoError(t, err, "step %d is not needed:\n%s", at, strings.Join(s.world.trace, "\n"))
			}
			s, err = play(&mutant{}, tale.steps)
			require.NoError(t, err)
			s.settle()
			assert.NoError(t, s.world.broken, strings.Join(s.world.trace, "\n"))
		})
	}
}
