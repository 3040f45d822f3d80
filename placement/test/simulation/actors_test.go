package simulation

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/schedules"
)

// Random schedules make each actor do everything that it can do.
func TestActorsAct(t *testing.T) {
	var c counts
	var bytes []byte
	first := schedules.Seed(t, *firstSeed)
	for _, narrow := range []func(*settings){nil, rolling, scaling, collecting, orphaning, cleaning} {
		s := newSimulation(mutant{narrow: narrow})
		s.count = c
		for i := range uint64(1_000) {
			bytes = lengths.Choices(first+i, bytes)
			require.NoError(t, s.run(bytes, false))
		}
		c = s.count
		t.Logf("%+v", c)
	}
	for what, n := range map[string]int{
		"pods are rolled": c.rolled, "pods are deleted by force": c.forced, "processes are killed": c.killed, "pods are removed": c.removed, "removed pods return": c.returned,
		"pods are rolled when all is calm": c.calmly,
		"contracts are collected":          c.collected[contractKind], "Leases are collected": c.collected[leaseKind], "resources are collected": c.collected[resourceKind],
		"Leases are collected although they are held": c.held, "deletions find another object": c.refused,
		"contracts are cleaned up": c.cleaned[contractKind], "Leases are cleaned up": c.cleaned[leaseKind],
	} {
		assert.Positive(t, n, what)
	}
}

func inStatefulSet(s *settings) {
	small(s)
	s.patience = patience
}

func owned(s *settings) {
	small(s)
	s.owners = ownedByPods
}

// actorStories contain schedules in which a roll or the garbage collector lets a mutant break a
// promise.
var actorStories = map[string]struct {
	mutant string
	narrow func(*settings)
	story
}{
	"the owner does not wait for its pod": {"schedule: patience is 0", inStatefulSet, story{errBrokeW6, []step{
		acts(pod0),
		decides(leader1),
		isDeleted(pod0),
		acts(pod0),
		decides(leader1),
	}}},

	// The new pod joins while the process of the deleted one still works in its grace period.
	"the grace period": {"apply: releases the Lease before workers return", inStatefulSet, story{errBrokeW1, []step{
		acts(pod0),
		decides(leader1),
		builds(leader1, pod0),
		acts(pod0),
		isDeleted(pod0),
		acts(pod0),
		isReplaced,
		acts(newPod0),
		decides(leader1),
		builds(leader1, pod0),
		acts(newPod0),
	}}},

	// The process of the former pod still works, so the new one must wait for the takeover.
	"a pod deleted by force": {"apply: takes the Lease of another pod", inStatefulSet, story{errBrokeW1, []step{
		acts(pod0),
		decides(leader1),
		builds(leader1, pod0),
		acts(pod0),
		isReplaced,
		acts(newPod0),
		decides(leader1),
		builds(leader1, pod0),
		acts(newPod0),
	}}},

	"a collected contract, by the number":          {"release: by the number without the digest", owned, story{errBrokeW1, collectedContract}},
	"a collected contract, by its acknowledgement": {"release: by the acknowledgement of an earlier ConfigMap", owned, story{errBrokeW1, collectedContract}},
}

// collectedContract is lostContract, where the garbage collector deletes the contract because its
// owner is a former pod of that name, whose process still runs.
var collectedContract = []step{
	acts(pod0),
	acts(pod1),
	decides(leader1),
	builds(leader1, pod0),
	looks(leader2),
	lags(leader2, leaseKind),
	acts(pod0),
	isReplaced,
	collects(contractKind),
	leavesOrReturns(pod0),
	decides(leader2),
	builds(leader2, pod0),
	looks(leader2),
	releases(leader2),
	builds(leader2, pod1),
	acts(pod1),
}

func TestEveryStoryOfAnActorFindsItsMutant(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(actorStories)) {
		t.Run(name, func(t *testing.T) {
			tale := actorStories[name]
			tale.check(t, tale.mutant, tale.narrow)
		})
	}
}

// rolls lets a roll of all pods go on to its end, while the pods act and a leader works.
func rolls(s *stage) {
	for s.roll(); s.rolling.on && s.world.broken == nil; s.roll() {
		s.passTime(1)
		for _, p := range s.processes {
			p.next()
		}
		l := s.at(leader1)
		for name := range s.settings.pods {
			l.watch(name)
			l.sends()
		}
		for _, do := range []step{decides(leader1), releases(leader1), builds(leader1, pod0), builds(leader1, pod1)} {
			do(s)
		}
	}
}

// A roll deletes the last pod first, and the next one when the new one has joined. All vreplicas
// come back to the pods of the same names, with new incarnations and higher epochs.
func TestRollReplacesOnePodAfterTheOther(t *testing.T) {
	both := []step{acts(pod0), acts(pod1), wants(2), decides(leader1), builds(leader1, pod0), builds(leader1, pod1), acts(pod0), acts(pod1)}
	for name, tc := range map[string]struct {
		before []step
		moves  bool
		killed int
	}{
		"it ends by itself":               {nil, false, 0},
		"its container has restarted":     {[]step{isRestarted(pod1), acts(pod1), acts(pod1), acts(pod1)}, false, 0},
		"it is frozen, and killed":        {[]step{isFrozen(pod1)}, true, 1},
		"both are frozen, and are killed": {[]step{isFrozen(pod1), isFrozen(pod0)}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := playWith(inStatefulSet, &mutant{}, slices.Concat(both, tc.before))
			require.NoError(t, err)
			owners, epochs, uids := s.ownerPods(), s.world.ghost.epochs(), [2]string{s.world.pod(pod0).uid, s.world.pod(pod1).uid}
			require.Len(t, epochs, 2)
			rolls(s)
			trace := strings.Join(s.world.trace, "\n")
			require.NoError(t, s.world.broken, trace)
			assert.NotEqual(t, uids[pod0], s.world.pod(pod0).uid, trace)
			assert.NotEqual(t, uids[pod1], s.world.pod(pod1).uid, trace)
			assert.Regexp(t, `(?s)w1\S+ is deleted.*w1\S+ joins.*w0\S+ is deleted.*w0\S+ joins`, trace)
			assert.Equal(t, tc.killed, s.count.killed, trace)
			s.settle()
			require.NoError(t, s.world.broken, strings.Join(s.world.trace, "\n"))
			if !tc.moves {
				assert.Equal(t, owners, s.ownerPods(), trace)
			}
			for u, epoch := range s.world.ghost.epochs() {
				assert.Greater(t, epoch, epochs[u], trace)
			}
		})
	}
}
