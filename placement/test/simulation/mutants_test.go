package simulation

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/schedule"
	"nodekeeper.dev/test/schedules"
)

// mutant is the real system with one rule broken. The zero value breaks none.
type mutant struct {
	// narrow changes the settings, for mutants that are detected only if many events coincide.
	narrow  func(*settings)
	settles bool // the mutant is detected only after everything has calmed down

	decide      func(r *resource, next placement.Status) placement.Status
	releaseView func(v *contract.View, uid types.UID, incarnation string)
	input       func(l *leader, in *contract.Input)
	plan        func(l *leader, in *contract.Input, plan *contract.Plan)
	readyView   func(v *contract.View, uid types.UID, incarnation string)
	readyInput  func(in *ready.Input)

	decidesBlindly, buildsBlindly, anyConfigMap, missingIsEnded, removesOnError bool
	startsEmpty, overcommits, impatient, cleansBlindly, evensNothing            bool
	anyContract, noRun, adoptsCached, adoptsBlindly, acksEarly, acksLate        bool
	remakesLease, sameRun, releasesEarly, releasesBlindly, takesAnyLease        bool
	keepsVersions, goesBack, noTime, remembersEnds, forgetsAck, keepsLost       bool
}

var mutants = map[string]mutant{
	"": {}, // the real rules

	"decide: the former owner does not enter releasing": {decide: func(r *resource, next placement.Status) placement.Status {
		next.Releasing = r.status.Releasing
		return next
	}},
	"decide: the former owner does not enter releasing when there are fewer": {decide: func(r *resource, next placement.Status) placement.Status {
		return releasingOnly(next, func(_ string, index int32) bool { return index < r.wanted })
	}},
	"decide: the former owner does not enter releasing for the same pod": {narrow: replaced, decide: func(_ *resource, next placement.Status) placement.Status {
		return releasingOnly(next, func(pod string, index int32) bool { return pod != ownerPod(&next, index) })
	}},
	"decide: the new owner stays in releasing": {settles: true, decide: func(r *resource, next placement.Status) placement.Status {
		for i := range r.status.Releasing {
			former := r.status.Releasing[i]
			at := slices.IndexFunc(next.Releasing, func(p placement.Placement) bool { return p.Incarnation == former.Incarnation })
			if at < 0 {
				next.Releasing = append(next.Releasing, former)
				continue
			}
			set, _ := next.Releasing[at].Set()
			before, _ := former.Set()
			for _, index := range before {
				set = set.With(index)
			}
			next.Releasing[at].Indexes = set.String()
		}
		return next
	}},
	"decide: the number does not grow": {decide: func(r *resource, next placement.Status) placement.Status {
		for _, shares := range [][]placement.Placement{next.Placement, next.Releasing} {
			for i := range shares {
				shares[i].Since = min(shares[i].Since, max(r.status.Decision, 1))
			}
		}
		next.Decision = max(r.status.Decision, 1)
		return next
	}},
	"decide: since does not move": {narrow: stalling, decide: func(r *resource, next placement.Status) placement.Status {
		for _, shares := range [][]placement.Placement{next.Placement, next.Releasing} {
			for i := range shares {
				shares[i].Since = 0
				for _, former := range slices.Concat(r.status.Placement, r.status.Releasing) {
					if former.Incarnation == shares[i].Incarnation {
						shares[i].Since = former.Since
					}
				}
			}
		}
		return next
	}},
	"decide: no precondition":                                   {decidesBlindly: true},
	"decide: the number does not follow the time":               {noTime: true},
	"decide: goes on from a status that has gone back":          {narrow: restoring, goesBack: true},
	"decide: an incarnation that a Lease names again has ended": {narrow: reviving, remembersEnds: true},
	"release: by a version that a restore has discarded":        {narrow: restoring, keepsVersions: true},

	"release: without acknowledgement": {releaseView: func(v *contract.View, _ types.UID, incarnation string) {
		v.Ack = contract.Ack{Incarnation: incarnation, Generation: v.Contract.Generation, Digest: v.Digest}
	}},
	"release: the decision is ignored": {narrow: stalling, releaseView: func(v *contract.View, uid types.UID, _ string) {
		changeEntry(v, uid, func(e *contract.Entry) { e.Decision = 1 << 40 })
	}},
	"release: despite stopping": {narrow: stuckWorkers, releaseView: func(v *contract.View, _ types.UID, _ string) { v.Ack.Stopping = nil }},
	"release: by the acknowledgement of another incarnation": {narrow: reborn, releaseView: func(v *contract.View, _ types.UID, incarnation string) {
		v.Ack.Incarnation = incarnation
	}},
	"release: by the number without the digest": {narrow: lostContracts, releaseView: func(v *contract.View, _ types.UID, _ string) {
		if v.Ack.Generation > 0 {
			v.Seen = v.Seen.With(v.ConfigMap, v.Ack.Generation, v.Ack.Digest)
		}
	}},
	"release: by the acknowledgement of an earlier ConfigMap": {narrow: lostContracts, anyConfigMap: true},
	"release: by the contract of another incarnation": {narrow: reborn, releaseView: func(v *contract.View, _ types.UID, incarnation string) {
		if v.Contract.Incarnation != "" {
			v.Contract.Incarnation, v.Ack.Incarnation = incarnation, incarnation
		}
	}},
	"release: a missing pod has ended": {narrow: replaced, missingIsEnded: true},
	"release: a missing entry proves it": {narrow: moving, releaseView: func(v *contract.View, uid types.UID, _ string) {
		if v.Contract.Entry(uid) == nil {
			v.Contract.Entries = slices.Clone(v.Contract.Entries)
			e := contract.Entry{Reference: contract.Reference{UID: uid}, Decision: 1 << 40}
			at, _ := slices.BinarySearchFunc(v.Contract.Entries, uid, func(e contract.Entry, uid types.UID) int { return strings.Compare(string(e.UID), string(uid)) })
			v.Contract.Entries = slices.Insert(v.Contract.Entries, at, e)
		}
	}},
	"release: although the entry still lists it": {narrow: overlap, releaseView: func(v *contract.View, uid types.UID, _ string) {
		changeEntry(v, uid, func(e *contract.Entry) { e.Replicas = nil })
	}},

	"build: ignores releasing": {narrow: exclusive, input: func(_ *leader, in *contract.Input) { in.Overlap = true }},
	"build: over a later decision": {input: func(_ *leader, in *contract.Input) {
		changeEntries(in.View, func(e *contract.Entry) { e.Decision = 0 })
	}},
	"build: no precondition":                          {buildsBlindly: true},
	"build: keeps the entries of another incarnation": {input: func(_ *leader, in *contract.Input) { in.View.Contract.Incarnation = in.Incarnation }},
	"build: leaves an old decision": {settles: true, plan: func(_ *leader, in *contract.Input, plan *contract.Plan) {
		for i := range plan.Contract.Entries {
			e := &plan.Contract.Entries[i]
			before := in.View.Contract.Entry(e.UID)
			if before != nil && maps.Equal(before.Replicas, e.Replicas) {
				e.Decision = before.Decision
			}
		}
	}},
	"build: an entry is made from a cached decision": {narrow: lagging, input: func(_ *leader, in *contract.Input) {
		for i := range in.Placed {
			in.Placed[i].Live = true
		}
	}},
	"build: creates a contract with entries": {narrow: lostContracts, plan: func(_ *leader, in *contract.Input, plan *contract.Plan) {
		if plan.Action != contract.Create {
			return
		}
		full := *in
		full.View = &contract.View{ConfigMap: "none", Ack: in.View.Ack}
		full.Placed = slices.Clone(in.Placed)
		for i := range full.Placed {
			full.Placed[i].Live = true
		}
		plan.Contract = contract.Build(&full).Contract
	}},
	"build: does not answer an unknown acknowledgement": {settles: true, input: func(_ *leader, in *contract.Input) {
		if !in.View.Known() {
			in.View.Ack = contract.Ack{}
		}
	}},
	"build: removes on a cached 404": {narrow: behind, input: func(_ *leader, in *contract.Input) {
		for i := range in.View.Contract.Entries {
			uid := in.View.Contract.Entries[i].UID
			if !slices.ContainsFunc(in.Placed, func(p contract.Placed) bool { return p.UID == uid }) {
				in.Placed = append(in.Placed, contract.Placed{Reference: contract.Reference{UID: uid}, Gone: true})
			}
		}
	}},
	"build: removes on an error": {narrow: behind, removesOnError: true},
	"build: removes at once though hand-overs overlap": {narrow: overlap, input: func(_ *leader, in *contract.Input) {
		in.Owners = func(owner string) (*contract.View, bool) { return worksOnAll(in, owner), true }
	}},
	"build: removes without the owner's acknowledgement": {narrow: overlap, input: func(_ *leader, in *contract.Input) {
		owners := in.Owners
		in.Owners = func(incarnation string) (*contract.View, bool) {
			v, ok := owners(incarnation)
			if ok {
				v.Ack = contract.Ack{Incarnation: incarnation, Generation: v.Contract.Generation, Digest: v.Digest}
			}
			return v, ok
		}
	}},
	"build: removes on the owner's acknowledgement of an earlier decision": {narrow: overlap, input: func(_ *leader, in *contract.Input) {
		owners := in.Owners
		in.Owners = func(incarnation string) (*contract.View, bool) {
			v, ok := owners(incarnation)
			if ok && v.Ack.Incarnation == incarnation {
				v.Ack.Generation, v.Ack.Digest = v.Contract.Generation, v.Digest
				changeEntries(v, func(e *contract.Entry) { e.Decision = 1 << 40 })
			}
			return v, ok
		}
	}},

	"apply: any incarnation's contract":                  {anyContract: true},
	"apply: the incarnation has no run":                  {narrow: cutOff, noRun: true},
	"apply: adopts with a cached read and no floor":      {narrow: crashing, adoptsCached: true},
	"apply: acknowledges before workers return":          {acksEarly: true},
	"apply: holds the acknowledgement for what is stuck": {settles: true, acksLate: true},
	"apply: adopts without renewing the Lease":           {adoptsBlindly: true},
	"apply: makes a deleted Lease again":                 {remakesLease: true},
	"apply: returns with the run that it has released":   {narrow: returning, sameRun: true},
	"apply: releases the Lease before workers return":    {narrow: returning, releasesEarly: true},
	"apply: releases the Lease without a precondition":   {narrow: returning, releasesBlindly: true},
	"apply: takes the Lease of another pod":              {narrow: rolling, takesAnyLease: true},
	"apply: renews without its acknowledgement":          {narrow: adopting, settles: true, forgetsAck: true},
	"apply: keeps its work although its Lease is lost":   {narrow: keeping, keepsLost: true},
	"ready: without acknowledgement": {readyView: func(v *contract.View, _ types.UID, incarnation string) {
		v.Ack = contract.Ack{Incarnation: incarnation, Generation: v.Contract.Generation, Digest: v.Digest}
	}},
	"ready: ignores releasing": {readyInput: func(in *ready.Input) { in.Status.Releasing = nil }},
	"ready: ignores a missing index": {narrow: moving, readyView: func(v *contract.View, uid types.UID, _ string) {
		changeEntry(v, uid, func(e *contract.Entry) {
			e.Replicas = map[int32]int64{}
			for index := range int32(maxWanted) {
				e.Replicas[index] = 1
			}
		})
	}},
	"ready: ignores since": {readyView: func(v *contract.View, uid types.UID, _ string) {
		changeEntry(v, uid, func(e *contract.Entry) {
			e.Decision = 1 << 40
			e.Changed = 0
		})
	}},
	"ready: ignores stopping and failing": {readyView: func(v *contract.View, _ types.UID, _ string) { v.Ack.Stopping, v.Ack.Failing = nil, nil }},

	"schedule: a new leader starts empty": {narrow: restarting, settles: true, startsEmpty: true},
	"schedule: overcommits":               {settles: true, overcommits: true},
	"schedule: patience is 0":             {impatient: true},
	"schedule: evens out nothing":         {narrow: rebalancing, settles: true, evensNothing: true},

	"clean up: no precondition": {narrow: cleaning, cleansBlindly: true},
}

func overlap(s *settings)   { s.overlap = true }
func exclusive(s *settings) { s.overlap = false }

// small removes settings that make a run long.
func small(s *settings) {
	exclusive(s)
	s.pods, s.resources, s.capacity, s.settles, s.stuck = 2, 1, 10, false, 0
}

// moving makes pods leave the pool and return all the time.
func moving(s *settings) {
	small(s)
	s.churn, s.faults, s.lateWrites = 10, 0, max(s.lateWrites, 4)
}

// stalling makes writes of leaders arrive late while work moves.
func stalling(s *settings) {
	small(s)
	s.churn, s.faults, s.lateWrites, s.slowWorkers, s.restarts = 14, 0, 16, 0, 0
}

// lagging makes the caches of leaders advance one kind at a time while work moves.
func lagging(s *settings) {
	small(s)
	s.churn, s.faults, s.lateWrites, s.lostAnswers, s.slowWorkers, s.stale = 8, 0, 0, 0, 0, true
}

// restarting makes leaders restart while work moves.
func restarting(s *settings) {
	exclusive(s)
	s.churn, s.faults, s.stuck, s.restarts, s.settles = 6, 0, 0, 3, true
}

// stuckWorkers makes workers hang while work moves.
func stuckWorkers(s *settings) {
	small(s)
	s.churn, s.faults, s.stuck, s.slowWorkers = 2, 0, 20, 0
}

// lostContracts deletes contracts while work moves.
func lostContracts(s *settings) {
	small(s)
	s.churn, s.faults, s.among, s.stale = 8, 6, []int{7}, true
}

// replaced replaces pods while their processes still run, and deletes Leases.
func replaced(s *settings) {
	small(s)
	s.churn, s.faults, s.among, s.patience = 2, 6, []int{6, 8, 8}, patience
}

// reborn makes pods release their Leases, crash and return.
func reborn(s *settings) {
	small(s)
	s.churn, s.faults, s.among, s.stale = 8, 5, []int{2, 6, 8, 8}, true
}

// returning makes processes release their Leases and return while work moves.
func returning(s *settings) {
	small(s)
	s.churn, s.faults, s.among, s.lateWrites = 6, 6, []int{9}, max(s.lateWrites, 4)
	s.returns, s.slowWorkers = true, 40
}

// restoring restores etcd while work moves.
func restoring(s *settings) {
	small(s)
	s.churn, s.faults, s.restores, s.settles = 6, 0, 3, true
}

// reviving restores etcd while processes release their Leases, in a small pool.
func reviving(s *settings) {
	restoring(s)
	s.churn, s.faults, s.among, s.returns, s.capacity = 2, 6, []int{9}, true, 2
}

// adopting restores etcd while processes crash and adopt their incarnations.
func adopting(s *settings) {
	restoring(s)
	s.churn, s.faults, s.among = 2, 6, []int{0}
}

// crashing makes processes crash while work moves.
func crashing(s *settings) {
	small(s)
	s.churn, s.faults, s.among = 10, 10, []int{0}
}

// cutOff cuts pods off from the API server for long times.
func cutOff(s *settings) {
	small(s)
	s.churn, s.faults, s.among, s.lateWrites = 2, 5, []int{5}, 0
}

// keeping makes agents go on while pods are cut off for long times, until all is calm.
func keeping(s *settings) {
	cutOff(s)
	s.keeps, s.settles = true, true
}

// behind restarts leaders with old caches and makes reads fail.
func behind(s *settings) {
	exclusive(s)
	s.settles, s.restarts, s.lostAnswers, s.churn, s.faults = false, 10, 20, 12, 0
}

// rolling rolls the StatefulSet while work moves.
func rolling(s *settings) {
	small(s)
	s.churn, s.faults, s.patience, s.rolls, s.settles = 2, min(s.faults, 2), patience, 14, true
}

// rebalancing evens out the load of three pods while pods come and go.
func rebalancing(s *settings) {
	exclusive(s)
	s.churn, s.faults, s.rebalance, s.settles, s.stuck = 6, min(s.faults, 2), 10, true, 0
}

// scaling changes the number of pods while work moves.
func scaling(s *settings) {
	exclusive(s)
	s.churn, s.faults, s.scales, s.settles = 2, min(s.faults, 2), 10, true
}

// collecting lets the garbage collector delete what pods own, while they are replaced and rolled.
func collecting(s *settings) {
	small(s)
	s.churn, s.faults, s.among, s.rolls, s.owners, s.collects, s.settles = 6, 4, []int{6, 7, 8, 9}, 6, ownedByPods, 10, true
	s.lateWrites = 24
}

// orphaning lets the garbage collector delete what resources own, while they are deleted and made
// again.
func orphaning(s *settings) {
	exclusive(s)
	s.churn, s.faults, s.owners, s.collects, s.settles = 12, min(s.faults, 2), ownedByObjects, 10, true
}

// cleaning makes pods leave the pool, end and return after their Leases were deleted, while writes
// are late.
func cleaning(s *settings) {
	small(s)
	s.churn, s.faults, s.among, s.rolls, s.patience, s.lateWrites, s.settles = 2, 4, []int{9}, 4, 0, 12, true
}

// releasingOnly returns a status without the releases for which keeps returns false.
func releasingOnly(s placement.Status, keeps func(pod string, index int32) bool) placement.Status {
	var left []placement.Placement
	for _, p := range s.Releasing {
		set, _ := p.Set()
		var kept schedule.Set
		for _, index := range set {
			if keeps(p.PodName, index) {
				kept = append(kept, index)
			}
		}
		if p.Indexes = kept.String(); len(kept) > 0 {
			left = append(left, p)
		}
	}
	s.Releasing = left
	return s
}

func ownerPod(s *placement.Status, index int32) string {
	for i := range s.Placement {
		if set, _ := s.Placement[i].Set(); set.Has(index) {
			return s.Placement[i].PodName
		}
	}
	return ""
}

// changeEntries replaces the entries of a view without changing what is stored.
func changeEntries(v *contract.View, change func(e *contract.Entry)) {
	v.Contract.Entries = slices.Clone(v.Contract.Entries)
	for i := range v.Contract.Entries {
		change(&v.Contract.Entries[i])
	}
}

func changeEntry(v *contract.View, uid types.UID, change func(e *contract.Entry)) {
	changeEntries(v, func(e *contract.Entry) {
		if e.UID == uid {
			change(e)
		}
	})
}

// worksOnAll returns the view of a pod that has acknowledged everything.
func worksOnAll(in *contract.Input, owner string) *contract.View {
	v := &contract.View{
		ConfigMap: "cm", Digest: "d", Ack: contract.Ack{Incarnation: owner, Digest: "d", Generation: 1},
		Contract: contract.Contract{Incarnation: owner, Generation: 1},
	}
	for i := range in.Placed {
		e := contract.Entry{Reference: in.Placed[i].Reference, Decision: 1 << 40, Replicas: map[int32]int64{}}
		for index := range int32(maxWanted) {
			e.Replicas[index] = 1
		}
		v.Contract.Entries = append(v.Contract.Entries, e)
	}
	slices.SortFunc(v.Contract.Entries, func(a, b contract.Entry) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return v
}

// found contains the seed of a schedule that detects each mutant.
var found = schedules.Recorded{
	"decide: the former owner does not enter releasing":                      20,
	"decide: the former owner does not enter releasing when there are fewer": 20,
	"decide: the former owner does not enter releasing for the same pod":     8956,
	"decide: the new owner stays in releasing":                               2808,
	"decide: the number does not grow":                                       123,
	"decide: no precondition":                                                1461,
	"decide: the number does not follow the time":                            1136,
	"decide: goes on from a status that has gone back":                       36278,
	"decide: an incarnation that a Lease names again has ended":              1855,
	"release: by a version that a restore has discarded":                     1745,
	"release: without acknowledgement":                                       20,
	"release: despite stopping":                                              11273,
	"release: a missing pod has ended":                                       8956,
	"release: a missing entry proves it":                                     99906,
	"release: although the entry still lists it":                             239,
	"build: ignores releasing":                                               239,
	"build: over a later decision":                                           0,
	"build: no precondition":                                                 57,
	"build: keeps the entries of another incarnation":                        3106,
	"build: leaves an old decision":                                          3010,
	"build: does not answer an unknown acknowledgement":                      96,
	"build: removes on an error":                                             126396,
	"build: removes at once though hand-overs overlap":                       239,
	"build: removes without the owner's acknowledgement":                     546,
	"build: removes on the owner's acknowledgement of an earlier decision":   2618,
	"apply: any incarnation's contract":                                      0,
	"apply: adopts with a cached read and no floor":                          128567,
	"apply: acknowledges before workers return":                              4790,
	"apply: holds the acknowledgement for what is stuck":                     3010,
	"apply: adopts without renewing the Lease":                               13791,
	"apply: returns with the run that it has released":                       6249,
	"apply: releases the Lease before workers return":                        762223,
	"apply: releases the Lease without a precondition":                       29668,
	"apply: takes the Lease of another pod":                                  57874,
	"apply: renews without its acknowledgement":                              211571,
	"apply: keeps its work although its Lease is lost":                       23739,
	"ready: without acknowledgement":                                         0,
	"ready: ignores releasing":                                               20,
	"ready: ignores since":                                                   8,
	"ready: ignores stopping and failing":                                    13163,
	"schedule: a new leader starts empty":                                    10,
	"schedule: evens out nothing":                                            64,
	"schedule: overcommits":                                                  1,
	"schedule: patience is 0":                                                21,
	"clean up: no precondition":                                              27,
}

// implied explains why a rule exists although a mutant without it breaks no promise.
var implied = map[string]string{
	"release: by the acknowledgement of another incarnation": "a contract for another incarnation has changed all its entries since the last one was acknowledged. " +
		"The rule is kept for agents in other languages, which might acknowledge contracts of other incarnations",
}
