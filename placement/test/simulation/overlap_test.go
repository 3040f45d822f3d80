package simulation

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// worksOnPod0 makes pod 0 work on the vreplica. From then on, the second leader does not see
// changes of Leases.
var worksOnPod0 = []step{
	acts(pod0),
	acts(pod1),
	decides(leader1),
	builds(leader1, pod0),
	acts(pod0),
	looks(leader2),
	lags(leader2, leaseKind),
}

// losesItsEntry makes the first leader move the vreplica to pod 1, and the second leader remove it
// from the contract of pod 0 before pod 1 works on it.
var losesItsEntry = []step{
	decides(leader1),
	builds(leader2, pod0),
}

func smallOverlap(s *settings) {
	small(s)
	s.overlap = true
}

// Pod 0 has stopped by itself and released its Lease, so its incarnation never works again. The
// leader that removes its entry has an old Lease in its cache.
func TestMoveDoesNotInterruptAPodThatHasEnded(t *testing.T) {
	s, err := playWith(smallOverlap, &mutant{}, slices.Concat(worksOnPod0, []step{
		isTerminating(pod0),
		acts(pod0),
		acts(pod0),
	}, losesItsEntry))
	trace := strings.Join(s.world.trace, "\n")
	require.NoError(t, err, trace)
	assert.Empty(t, s.world.contract(pod0).contract.Entries, trace)
	assert.Nil(t, s.world.contract(pod1), "pod 1 does not work yet")
	s.settle()
	assert.NoError(t, s.world.broken, strings.Join(s.world.trace, "\n"))
}

// Pod 1 has acknowledged the vreplica, and ends before the contract of pod 0 is written. It is
// awaited, so it stays the owner, and pod 0 works on until pod 1 works again.
func TestMoveWaitsForAnOwnerThatWorks(t *testing.T) {
	awaited := func(s *settings) {
		smallOverlap(s)
		s.patience = patience
	}
	steps := []step{
		acts(pod0),
		acts(pod1),
		decides(leader1),
		builds(leader1, pod0),
		acts(pod0),
		leavesOrReturns(pod0),
		decides(leader1),
		builds(leader1, pod1),
		acts(pod1),
	}
	for name, tc := range map[string]struct {
		then    []step
		entries int
	}{
		"it works": {nil, 0},
		"it ends":  {[]step{isTerminating(pod1), acts(pod1), acts(pod1), decides(leader1)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := playWith(awaited, &mutant{}, slices.Concat(steps, tc.then, []step{watches(leader1), builds(leader1, pod0)}))
			trace := strings.Join(s.world.trace, "\n")
			require.NoError(t, err, trace)
			c := s.world.contract(pod0).contract
			require.Len(t, c.Entries, 1, trace)
			assert.Len(t, c.Entries[0].Replicas, tc.entries, trace)
			s.settle()
			assert.NoError(t, s.world.broken, strings.Join(s.world.trace, "\n"))
		})
	}
}

// A pod that is not working at the moment, or that is terminating, has something to lose as long as
// its Lease names its incarnation.
func TestMoveInterruptsAPodThatMayGoOn(t *testing.T) {
	forgetsTheFormerOwner := mutants["decide: the former owner does not enter releasing"]
	for name, what := range map[string][]step{
		"works":                    nil,
		"is terminating and works": {isTerminating(pod0)},
		"is terminating and stops": {isTerminating(pod0), acts(pod0)},
		"has crashed":              {crashes(pod0)},
		"is frozen":                {isFrozen(pod0)},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := playWith(smallOverlap, &forgetsTheFormerOwner, slices.Concat(worksOnPod0, what, []step{leavesOrReturns(pod0)}, losesItsEntry))
			assert.ErrorIs(t, err, errBrokeMove, strings.Join(s.world.trace, "\n"))
		})
	}
}
