package simulation

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// worksOnPod0: pod 0 works on the vreplica. The second leader does not see what becomes of the
// Leases after that.
var worksOnPod0 = []step{
	acts(pod0),
	acts(pod1),
	decides(leader1),
	builds(leader1, pod0),
	acts(pod0),
	looks(leader2),
	lags(leader2, leaseKind),
}

// losesItsEntry: the first leader moves the vreplica to pod 1, and the second one takes it out of
// the contract of pod 0 before pod 1 works on it.
var losesItsEntry = []step{
	decides(leader1),
	builds(leader2, pod0),
}

func smallOverlap(s *settings) {
	small(s)
	s.overlap = true
}

// TestMoveDoesNotInterruptAPodThatHasEnded: pod 0 has stopped by itself and released its Lease, so
// its incarnation never works again. The leader that takes its entry away has an old Lease in its
// cache.
func TestMoveDoesNotInterruptAPodThatHasEnded(t *testing.T) {
	s, err := playWith(smallOverlap, &mutant{}, slices.Concat(worksOnPod0, []step{
		isToldToEnd(pod0),
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

// TestMoveInterruptsAPodThatMayGoOn: a pod that does not work at the moment, or that has been told
// to end, has something to lose as long as its Lease names its incarnation.
func TestMoveInterruptsAPodThatMayGoOn(t *testing.T) {
	forgetsTheFormerOwner := mutants["decide: the former owner does not enter releasing"]
	for name, what := range map[string][]step{
		"works":                      nil,
		"was told to end and works":  {isToldToEnd(pod0)},
		"was told to end, and stops": {isToldToEnd(pod0), acts(pod0)},
		"has crashed":                {crashes(pod0)},
		"is frozen":                  {isFrozen(pod0)},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := playWith(smallOverlap, &forgetsTheFormerOwner, slices.Concat(worksOnPod0, what, []step{leavesOrReturns(pod0)}, losesItsEntry))
			assert.ErrorIs(t, err, errBrokeMove, strings.Join(s.world.trace, "\n"))
		})
	}
}
